"""From a case's nodes, pod sets and domains to our topology, and from our answers to what a case expects."""

from typing import Any

import msgspec
import numpy as np

from muster.api import core, kueue
from muster.api.kueue.topology_assignments import Domain
from muster.api.meta import ObjectMeta
from muster.cluster.state import ClusterState
from muster.quota.gates import Gates
from muster.quota.topology import (
    DomainUsage,
    FlavorTopology,
    PlacementRequest,
    Topologies,
    TopologyAssignment,
    from_view,
)
from muster.quota.topology.counting import LevelCounts
from muster.quota.topology.requests import Layer, Shape
from muster.quota.topology.tree import Tree
from tests.conformance.adapters.kube.building import assign, without_nulls
from tests.conformance.cases import Case

HOSTNAME = "kubernetes.io/hostname"
FLAVOR, OTHER = "default", "other"


def gates_of(case: Case) -> Gates:
    return Gates.default().changed(case["scenarios"][case["defaultScenario"]]["effectiveOverrides"])


def cluster_of(inputs: dict[str, Any], *, all_ready: bool = False) -> ClusterState:
    """`all_ready`: the test hands its nodes over without asking whether they are ready."""
    state = ClusterState()
    for document in inputs.get("nodes") or ():
        if all_ready:
            document["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        state.node_changed(msgspec.convert(without_nulls(document), core.Node))
    for number, document in enumerate(inputs.get("pods") or ()):
        is_over = (document.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if document["spec"].get("nodeName") and not is_over:
            assign(state, document, number=number)
    return state


def topologies_of(inputs: dict[str, Any], gates: Gates, cluster: ClusterState) -> Topologies:
    """The flavor that is asked, and another one over the same nodes."""
    levels = tuple(kueue.TopologyLevel(level) for level in inputs["levels"])
    topology = kueue.Topology(
        metadata=ObjectMeta(name=inputs.get("topologyName") or "default"), spec=kueue.TopologySpec(levels)
    )
    found = Topologies(cluster, gates)
    for name in (FLAVOR, OTHER):
        document = {"metadata": {"name": name}, "spec": {"nodeLabels": inputs.get("nodeLabels") or {}}}
        found.set_flavor(msgspec.convert(document, kueue.ResourceFlavor), topology)
    return found


def flavor_of(inputs: dict[str, Any], gates: Gates | None = None, *, all_ready: bool = False) -> FlavorTopology:
    topologies = topologies_of(inputs, gates or Gates.default(), cluster_of(inputs, all_ready=all_ready))
    flavor = topologies.flavor(FLAVOR)
    assert flavor is not None
    return flavor


def usage_of(listed: list[dict[str, Any]] | None) -> list[DomainUsage]:
    return [DomainUsage(tuple(one["values"]), one["singlePodRequests"], one["count"]) for one in listed or ()]


def topology_request(document: dict[str, Any] | None) -> kueue.PodSetTopologyRequest | None:
    return None if document is None else msgspec.convert(without_nulls(document), kueue.PodSetTopologyRequest)


def placement_request(pod_set: dict[str, Any]) -> PlacementRequest:
    affinity, previous = pod_set.get("nodeAffinity"), pod_set.get("previousAssignment")
    return PlacementRequest(
        name=pod_set.get("podSetName") or "",
        count=pod_set.get("count") or 0,
        requests=pod_set.get("requests") or pod_set.get("singlePodRequests") or {},
        topology=topology_request(pod_set.get("topologyRequest")),
        tolerations=tuple(
            msgspec.convert(without_nulls(one), core.Toleration) for one in pod_set.get("tolerations") or ()
        ),
        node_selector=pod_set.get("nodeSelector"),
        affinity=None if affinity is None else msgspec.convert(without_nulls(affinity), core.NodeAffinity),
        group=pod_set.get("podSetGroupName"),
        previous=None if previous is None else from_view(msgspec.convert(previous, kueue.TopologyAssignment)),
    )


def assignment(document: dict[str, Any]) -> TopologyAssignment:
    """From the internal form."""
    domains = tuple(Domain(tuple(one["values"]), one["count"]) for one in document.get("domains") or ())
    return TopologyAssignment(tuple(document.get("levels") or ()), domains)


def written(found: TopologyAssignment | None) -> dict[str, Any] | None:
    """To the internal form."""
    if found is None:
        return None
    domains = [{"values": list(domain.values), "count": domain.pods} for domain in found.domains]
    return {"levels": list(found.levels), "domains": domains}


# Domains with counts


def counts_of(states: list[dict[str, Any]], *, is_led: bool, prefers: bool = False) -> LevelCounts:
    """Columns of a test's domains, which are in the order of their level values."""
    columns = {key: np.array([state.get(key, 0) for state in states], dtype=np.int64) for key in _STATE}
    return LevelCounts(
        pods=columns["podCount"],
        slices=columns["sliceCount"],
        pods_led=columns["podCountWithLeader" if is_led else "podCount"],
        slices_led=columns["sliceCountWithLeader" if is_led else "sliceCount"],
        leaders=columns["leaderCount"] if is_led else None,
        affinity=columns["affinityScore"] if prefers else None,
    )


_STATE = ("podCount", "sliceCount", "podCountWithLeader", "sliceCountWithLeader", "leaderCount", "affinityScore")


def by_values(domains: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order in which a tree has them."""
    return sorted(domains, key=lambda one: (one.get("domain") or one)["levelValues"] or [])


def small_tree(children: list[int]) -> Tree:
    """Roots with so many leaves each; without any, the roots are the leaves."""
    starts = np.append(0, np.cumsum(children))
    nothing = np.zeros(0, dtype=np.intp)
    if not starts[-1]:
        return Tree(("root",), (), (np.arange(len(children) + 1),), (), {}, nothing, nothing)
    return Tree(("root", "leaf"), (starts,), (starts, np.arange(starts[-1] + 1)), (), {}, nothing, nothing)


def shape_of(parameters: dict[str, Any]) -> Shape:
    sizes = {int(level): size for level, size in (parameters.get("sliceSizeAtLevel") or {}).items()}
    return Shape(
        level=parameters["requestedLevelIdx"],
        is_required=parameters["required"],
        is_unconstrained=parameters["unconstrained"],
        slice_level=parameters["sliceLevelIdx"],
        slice_size=parameters["sliceSize"],
        inner=tuple(Layer(level, sizes[level]) for level in sorted(sizes)),
    )
