"""PodTopologySpread: pods that are alike lie evenly over the domains of a topology."""

from muster.placement.plugins.topology_spread.args import PodTopologySpreadArgs
from muster.placement.plugins.topology_spread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread", "PodTopologySpreadArgs"]
