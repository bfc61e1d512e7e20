"""Columns the two engines share: nodes, usage, equivalence classes. Pure."""

from muster.cluster.amounts import needs_of
from muster.cluster.arena import Arena
from muster.cluster.columns import PODS, ClusterArrays, NodeMask, NodeTaint

__all__ = ["PODS", "Arena", "ClusterArrays", "NodeMask", "NodeTaint", "needs_of"]
