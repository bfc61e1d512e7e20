"""Volcano's queues in the one quota engine: as ClusterQueues and Cohorts, made from the tree of queues and the nodes.

A queue without children is a ClusterQueue, one with children, and the root, is a Cohort. What a queue deserves is its
nominal quota; up to its capability it borrows, and all but its guarantee it lends. Pure, like all of `quota`.
"""

from muster.quota.volcano_queues import differing
from muster.quota.volcano_queues.reading import OVERCOMMIT_ANNOTATION, node_total
from muster.quota.volcano_queues.writing import Translation, flavor, local_queue, translate

__all__ = ["OVERCOMMIT_ANNOTATION", "Translation", "differing", "flavor", "local_queue", "node_total", "translate"]
