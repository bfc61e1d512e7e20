"""Keeps pods off nodes that are about to be serviced, and prefers machines of a newer generation."""

from typing import ClassVar

import numpy as np

from muster.placement.framework import Filter, Reads, Rejection, Score


class Maintenance:
    name: ClassVar[str] = "Maintenance"
    reads: ClassVar[Reads] = Reads.NODES  # what it says of a node does not change when pods come and go

    def __init__(self, args):
        self.window = args.get("window", "tonight")  # `args` in `pluginConfig`: a dictionary

    def filter(self, pod, cluster, state):
        windows = cluster.labelled("example.com/maintenance")  # for each node, the code of its value
        if windows is None or "example.com/short-lived" in pod.labels:
            return ()
        serviced = windows == cluster.value_code(self.window)
        return (Rejection("node(s) are about to be serviced", serviced, is_unresolvable=True),)

    def score(self, pod, cluster, state):
        scores = np.zeros(cluster.width, dtype=np.int64)
        generations = cluster.labelled("example.com/generation")
        if generations is not None:
            known = generations >= 0  # others do not have the label
            scores[known] = cluster.label_numbers()[generations[known]]
        return np.clip(scores, 0, 10) * 10  # 0 to 100


_filter: Filter = Maintenance({})
_score: Score = Maintenance({})
