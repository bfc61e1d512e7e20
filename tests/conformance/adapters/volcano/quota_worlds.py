"""From a session's documents to a quota engine: its queues translated, its pod groups as workloads.

A pod group is a workload of the pods that it needs at least, and one more for each further pod: its parts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.api import core, kueue, timestamps, volcano
from muster.api.core.requests import pod_requests
from muster.api.kinds import Kind
from muster.api.kueue import names
from muster.api.meta import Instant
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.api.volcano.preemptable import PREEMPTABLE
from muster.api.volcano.queue_naming import FLAVOR, quota_name
from muster.quota.amounts import all_shown
from muster.quota.decisions import Admission, Eviction
from muster.quota.engine import Engine
from muster.quota.gates import Gate, Gates
from muster.quota.settings import FairSharing, Settings
from muster.quota.volcano_queues import OVERCOMMIT_ANNOTATION, Translation, flavor, local_queue, node_total, translate
from tests.conformance.adapters.kube.building import without_nulls
from tests.conformance.adapters.volcano import limits
from tests.conformance.cases import Case

NOW = Instant(1_800_000_000.0)
ENOUGH = "1E"
"""Of anything: what a session has that names no nodes."""
_FINISHED = ("Succeeded", "Failed")
_USUAL_FACTOR = 1.2


@dataclass(slots=True)
class Part:
    """One workload: `pods` by `namespace/name`."""

    key: str
    job: str
    queue: str
    pods: list[Document]
    is_held: bool
    """It has its quota from before."""
    is_base: bool = False
    minimum: Mapping[str, str] | None = None
    """What it asks for, where there are no pods yet."""
    priority: int = 0
    is_protected: bool = False
    is_gated: bool = False
    was_let_in: bool = False
    """By an earlier session: it comes before others."""
    number: int = 0
    """How old it is, among all: the pods of a session have the same age, and then their names decide."""

    @property
    def pod_keys(self) -> list[str]:
        return [key_of(pod) for pod in self.pods]


@dataclass(slots=True)
class Outcome:
    admitted: list[Part] = field(default_factory=list)
    evicted: list[Part] = field(default_factory=list)


def key_of(document: Document) -> str:
    metadata = document["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def is_placed(pod: Document) -> bool:
    return bool(pod["spec"].get("nodeName")) and (pod.get("status") or {}).get("phase") not in _FINISHED


class QuotaWorld:
    def __init__(self, case: Case, *, is_fair: bool = False) -> None:
        self._case = case
        self._enabled = {plugin["name"]: plugin for plugin in limits.plugins(case)}
        self.translation = self._translated()
        pods = sorted(case.get("pods") or (), key=_age)
        self._ages = {key_of(pod): number for number, pod in enumerate(pods)}
        gates = Gates.default().changed({Gate.ADMISSION_GATED_BY: True})
        self.engine = Engine(Settings(gates=gates, fair_sharing=FairSharing() if is_fair else None))
        self.parts = {part.key: part for part in self._parts()}
        self._fill()

    # Queues

    def _translated(self) -> Translation:
        queues = {queue["metadata"]["name"]: queue for queue in self._case.get("queues") or ()}
        overcommit = self._enabled.get("overcommit", {})
        if overcommit.get("enableJobEnqueued"):
            root = queues.get("root") or {"metadata": {"name": "root"}}
            factor = str((overcommit.get("arguments") or {}).get("overcommit-factor", _USUAL_FACTOR))
            annotations = {**(root["metadata"].get("annotations") or {}), OVERCOMMIT_ANNOTATION: factor}
            queues["root"] = {**root, "metadata": {**root["metadata"], "annotations": annotations}}
        nodes = self._case.get("nodes") or [self._endless_node()]
        total = node_total(_view(core.NODE, node) for node in nodes)
        return translate([_view(volcano.QUEUE, queue) for queue in queues.values()], total)

    def _endless_node(self) -> Document:
        asked = {resource for part in self._requests() for resource in part}
        return {"metadata": {"name": "any"}, "status": {"allocatable": dict.fromkeys((*asked, "pods"), ENOUGH)}}

    def _requests(self) -> Iterator[Mapping[str, Any]]:
        for group in self._case.get("podGroups") or ():
            yield (group.get("spec") or {}).get("minResources") or {}
        for pod in self._case.get("pods") or ():
            for container in pod["spec"]["containers"]:
                yield (container.get("resources") or {}).get("requests") or {}

    def _cluster_queue(self, document: Document) -> Document:
        """Only the actions that the session lists may evict."""
        actions = self._case["actions"]
        allowed = {
            "withinClusterQueue": "LowerPriority" if "preempt" in actions else "Never",
            "reclaimWithinCohort": "Any" if "reclaim" in actions else "Never",
        }
        return {**document, "spec": {**document["spec"], "preemption": allowed}}

    # Workloads

    def _parts(self) -> Iterator[Part]:
        known = {queue["metadata"]["name"] for queue in self._case.get("queues") or ()}
        for group in self._case.get("podGroups") or ():
            queue = (group.get("spec") or {}).get("queue") or "default"
            if queue not in known:
                continue
            yield from self._of_group(group, queue)

    def _of_group(self, group: Document, queue: str) -> Iterator[Part]:
        job, spec = key_of(group), group.get("spec") or {}
        pods = sorted(self._pods_of(job), key=self._staying)
        ages = sorted(self._ages[key_of(pod)] for pod in pods)
        least = spec.get("minMember") or 0
        is_gang = any(self._enabled.get("gang", {}).get(flag) for flag in ("enableJobReady", "enableJobPipelined"))
        if not is_gang and pods and not any(map(is_placed, pods)):
            least = 0
        base, rest = pods[:least], pods[least:]
        priority = self._class_value(spec.get("priorityClassName"))
        was_let_in = (group.get("status") or {}).get("phase") not in (None, "", "Pending")
        if base or not pods:
            minimum = None if base else spec.get("minResources") or {}
            is_held = any(map(is_placed, base))
            part = Part(f"{job}", job, queue, base, is_held, is_base=True, minimum=minimum, was_let_in=was_let_in)
            part.priority = _priority(base, priority)
            part.is_protected = self._keeps_gangs() or any(map(_is_protected, base))
            part.is_gated = group["metadata"]["name"] in self._rejected()
            part.number = ages[0] if ages else 0
            yield part
        for index, pod in enumerate(rest):
            part = Part(f"{job}-part-{index:03}", job, queue, [pod], is_placed(pod), was_let_in=was_let_in)
            part.priority, part.is_protected = _priority([pod], priority), _is_protected(pod)
            part.is_gated = group["metadata"]["name"] in self._rejected()
            part.number = ages[len(base) + index]
            yield part

    def _pods_of(self, job: str) -> Iterator[Document]:
        for pod in self._case.get("pods") or ():
            is_over = (pod.get("status") or {}).get("phase") in _FINISHED or pod["metadata"].get("deletionTimestamp")
            if limits.job_of(pod) == job and not is_over:
                yield pod

    def _staying(self, pod: Document) -> tuple[bool, bool, bool, int]:
        """Those that are to stay longest come first: what runs, what must not be evicted, what is out of reach anyway,
        and what is more important."""
        own = self._case.get("nodesInShard") or ()
        is_near = (self._case.get("shardingMode") or "none") != "none" and pod["spec"].get("nodeName") in own
        return not is_placed(pod), not _is_protected(pod), is_near, -(pod["spec"].get("priority") or 1)

    def _keeps_gangs(self) -> bool:
        """Whether what a gang needs at least is not for others to take."""
        gang = self._enabled.get("gang", {})
        return bool(gang.get("enablePreemptable") or gang.get("enableReclaimable"))

    def _class_value(self, name: str | None) -> int | None:
        classes = {found["metadata"]["name"]: found for found in self._case.get("priorityClasses") or ()}
        if name in classes:
            return int(classes[name].get("value", 0))
        default = next((found for found in classes.values() if found.get("globalDefault")), None)
        return int(default.get("value", 0)) if default is not None else None

    def _rejected(self) -> frozenset[str]:
        """Groups that another plugin does not let in."""
        plugins = (self._case.get("customPlugins") or {}).values()
        return frozenset(plugin["rejectJob"] for plugin in plugins if "rejectJob" in plugin)

    def _workload(self, part: Part) -> Document:
        namespace, _, name = part.key.partition("/")
        annotations = {names.ADMISSION_GATES_ANNOTATION: "other-plugin"} if part.is_gated else {}
        labels = {PREEMPTABLE: "false"} if part.is_protected else {}
        pod_sets = _pod_sets(part)
        document: Document = {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": part.key,
                "generation": 1,
                "creationTimestamp": timestamps.to_text(Instant(NOW - 1000 if part.was_let_in else NOW)),
                "annotations": annotations,
                "labels": labels,
            },
            "spec": {"podSets": pod_sets, "queueName": quota_name(part.queue), "priority": part.priority},
        }
        if part.is_held:
            document["status"] = self._held(part, pod_sets)
        return document

    def _held(self, part: Part, pod_sets: list[Document]) -> Document:
        queue = self.translation.cluster_queues.get(quota_name(part.queue)) or {"spec": {}}
        groups = queue["spec"].get("resourceGroups") or ()
        covered = {resource for group in groups for resource in group["coveredResources"]}
        assigned = []
        for pods in pod_sets:
            requests = {**asked(pods["template"]["spec"]), "pods": 1}
            usage = {resource: amount for resource, amount in requests.items() if resource in covered}
            flavors = dict.fromkeys(usage, FLAVOR)
            assigned.append({"name": pods["name"], "count": 1, "flavors": flavors, "resourceUsage": all_shown(usage)})
        since = timestamps.to_text(Instant(NOW - 100_000 + part.number))
        reserved = {"type": "QuotaReserved", "status": "True", "reason": "Held", "lastTransitionTime": since}
        admitted = {"type": "Admitted", "status": "True", "reason": "Held", "lastTransitionTime": since}
        return {
            "admission": {"clusterQueue": quota_name(part.queue), "podSetAssignments": assigned},
            "conditions": [{**reserved, "message": ""}, {**admitted, "message": ""}],
        }

    # Deciding

    def _fill(self) -> None:
        engine = self.engine
        engine.flavor_changed(_view(kueue.RESOURCE_FLAVOR, flavor()))
        for document in self.translation.cohorts.values():
            engine.cohort_changed(_view(kueue.COHORT, document))
        for document in self.translation.cluster_queues.values():
            engine.queue_changed(_view(kueue.CLUSTER_QUEUE, self._cluster_queue(document)), NOW)
        for namespace in {part.key.partition("/")[0] for part in self.parts.values()}:
            engine.namespace_changed(_view(core.NAMESPACE, {"metadata": {"name": namespace}}))
            for queue in {part.queue for part in self.parts.values()}:
                engine.local_queue_changed(_view(kueue.LOCAL_QUEUE, local_queue(namespace, queue)), NOW)
        for part in self.parts.values():
            if part.is_held or part.is_base:
                self._tell(part)
        for job in {part.job for part in self.parts.values() if not self._has_waiting_base(part.job)}:
            self._tell_waiting(job)

    def _tell(self, part: Part) -> None:
        self.engine.workload_changed(_view(kueue.WORKLOAD, self._workload(part)), NOW)

    def _tell_waiting(self, job: str) -> None:
        for part in self.parts.values():
            if part.job == job and not part.is_base and not part.is_held:
                self._tell(part)

    def _has_waiting_base(self, job: str) -> bool:
        return any(part.job == job and part.is_base and not part.is_held for part in self.parts.values())

    def decide(self) -> Outcome:
        """Until nothing moves. What further pods want is asked for as soon as the base is admitted."""
        found = Outcome()
        while self.engine.has_work(NOW):
            for decided in self.engine.step(NOW).decisions:
                part = self.parts[decided.info.key]
                if isinstance(decided, Admission):
                    found.admitted.append(part)
                    if part.is_base:
                        self._tell_waiting(part.job)
                elif isinstance(decided, Eviction):
                    found.evicted += self._with_its_parts(part)
        return found

    def _with_its_parts(self, part: Part) -> list[Part]:
        if not part.is_base:
            return [part]
        return [other for other in self.parts.values() if other.job == part.job and (other is part or other.is_held)]

    def remove(self, parts: Iterable[Part]) -> None:
        """They have gone."""
        for part in parts:
            self.engine.workload_removed(part.key)


def _view(kind: Kind, document: Document) -> Any:
    return view_of(kind, without_nulls(document))


def _age(pod: Document) -> tuple[str, str]:
    metadata = pod["metadata"]
    return metadata.get("creationTimestamp") or "", metadata.get("uid") or key_of(pod)


def _priority(pods: list[Document], of_class: int | None) -> int:
    """Of the class that their group names, or their own where that is higher."""
    own = [pod["spec"]["priority"] for pod in pods if pod["spec"].get("priority")]
    return int(max([*own, 1 if of_class is None else of_class]))


def _is_protected(pod: Document) -> bool:
    metadata = pod["metadata"]
    said = (metadata.get("annotations") or {}).get(PREEMPTABLE) or (metadata.get("labels") or {}).get(PREEMPTABLE)
    return bool(said == "false")


def _pod_sets(part: Part) -> list[Document]:
    if part.minimum is not None:
        container = {"name": "all", "resources": {"requests": dict(part.minimum)}}
        return [{"name": "all", "count": 1, "template": {"spec": {"containers": [container]}}}]
    return [
        {"name": f"pod-{index}", "count": 1, "template": {"metadata": {}, "spec": pod["spec"]}}
        for index, pod in enumerate(part.pods)
    ]


def asked(spec: Document) -> dict[str, int]:
    view = _view(core.POD, {"metadata": {"name": "any", "namespace": "any"}, "spec": spec})
    return dict(pod_requests(view.spec))
