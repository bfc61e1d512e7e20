"""Topology-aware scheduling: which domains (blocks, racks, hosts) the pods of a workload go to, all decided here.

Pure and columnar: a flavor's domains are rows of a tree over the node columns of a `ClusterState`, in the order of
their level values, so that the children of a domain are a range and ties fall to the lower row.
"""

from muster.quota.topology.assignments import (
    DomainUsage,
    TopologyAssignment,
    from_view,
    merge,
    pod_count,
    to_document,
    truncate,
    usage_of,
)
from muster.quota.topology.flavors import FlavorTopology
from muster.quota.topology.requests import Placed, PlacementRequest
from muster.quota.topology.topologies import Topologies

__all__ = [
    "DomainUsage",
    "FlavorTopology",
    "Placed",
    "PlacementRequest",
    "Topologies",
    "TopologyAssignment",
    "from_view",
    "merge",
    "pod_count",
    "to_document",
    "truncate",
    "usage_of",
]
