"""Queues and workloads for the tests of what waits."""

from typing import Any

import msgspec

from muster.api import kueue, timestamps
from muster.api.meta import Instant
from muster.cluster.namespaces import Namespaces
from muster.quota.queueing import PendingQueues
from muster.quota.queues import USAGE_BASED, Queue, read_queue
from muster.quota.settings import Settings
from muster.quota.tree import QuotaTree
from muster.quota.workloads import WorkloadInfo

START = timestamps.parse("2026-11-01T00:00:00Z")
PLAIN = Settings()


def after(seconds: float) -> Instant:
    return Instant(START + seconds)


def text(seconds: float) -> str:
    return timestamps.to_text(after(seconds))


def a_queue(
    name: str = "cq",
    *,
    strict: bool = False,
    by_usage: bool = False,
    cohort: str = "",
    selector: dict[str, str] | None = None,
) -> Queue:
    spec: dict[str, Any] = {
        "cohortName": cohort,
        "queueingStrategy": "StrictFIFO" if strict else "BestEffortFIFO",
        "namespaceSelector": {"matchLabels": selector} if selector else {},
    }
    if by_usage:
        spec["admissionScope"] = {"admissionMode": USAGE_BASED}
    return read_queue(msgspec.convert({"metadata": {"name": name}, "spec": spec}, kueue.ClusterQueue))


def a_local_queue(name: str, to: str, *, stop: str = "None", weight: str = "1") -> kueue.LocalQueue:
    spec = {"clusterQueue": to, "stopPolicy": stop, "fairSharing": {"weight": weight}}
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, kueue.LocalQueue)


def a_workload(
    name: str,
    queue: str = "lq",
    *,
    cpu: str = "1",
    priority: int = 0,
    at: float = 0,
    settings: Settings = PLAIN,
    **more: Any,
) -> WorkloadInfo:
    """`at`: seconds from the start when it was made. `more`: namespace, uid, generation, conditions, status, gates."""
    pods = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    metadata = {
        "name": name,
        "namespace": more.get("namespace", "ns"),
        "uid": more.get("uid", name),
        "creationTimestamp": text(at),
        "generation": more.get("generation", 1),
    }
    spec = {
        "queueName": queue,
        "priority": priority,
        "podSets": [{"name": "main", "count": 1, "template": {"spec": pods}}],
        "preemptionGates": [{"name": gate} for gate in more.get("gates", ())],
    }
    status = {"conditions": more.get("conditions", []), **more.get("status", {})}
    view = msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, kueue.Workload)
    return WorkloadInfo(view, "", settings)


def a_condition(kind: str, status: str = "True", reason: str = "", at: float = 0) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": text(at)}


class World:
    """Queues by name with the cohort of each, local queues by name with where each leads."""

    def __init__(
        self, queues: dict[str, str], local_queues: dict[str, str], *, settings: Settings = PLAIN, **how: Any
    ) -> None:
        self.tree = QuotaTree()
        self.namespaces = Namespaces()
        self.namespaces["ns"] = {"team": "red"}
        self.namespaces["other"] = {"team": "blue"}
        self.pending = PendingQueues(settings, self.tree, self.namespaces)
        for name, cohort in queues.items():
            self.add_queue(a_queue(name, cohort=cohort, **how))
        for name, to in local_queues.items():
            self.pending.set_local_queue(a_local_queue(name, to), START)

    def add_queue(self, policy: Queue) -> None:
        self.tree.set_queue(policy.name, policy.cohort, policy.quotas)
        self.pending.set_queue(policy, START)

    def heads(self) -> list[str]:
        return [info.view.metadata.name for info in self.pending.heads(lambda _name: True)]

    def names(self, queue: str) -> list[str]:
        return [info.view.metadata.name for info in self.pending.listed(queue)]
