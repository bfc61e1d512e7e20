"""muster.dev Allocation: one pod set, `main`, of all its pods.

It runs once: what was evicted after it had begun is over when it has stopped, and does not queue again."""

from collections.abc import Mapping, Sequence
from typing import Final

from muster.api import muster
from muster.api.documents import child, objects, text
from muster.api.kinds import Kind
from muster.api.muster.names import BEGUN, RANK_LABEL, Phase, ResourcePhase
from muster.api.raw import Document
from muster.quota.integrations import injecting, topology
from muster.quota.integrations.contract import JobIntegration, Outcome, PodSetInfo
from muster.quota.integrations.subjects import copied_template

MAIN: Final = "main"


class Allocations:
    @property
    def kind(self) -> Kind:
        return muster.ALLOCATION

    def is_suspended(self, job: Document) -> bool:
        return child(job, "spec").get("suspend") is True

    def pod_sets(self, job: Document) -> list[Document]:
        template = copied_template(child(job, "spec", "template"))
        pods: Document = {"name": MAIN, "template": template, "count": pod_count(job)}
        asked = topology.request(template, index_label=RANK_LABEL)
        if asked is not None:
            pods["topologyRequest"] = asked
        return [pods]

    def outcome(self, job: Document) -> Outcome | None:
        status = child(job, "status")
        if status.get("phase") != Phase.TERMINATED:
            return None
        failed = [resource for resource in objects(status, "resources") if resource.get("exitCode") != 0]
        if not failed:
            return Outcome(True, "all pods ended well")
        first = failed[0]
        code, message = first.get("exitCode"), text(first, "message") or text(first, "reason")
        told = f"pod {text(first, 'name')}: " + (message or f"exit code {code}")
        return Outcome(False, told)

    def is_active(self, job: Document) -> bool:
        status = child(job, "status")
        phase = status.get("phase")
        # Until its controller has seen that it is suspended it may still make pods.
        may_make_more = self.is_suspended(job) and phase not in (None, Phase.QUEUED, Phase.TERMINATED)
        return bool(status.get("active")) or may_make_more

    def pods_ready(self, job: Document) -> bool:
        return (child(job, "status").get("podsReady") or 0) + _ended(job) >= pod_count(job)

    def reclaimable(self, job: Document) -> Mapping[str, int]:
        """No pod of it is ever made anew once it has begun."""
        ended = _ended(job) if child(job, "status").get("phase") in BEGUN else 0
        return {MAIN: ended} if ended else {}

    def start(self, job: Document, infos: Sequence[PodSetInfo]) -> Document:
        spec = {**child(job, "spec"), "suspend": False}
        for info in infos:
            spec["template"] = injecting.inject(child(spec, "template"), info)
        return {**job, "spec": spec}

    def stop(self, job: Document, originals: Sequence[Document]) -> Document:
        spec = {**child(job, "spec"), "suspend": True}
        # What has begun is over when it has stopped: what it was given stays with it.
        if self.is_suspended(job) and not self.is_active(job) and child(job, "status").get("phase") not in BEGUN:
            for original in originals:
                spec["template"] = injecting.restore(child(spec, "template"), child(original, "template"))
        return {**job, "spec": spec}


def pod_count(job: Document) -> int:
    found = child(job, "spec").get("pods")
    return found if isinstance(found, int) else 1


def _ended(job: Document) -> int:
    listed = objects(child(job, "status"), "resources")
    return sum(resource.get("phase") == ResourcePhase.TERMINATED for resource in listed)


_conforms: JobIntegration = Allocations()
