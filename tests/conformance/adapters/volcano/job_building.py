"""Jobs, pods and what the controller knows of them, from the rows of Volcano's job tests."""

from typing import Any, TypeVar

import msgspec

from muster.api import core, timestamps, volcano
from muster.api.meta import Instant, View
from muster.api.volcano import durations
from muster.jobs.volcano import Seen, members, names
from muster.jobs.volcano.members import Known
from tests.conformance.adapters.kube.building import view, without_nulls

NOW = Instant(1_767_225_600.0)


def settled(value: Any) -> Any:
    """The value with its times said: those relative to now, and years that Go writes short."""
    if isinstance(value, dict):
        if "$relativeToNow" in value:
            return timestamps.to_text(Instant(NOW + durations.parse(value["$relativeToNow"])))
        return {key: settled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [settled(item) for item in value]
    if isinstance(value, str) and value.startswith("1-01-01T"):
        return f"000{value}"
    return value


P = TypeVar("P", bound=View)


def part(document: Any, of: type[P]) -> P:
    """A typed view of what is less than a whole object."""
    return msgspec.convert(without_nulls(settled(document)), of)


def a_job(document: Any) -> volcano.Job:
    found: volcano.Job = view(settled(document or {}), volcano.Job)
    return found


def a_group(document: Any) -> volcano.PodGroup:
    found: volcano.PodGroup = view(settled(document), volcano.PodGroup)
    return found


def a_pod(document: Any, job: str, task: str, name: str = "", partition: str = "") -> core.Pod:
    """With the annotations by which the controller files it, which the rows state by where they put it."""
    found = without_nulls(settled(document))
    meta = found.setdefault("metadata", {})
    meta["name"] = name or meta.get("name", "")
    said = meta["annotations"] = dict(meta.get("annotations") or {})
    for key, value in ((names.JOB, job), (names.TASK, task), (names.JOB_VERSION, "0")):
        said.setdefault(key, value)
    if partition:
        meta["labels"] = {**(meta.get("labels") or {}), names.PARTITION: partition}
    meta.pop("resourceVersion", None)
    pod: core.Pod = view(found)
    return pod


def pods_of(info: dict[str, Any], job: str) -> list[core.Pod]:
    """Of a JobInfo: its pods by task, and which of them are in which partition."""
    partitions = {
        (task, pod): number
        for task, found in (info.get("Partitions") or {}).items()
        for number, pods in (found.get("Partition") or {}).items()
        for pod in pods
    }
    return [
        a_pod(document, job, task, name, partitions.get((task, name), ""))
        for task, pods in (info.get("Pods") or {}).items()
        for name, document in pods.items()
    ]


def seen_of(info: dict[str, Any], job: Any = None, group: Any = None) -> Seen:
    found = a_job(job if job is not None else info.get("Job"))
    pods = pods_of(info, found.metadata.name)
    return Seen(found, pods, a_group(group) if group is not None else None)


def known_of(seen: Seen) -> Known:
    return members.by_task(members.read(pod) for pod in seen.pods)
