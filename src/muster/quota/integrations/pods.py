"""Plain pods that queue, one by one or in groups that are admitted together.

Nothing makes such a pod anew: to stop it is to delete it. A group is known by the name that its pods carry; its
workload is made when all of them are there, and is kept while some are replaced.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import conditions, core, timestamps
from muster.api.documents import child, objects, text
from muster.api.kueue import names
from muster.api.kueue.roles import role_hash
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import Document
from muster.cluster.state import FINISHED as DONE
from muster.quota.gates import Gate, Gates
from muster.quota.integrations import injecting, topology
from muster.quota.integrations.contract import Outcome, PodSetInfo
from muster.quota.integrations.matching import is_finished, is_reserved
from muster.quota.integrations.subjects import Subject, copied_template, owner_reference

MAIN: Final = "main"
MOST_ROLES: Final = 18
TERMINATION_TARGET: Final = "TerminationTarget"
STOPPED: Final = "StoppedByQuota"


class Unfit(ValueError):
    """The pods do not make a group: they contradict each other, or what they say cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A managed pod as its group sees it."""

    found: Object
    document: Document

    @property
    def name(self) -> str:
        return self.found.key.name

    @property
    def phase(self) -> str:
        return text(child(self.document, "status"), "phase")

    @property
    def is_deleting(self) -> bool:
        return self.found.is_terminating

    @property
    def is_live(self) -> bool:
        """It runs, or will."""
        return self.phase not in DONE and not self.is_deleting

    @property
    def is_held(self) -> bool:
        return any(
            gate.get("name") == names.ADMISSION_GATE for gate in objects(self.document, "spec", "schedulingGates")
        )

    @property
    def is_over(self) -> bool:
        """Nothing of it runs any more, whatever its object still says: its node has let go of it, or it had none."""
        if self.phase in DONE:
            return True
        grace = child(self.document, "metadata").get("deletionGracePeriodSeconds") or 0
        return self.is_deleting and not (grace and child(self.document, "spec").get("nodeName"))

    @property
    def is_stopped(self) -> bool:
        """By quota; not by its user, who does not want it any more."""
        found = conditions.find_in(self.document, TERMINATION_TARGET)
        return found is not None and found.get("reason") == STOPPED

    @property
    def role(self) -> str:
        known = (self.found.meta.annotations or {}).get(names.ROLE_HASH_ANNOTATION)
        return known or role_hash(child(self.document, "spec"))

    @property
    def holds_finalizer(self) -> bool:
        return names.MANAGED in self.found.meta.finalizers

    def is_active(self, now: Instant, gates: Gates) -> bool:
        """It may still use what its node gives it."""
        if self.is_over or not child(self.document, "spec").get("nodeName"):
            return False
        if not self.is_deleting:
            return True
        if Gate.FAST_QUOTA_RELEASE_IN_POD_INTEGRATION in gates:
            return False
        return timestamps.parse(self.found.meta.deletion_timestamp or "") > now


def member(found: Object) -> Member:
    return Member(found, found.document())


def group_of(found: Object) -> str:
    """The name of the group that a pod is in; empty where it is in none."""
    annotations, labels = found.meta.annotations or {}, found.meta.labels or {}
    return annotations.get(names.GROUP_NAME) or labels.get(names.GROUP_NAME, "")


# What they amount to


def of_pod(pod: Member, now: Instant, gates: Gates) -> Subject:
    metadata = child(pod.document, "metadata")
    outcome = None
    if pod.phase in DONE:
        outcome = Outcome(pod.phase == "Succeeded", text(child(pod.document, "status"), "message"))
    is_active = pod.is_active(now, gates)
    return Subject(
        kind=core.POD,
        namespace=pod.found.key.namespace,
        name=pod.name,
        uid=pod.found.uid,
        labels=child(metadata, "labels"),
        annotations=child(metadata, "annotations"),
        owners=(owner_reference(core.POD, metadata),),
        pod_sets=[_pod_set(MAIN, [pod], 1)],
        is_suspended=pod.is_held or not pod.is_live,
        is_active=is_active,
        are_pods_ready=_is_ready(pod),
        outcome=outcome,
        is_deleting=pod.is_deleting and not is_active,
        is_pods=True,
    )


def of_group(
    name: str, members: Sequence[Member], workload: Object | None, now: Instant, gates: Gates
) -> Subject | None:
    """None while pods are missing that its workload cannot be made without. Raises Unfit."""
    ordered = sorted(members, key=lambda pod: (pod.found.meta.creation_timestamp or "", pod.name))
    first = ordered[0]
    total = _total(ordered)
    live = [pod for pod in ordered if pod.is_live]
    succeeded = [pod for pod in ordered if pod.phase == "Succeeded"]
    is_serving = _says(first, names.GROUP_SERVING_ANNOTATION, "true")
    is_active = any(pod.is_active(now, gates) for pod in ordered)
    pod_sets = _group_sets(ordered, total, workload)
    outcome = None if is_serving else _outcome(ordered, total)
    is_gone = _is_abandoned(ordered)
    if pod_sets is None and not is_gone:
        return None
    metadata = child(first.document, "metadata")
    return Subject(
        kind=core.POD,
        namespace=first.found.key.namespace,
        name=name,
        uid=first.found.uid,
        labels=child(metadata, "labels"),
        annotations=child(metadata, "annotations"),
        owners=[owner_reference(core.POD, child(pod.document, "metadata"), is_controller=False) for pod in ordered],
        pod_sets=pod_sets or (),
        is_suspended=all(pod.is_held for pod in live),
        is_active=is_active,
        are_pods_ready=len(succeeded) + sum(_is_ready(pod) for pod in live) >= total,
        outcome=outcome,
        reclaimable={} if is_serving else _by_role(succeeded),
        is_deleting=is_gone,
        is_pods=True,
        workload_name=name,
        workload_annotations={names.IS_GROUP_ANNOTATION: "true"},
        waits_for_pods=len(live) + len(succeeded) < total if workload is not None else None,
        has_held=any(pod.is_held for pod in live),
    )


def _total(members: Sequence[Member]) -> int:
    """How many pods the group is made of. All must agree on that, and on the queue."""
    counts = {(pod.found.meta.annotations or {}).get(names.GROUP_TOTAL_ANNOTATION, "") for pod in members}
    queues = {(pod.found.meta.labels or {}).get(names.QUEUE_LABEL, "") for pod in members}
    if len(counts) > 1:
        raise Unfit(f"the pods of a group must have the same {names.GROUP_TOTAL_ANNOTATION}, found {sorted(counts)}")
    if len(queues) > 1:
        raise Unfit(f"the pods of a group must be in the same queue, found {sorted(queues)}")
    (written,) = counts
    if not (written.isascii() and written.isdigit() and int(written) > 0):
        raise Unfit(f"{names.GROUP_TOTAL_ANNOTATION} must be a positive number, found {written!r}")
    return int(written)


def _group_sets(members: Sequence[Member], total: int, workload: Object | None) -> list[Document] | None:
    """One pod set for each role. A workload that exists has them, while nobody is replaced by something else."""
    live = [pod for pod in members if pod.is_live]
    by_role: dict[str, list[Member]] = {}
    for pod in live:
        by_role.setdefault(pod.role, []).append(pod)
    known = list(objects(workload.document(), "spec", "podSets")) if workload is not None else None
    if workload is not None and known is not None:
        counts = {pods.get("name", ""): pods.get("count") for pods in known}
        is_settled = is_finished(workload) or is_reserved(workload) or len(live) < total
        if is_settled or counts == {role: len(pods) for role, pods in by_role.items()}:
            return known
    if len(by_role) > MOST_ROLES:
        raise Unfit(f"a group may have {MOST_ROLES} roles at most, found {len(by_role)}")
    if len(live) < total:
        if len(by_role) == 1 and _says(live[0], names.GROUP_FAST_ANNOTATION, "true"):
            return [_pod_set(role, pods, total) for role, pods in by_role.items()]
        return known
    kept = live[:total]
    sizes = {role: sum(pod in kept for pod in pods) for role, pods in by_role.items()}
    return [_pod_set(role, by_role[role], sizes[role]) for role in sorted(by_role) if sizes[role]]


def _pod_set(name: str, members: Sequence[Member], count: int) -> Document:
    template = copied_template(members[0].document)
    spec = child(template, "spec")
    for field in ("schedulingGates", "nodeName"):
        spec.pop(field, None)
    made: Document = {"name": name, "template": template, "count": count}
    asked = topology.request(template, index_label=names.GROUP_INDEX_LABEL if name != MAIN else "")
    if asked is not None:
        made["topologyRequest"] = asked
    return made


def _outcome(members: Sequence[Member], total: int) -> Outcome | None:
    succeeded = sum(pod.phase == "Succeeded" for pod in members)
    if succeeded >= total:
        return Outcome(True, f"Pods succeeded: {succeeded}/{total}.")
    failed = sum(pod.phase == "Failed" for pod in members)
    is_final = any(_says(pod, names.RETRIABLE_ANNOTATION, "false") for pod in members)
    if is_final and all(pod.is_over for pod in members):
        return Outcome(False, f"Pods succeeded: {succeeded}/{total}. Pods failed: {failed}/{total}.")
    return None


def _is_abandoned(members: Sequence[Member]) -> bool:
    """Its user has deleted all of it."""
    return all(pod.is_deleting and pod.is_over and not pod.is_stopped for pod in members)


def _by_role(members: Iterable[Member]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for pod in members:
        counts[pod.role] = counts.get(pod.role, 0) + 1
    return counts


def _is_ready(pod: Member) -> bool:
    return conditions.is_true_in(pod.document, "Ready") or pod.phase == "Succeeded"


def _says(pod: Member, annotation: str, value: str) -> bool:
    return (pod.found.meta.annotations or {}).get(annotation) == value


def is_ours(workload: Object) -> bool:
    """Made for a group; not by somebody who happened to choose its name."""
    return (workload.meta.annotations or {}).get(names.IS_GROUP_ANNOTATION) == "true"


# What is done with them


def started(pod: Member, infos: Mapping[str, PodSetInfo]) -> Document | None:
    """The pod without its gate, with what admission gives it; None where it has to wait on. Raises Conflicting."""
    info = infos.get(MAIN) or infos.get(pod.role)
    if info is None or not pod.is_held or not pod.is_live:
        return None
    made = injecting.inject(pod.document, info)
    kept = {names.TOPOLOGY_GATE} & set(info.scheduling_gates)
    ours = {names.ADMISSION_GATE, names.TOPOLOGY_GATE} - kept
    gates = [gate for gate in objects(pod.document, "spec", "schedulingGates") if gate.get("name") not in ours]
    spec = child(made, "spec")
    if gates:
        spec["schedulingGates"] = gates
    else:
        spec.pop("schedulingGates", None)
    return made


def to_stop(members: Iterable[Member]) -> list[Member]:
    """Those that run, or are free to."""
    return [pod for pod in members if pod.is_live and not pod.is_held]


def excess(members: Iterable[Member], pod_sets: Sequence[Document]) -> list[Member]:
    """More than the group has room for: the newest go, and of those first who has not been let go yet."""
    sizes = {pods.get("name", ""): pods.get("count") or 0 for pods in pod_sets}
    by_role: dict[str, list[Member]] = {}
    for pod in members:
        if pod.is_live or pod.phase == "Succeeded":
            by_role.setdefault(pod.role, []).append(pod)
    found: list[Member] = []
    for role, pods in by_role.items():
        if role in sizes and len(pods) > sizes[role]:
            live = [pod for pod in pods if pod.is_live]
            newest = sorted(live, key=lambda pod: pod.found.meta.creation_timestamp or "", reverse=True)
            newest.sort(key=lambda pod: (not pod.is_held, pod.holds_finalizer))
            found += newest[: len(pods) - sizes[role]]
    return found


def to_release(members: Sequence[Member], workload: Object | None, *, is_group: bool) -> list[Member]:
    """Pods that nobody needs to remember: their finalizer goes.

    A group counts those that succeeded until its end; and those that quota stopped keep its place in the queue, until
    others have taken theirs: a workload ends with the last pod that owns it.
    """
    held = [pod for pod in members if pod.holds_finalizer]
    if workload is not None and is_finished(workload):
        return [pod for pod in held if pod.is_over]
    gone = [pod for pod in held if pod.is_deleting and pod.is_over]
    if not is_group or (workload is None and len(gone) == len(held)):
        return gone
    is_abandoned = not any(pod.is_stopped for pod in members) and all(
        pod.is_deleting and pod.is_over for pod in members
    )
    if is_abandoned:
        return gone
    sizes = objects(workload.document(), "spec", "podSets") if workload is not None else ()
    total = sum(pods.get("count") or 0 for pods in sizes)
    is_whole = sum(pod.is_live or pod.phase == "Succeeded" for pod in members) >= total
    return [pod for pod in gone if pod.phase != "Succeeded" and (is_whole or not pod.is_stopped)]
