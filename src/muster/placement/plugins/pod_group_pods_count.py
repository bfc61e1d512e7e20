"""PodGroupPodsCount: of the placements of a group, rather the one where more of its pods run."""

from collections.abc import Sequence
from typing import ClassVar

from muster.cluster.groups import Group, PodGroups
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    MAX_SCORE,
    SUCCESS,
    Code,
    NormalizePlacements,
    Placement,
    PlacementScore,
    Status,
)


class PodGroupPodsCount:
    name: ClassVar[str] = "PodGroupPodsCount"

    def __init__(self, groups: PodGroups) -> None:
        self._groups = groups

    def score_placement(
        self,
        group: Group,
        cluster: ClusterState,
        placement: Placement,
        proposed: Sequence[tuple[PodInfo, str]],
    ) -> int:
        """Pods that have nodes already count too: so one pod more is a small step between large groups."""
        return self._groups.scheduled_count(group.key) + len(proposed)

    def normalize_placements(self, scores: Sequence[int]) -> tuple[Status, Sequence[int]]:
        most = max(scores, default=0)
        if most == 0:
            why = "no pods from pod group are assigned to any of the candidate placements"
            return Status(Code.ERROR, (why,)), ()
        return SUCCESS, [score * MAX_SCORE // most for score in scores]


_scores: PlacementScore = PodGroupPodsCount(PodGroups())
_normalizes: NormalizePlacements = PodGroupPodsCount(PodGroups())
