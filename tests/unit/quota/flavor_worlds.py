"""Queues, flavors, nodes and workloads for the tests of flavor assignment."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from muster.api import core, kueue
from muster.quota.amounts import FlavorResource
from muster.quota.assignments import Assignment
from muster.quota.flavors import FlavorAssigner, Pins, Possibility
from muster.quota.gates import Gates
from muster.quota.settings import FairSharing, Settings
from muster.quota.state import QueueState, QuotaState
from muster.quota.workloads import WorkloadInfo

HOSTNAME = "kubernetes.io/hostname"


def settings(*, sharing: bool = False, ignores_undeclared: bool = False, **gates: bool) -> Settings:
    return Settings(
        gates=Gates.default().changed(gates),
        fair_sharing=FairSharing() if sharing else None,
        ignores_undeclared=ignores_undeclared,
    )


class AskedOracle:
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self, answers: Mapping[FlavorResource, tuple[Possibility, int]] | None = None) -> None:
        self.answers = answers or {}
        self.asked: list[tuple[FlavorResource, int]] = []

    def simulate(
        self, queue: QueueState, info: WorkloadInfo, what: FlavorResource, amount: int
    ) -> tuple[Possibility, int]:
        self.asked.append((what, amount))
        return self.answers.get(what, (Possibility.NO_CANDIDATES, 0))


class World:
    """A state that is built up in a test, and one oracle."""

    def __init__(self, chosen: Settings | None = None) -> None:
        self.settings = chosen or Settings()
        self.state = QuotaState(self.settings)
        self.oracle = AskedOracle()

    def flavor(self, name: str, **spec: Any) -> None:
        self.state.set_flavor(msgspec.convert({"metadata": {"name": name}, "spec": spec}, kueue.ResourceFlavor))

    def hosts(self, flavor: str, **cpus: int) -> None:
        """A flavor with a topology of hosts, and so many cpus on each of them."""
        topology = {"metadata": {"name": f"{flavor}-hosts"}, "spec": {"levels": [{"nodeLabel": HOSTNAME}]}}
        self.state.set_topology(msgspec.convert(topology, kueue.Topology))
        self.flavor(flavor, topologyName=f"{flavor}-hosts", nodeLabels={"pool": "p"})
        for host, cpu in cpus.items():
            document = {
                "metadata": {"name": host, "labels": {HOSTNAME: host, "pool": "p"}},
                "status": {
                    "allocatable": {"cpu": str(cpu), "pods": "100"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
            self.state.cluster.node_changed(msgspec.convert(document, core.Node))

    def queue(self, name: str, *groups: Mapping[str, Mapping[str, Any]], **spec: Any) -> QueueState:
        """A group: by flavor, by resource, the nominal quota or the whole of the quota."""
        document = {
            "metadata": {"name": name},
            "spec": {"resourceGroups": [_group(group) for group in groups], **spec},
        }
        for group in groups:
            for flavor in group:
                if flavor not in self.state.flavors:
                    self.flavor(flavor)
        self.state.set_queue(msgspec.convert(document, kueue.ClusterQueue))
        self.state.settle()
        return self.state.queues[name]

    def check(self, name: str, controller: str) -> None:
        document = {"metadata": {"name": name}, "spec": {"controllerName": controller}}
        self.state.checks[name] = msgspec.convert(document, kueue.AdmissionCheck)

    def workload(self, *pod_sets: Mapping[str, Any], queue: str = "cq", **more: Any) -> WorkloadInfo:
        document = {
            "metadata": {"name": "wl", "namespace": "ns", "annotations": more.pop("annotations", {})},
            "spec": {"podSets": list(pod_sets)},
            "status": more,
        }
        return WorkloadInfo(msgspec.convert(document, kueue.Workload), queue, self.settings)

    def assign(
        self,
        info: WorkloadInfo,
        *,
        counts: Sequence[int] | None = None,
        replaced: WorkloadInfo | None = None,
        pinned: Pins | None = None,
        cycle: int = 0,
    ) -> Assignment:
        queue = self.state.queues[info.queue]
        assigner = FlavorAssigner(self.state, self.oracle)
        return assigner.assign(info, queue, counts=counts, replaced=replaced, pinned=pinned, cycle=cycle)

    def use(self, queue: str, flavor: str, resource: str, amount: int) -> None:
        self.state.queues[queue].node.add(FlavorResource(flavor, resource), amount)


def _group(flavors: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    covered = list(next(iter(flavors.values())))
    return {
        "coveredResources": covered,
        "flavors": [
            {
                "name": name,
                "resources": [
                    {"name": resource, **(quota if isinstance(quota, dict) else {"nominalQuota": str(quota)})}
                    for resource, quota in quotas.items()
                ],
            }
            for name, quotas in flavors.items()
        ],
    }


def pods(
    name: str = "main",
    count: int = 1,
    *,
    topology: Mapping[str, Any] | None = None,
    least: int | None = None,
    **ask: Any,
) -> dict[str, Any]:
    """A pod set. What is not a request for a resource goes into the pod's spec."""
    spec = {key: ask.pop(key) for key in ("nodeSelector", "affinity", "tolerations") if key in ask}
    requests = {resource.replace("_", "-"): str(amount) for resource, amount in ask.items()}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    made: dict[str, Any] = {"name": name, "count": count, "template": {"spec": {"containers": containers, **spec}}}
    if topology is not None:
        made["topologyRequest"] = topology
    if least is not None:
        made["minCount"] = least
    return made


RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}


def admission(*given: Mapping[str, Any], queue: str = "cq") -> dict[str, Any]:
    """The status of a workload that holds quota."""
    return {"admission": {"clusterQueue": queue, "podSetAssignments": list(given)}, "conditions": [RESERVED]}
