"""batch.volcano.sh Job: a pod set for each task, with as many pods as the job needs; the rest are parts.

The job has no field that suspends it: an annotation holds it back. A user pauses it by the command to abort it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from muster.api import volcano
from muster.api.documents import child, objects, text
from muster.api.kinds import Kind
from muster.api.kueue import names, sizing
from muster.api.raw import JSON, Document
from muster.api.volcano.defaults import DEFAULT_QUEUE
from muster.api.volcano.queue_naming import quota_name
from muster.api.volcano.waiting import SETTLED
from muster.quota.integrations import injecting, topology
from muster.quota.integrations.contract import (
    Elastic,
    JobIntegration,
    NamesPriorityClass,
    NamesQueue,
    Outcome,
    Pausable,
    PodSetInfo,
)
from muster.quota.integrations.subjects import copied_template

TASK_INDEX: Final = "volcano.sh/task-index"
_ENDS: Final[Mapping[str, bool]] = {"Completed": True, "Failed": False, "Terminated": False}
_MAKING: Final = frozenset({"Pending", "Running", "Restarting"})
_PUT_ASIDE: Final = frozenset({"Aborting", "Aborted"})
_RESTART: Final = "Restart"


class VolcanoJobs:
    @property
    def kind(self) -> Kind:
        return volcano.JOB

    def is_suspended(self, job: Document) -> bool:
        return sizing.is_held(child(job, "metadata", "annotations"))

    def pod_sets(self, job: Document) -> list[Document]:
        needed = _needed(job)
        found = []
        for task in objects(job, "spec", "tasks"):
            template = copied_template(child(task, "template"))
            pods: Document = {"name": text(task, "name"), "template": template, "count": needed[text(task, "name")]}
            asked = topology.request(template, index_label=TASK_INDEX)
            if asked is not None:
                pods["topologyRequest"] = asked
            found.append(pods)
        return found

    def outcome(self, job: Document) -> Outcome | None:
        phase = _phase(job)
        if phase not in _ENDS or _live_pods(job):
            return None
        return Outcome(_ENDS[phase], text(child(job, "status", "state"), "message") or f"The job is {phase}")

    def is_active(self, job: Document) -> bool:
        state = child(job, "status", "state")
        # Until its controller has written down that the job has to wait, it may still make pods.
        may_make_more = text(state, "phase") in _MAKING and text(state, "reason") not in SETTLED
        return bool(_live_pods(job)) or may_make_more

    def pods_ready(self, job: Document) -> bool:
        return _phase(job) == "Running" or _phase(job) in _ENDS

    def reclaimable(self, job: Document) -> Mapping[str, int]:
        """None of a job that may be begun again by its own policies: then all of its pods run again."""
        if any(text(policy, "action").startswith(_RESTART) for policy in _policies(job)):
            return {}
        counted = child(job, "status", "taskStatusCount")
        return {
            text(task, "name"): done
            for task in objects(job, "spec", "tasks")
            if (done := _number(child(counted, text(task, "name"), "phase").get("Succeeded")))
        }

    def start(self, job: Document, infos: Sequence[PodSetInfo]) -> Document:
        given = {info.name: info for info in infos}
        templates = {
            text(task, "name"): injecting.inject(child(task, "template"), given[text(task, "name")])
            for task in objects(job, "spec", "tasks")
            if text(task, "name") in given
        }
        return _annotated(_with_templates(job, templates), {names.HELD_ANNOTATION: None})

    def stop(self, job: Document, originals: Sequence[Document]) -> Document:
        """At once, whatever still runs of it: pods are not made from a template again once it is held back."""
        given = {text(original, "name"): child(original, "template") for original in originals}
        templates = {
            text(task, "name"): injecting.restore(child(task, "template"), given[text(task, "name")])
            for task in objects(job, "spec", "tasks")
            if text(task, "name") in given
        }
        changes = {names.HELD_ANNOTATION: "true", names.ADMITTED_REPLICAS_ANNOTATION: None}
        return _annotated(_with_templates(job, templates), changes)

    def priority_class(self, job: Document) -> str:
        return text(child(job, "spec"), "priorityClassName")

    def queue(self, job: Document) -> str:
        label = text(child(job, "metadata", "labels"), names.QUEUE_LABEL)
        return label or quota_name(text(child(job, "spec"), "queue") or DEFAULT_QUEUE)

    def is_paused(self, job: Document) -> bool:
        return _phase(job) in _PUT_ASIDE

    # Its size

    def parts(self, job: Document) -> Mapping[str, int]:
        needed = _needed(job)
        return {task.name: task.replicas - needed[task.name] for task in _tasks(job)}

    def sizes(self, job: Document) -> Mapping[str, int] | None:
        return sizing.read_sizes(child(job, "metadata", "annotations"))

    def live(self, job: Document) -> Mapping[str, int]:
        """What terminates is not told apart by task: it counts for each."""
        status = child(job, "status")
        told = child(job, "metadata", "annotations").get(names.ADMITTED_REPLICAS_ANNOTATION)
        answer = child(status, "controlledResources").get(names.ADMITTED_REPLICAS_ANNOTATION)
        known = sizing.parse_sizes(answer if isinstance(answer, str) else None)
        may_have = {} if answer == told else {task.name: task.replicas for task in _tasks(job)} | dict(known or {})
        found = {}
        for task in _tasks(job):
            phases = child(status, "taskStatusCount", task.name, "phase")
            live = sum(_number(count) for phase, count in phases.items() if phase not in ("Succeeded", "Failed"))
            found[task.name] = max(live + _number(status.get("terminating")), may_have.get(task.name, 0))
        return found

    def resize(self, job: Document, counts: Mapping[str, int]) -> Document:
        return _annotated(job, {names.ADMITTED_REPLICAS_ANNOTATION: sizing.sizes_text(counts)})


def _phase(job: Document) -> str:
    return text(child(job, "status", "state"), "phase")


def _live_pods(job: Document) -> int:
    status = child(job, "status")
    return sum(_number(status.get(field)) for field in ("pending", "running", "unknown", "terminating"))


def _policies(job: Document) -> Iterator[Document]:
    yield from objects(job, "spec", "policies")
    for task in objects(job, "spec", "tasks"):
        yield from objects(task, "policies")


# How few pods will do


class _Task(NamedTuple):
    name: str
    replicas: int
    least: int
    """Of its own pods, as far as it says so."""
    waits_for: Sequence[str]


def _tasks(job: Document) -> list[_Task]:
    found = []
    for task in objects(job, "spec", "tasks"):
        replicas, least = _number(task.get("replicas")), task.get("minAvailable")
        waits_for = child(task, "dependsOn").get("name")
        found.append(
            _Task(
                text(task, "name"),
                replicas,
                min(replicas, replicas if least is None else _number(least)),
                [name for name in waits_for if isinstance(name, str)] if isinstance(waits_for, list) else [],
            )
        )
    return found


def _needed(job: Document) -> dict[str, int]:
    """By task: each task's own minimum, if those together do not ask for more than the job does, and then as many more
    as the job needs, of those tasks first that others wait for. All of them where a place in a topology is asked for,
    since that is found for all at once."""
    tasks = _tasks(job)
    if any(topology.is_placed_together(child(task, "template")) for task in objects(job, "spec", "tasks")):
        return {task.name: task.replicas for task in tasks}
    wanted = max(1, _number(child(job, "spec").get("minAvailable")))
    has_room = wanted >= sum(task.least for task in tasks)
    needed = {task.name: task.least if has_room else 0 for task in tasks}
    left = wanted - sum(needed.values())
    for task in _in_order(tasks):
        more = max(0, min(left, task.replicas - needed[task.name]))
        needed[task.name] += more
        left -= more
    return needed


def _in_order(tasks: Sequence[_Task]) -> Iterator[_Task]:
    """Those first that others wait for; else as listed."""
    by_name = {task.name: task for task in tasks}
    seen: set[str] = set()

    def visit(names: Iterable[str]) -> Iterator[_Task]:
        for name in names:
            if name in by_name and name not in seen:
                seen.add(name)
                yield from visit(by_name[name].waits_for)
                yield by_name[name]

    return visit(by_name)


def _number(value: JSON) -> int:
    return value if isinstance(value, int) else 0


# What is written


def _with_templates(job: Document, templates: Mapping[str, Document]) -> Document:
    tasks = [
        {**task, "template": templates[text(task, "name")]} if text(task, "name") in templates else task
        for task in objects(job, "spec", "tasks")
    ]
    return {**job, "spec": {**child(job, "spec"), "tasks": tasks}}


def _annotated(job: Document, changes: Mapping[str, str | None]) -> Document:
    """None: without it."""
    metadata = child(job, "metadata")
    annotations = {**child(metadata, "annotations"), **changes}
    kept = {name: value for name, value in annotations.items() if value is not None}
    return {**job, "metadata": {**metadata, "annotations": kept}}


_conforms: JobIntegration = VolcanoJobs()
_names_class: NamesPriorityClass = VolcanoJobs()
_names_queue: NamesQueue = VolcanoJobs()
_pauses: Pausable = VolcanoJobs()
_is_elastic: Elastic = VolcanoJobs()
