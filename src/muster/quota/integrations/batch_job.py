"""batch/v1 Job: one pod set, `main`, of as many pods as may run at a time."""

from collections.abc import Mapping, Sequence
from typing import Final

from muster.api import batch, conditions
from muster.api.batch.names import COMPLETION_INDEX
from muster.api.documents import child
from muster.api.kinds import Kind
from muster.api.kueue import names
from muster.api.raw import Document
from muster.quota.integrations import injecting, topology
from muster.quota.integrations.contract import JobIntegration, Outcome, PodSetInfo
from muster.quota.integrations.subjects import copied_template

MAIN: Final = "main"


class BatchJobs:
    @property
    def kind(self) -> Kind:
        return batch.JOB

    def is_suspended(self, job: Document) -> bool:
        return child(job, "spec").get("suspend") is True

    def pod_sets(self, job: Document) -> list[Document]:
        template = copied_template(child(job, "spec", "template"))
        count = pod_count(job)
        pods: Document = {"name": MAIN, "template": template, "count": count}
        least = _number(child(job, "metadata", "annotations").get(names.MIN_PARALLELISM_ANNOTATION))
        if 0 < least < count:
            pods["minCount"] = least
        asked = topology.request(template, index_label=COMPLETION_INDEX)
        if asked is not None:
            pods["topologyRequest"] = asked
        return [pods]

    def outcome(self, job: Document) -> Outcome | None:
        for type, succeeded in (("Complete", True), ("Failed", False)):
            found = conditions.find_in(job, type)
            if found is not None and found.get("status") == conditions.TRUE:
                return Outcome(succeeded, str(found.get("message") or ""))
        return None

    def is_active(self, job: Document) -> bool:
        status = child(job, "status")
        # The job's controller takes the start time back once it has seen that the job is suspended: before that it may
        # still make pods, or have made some that are not counted yet.
        may_make_more = self.is_suspended(job) and status.get("startTime") is not None
        return bool(status.get("active") or status.get("terminating") or may_make_more)

    def pods_ready(self, job: Document) -> bool:
        status = child(job, "status")
        return (status.get("succeeded") or 0) + (status.get("ready") or 0) >= pod_count(job)

    def reclaimable(self, job: Document) -> Mapping[str, int]:
        spec, status = child(job, "spec"), child(job, "status")
        count, done = pod_count(job), _done(status, spec)
        if _or_one(spec.get("parallelism")) <= 1 or not done:
            return {}
        completions = spec.get("completions")
        remaining = max(0, (count if completions is None else completions) - done)
        return {MAIN: count - remaining} if remaining < count else {}

    def start(self, job: Document, infos: Sequence[PodSetInfo]) -> Document:
        spec = {**child(job, "spec"), "suspend": False}
        for info in infos:
            spec["template"] = injecting.inject(child(spec, "template"), info)
            if names.MIN_PARALLELISM_ANNOTATION in child(job, "metadata", "annotations"):
                spec |= _sized(job, info.count)
        return {**job, "spec": spec}

    def stop(self, job: Document, originals: Sequence[Document]) -> Document:
        spec = {**child(job, "spec"), "suspend": True}
        if self.is_suspended(job) and not self.is_active(job):  # only then may its template change
            for original in originals:
                spec["template"] = injecting.restore(child(spec, "template"), child(original, "template"))
                spec["template"] = _generated_kept(child(job, "spec", "template"), spec["template"])
                if names.MIN_PARALLELISM_ANNOTATION in child(job, "metadata", "annotations"):
                    spec |= _sized(job, original.get("count") or 0)
        return {**job, "spec": spec}


def pod_count(job: Document) -> int:
    spec = child(job, "spec")
    parallelism, completions = _or_one(spec.get("parallelism")), spec.get("completions")
    return parallelism if completions is None else min(parallelism, completions)


def _sized(job: Document, count: int) -> Document:
    """So many pods at a time; and in all, where the job wants the two to be equal."""
    sized: Document = {"parallelism": count}
    if child(job, "metadata", "annotations").get(names.EQUAL_COMPLETIONS_ANNOTATION) == "true":
        sized["completions"] = count
    return sized


def _done(status: Document, spec: Document) -> int:
    """Pods, or indexes, that will not run again."""
    if spec.get("completionMode") != "Indexed":
        return status.get("succeeded") or 0
    below = spec.get("completions") or 0
    return len(_indexes(status.get("completedIndexes"), below) | _indexes(status.get("failedIndexes"), below))


def _indexes(written: object, below: int) -> set[int]:
    """`1,3-5` as a set."""
    found: set[int] = set()
    for part in written.split(",") if isinstance(written, str) else ():
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found.update(range(int(first), min(int(last or first) + 1, below)))
    return found


def _generated_kept(template: Document, restored: Document) -> Document:
    """Labels that the platform gives to every job stay: the workload may have been made before it did."""
    labels = child(template, "metadata", "labels")
    generated = {name: labels[name] for name in batch.names.GENERATED_LABELS if name in labels}
    metadata = child(restored, "metadata")
    return {**restored, "metadata": {**metadata, "labels": {**child(metadata, "labels"), **generated}}}


def _or_one(value: int | None) -> int:
    return 1 if value is None else value


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0


_conforms: JobIntegration = BatchJobs()
