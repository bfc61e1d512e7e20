"""What plugins say of a gang as a whole: where it may be tried, whether enough of it has a place, which place is best.

Asked are only plugins that a profile has beyond Muster's own: what those say follows from how every gang is placed
(`gangs`), and costs less there. One that raises, or answers what makes no sense, is `GroupPluginFailed`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from typing import Self

import numpy as np

from muster.cluster.groups import Group, Members, task_of
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    MAX_SCORE,
    Code,
    NormalizePlacements,
    Placement,
    PlacementFeasible,
    PlacementGenerate,
    Progress,
    Status,
)
from muster.placement.profiles import Profile, WeightedPlacements, name_of

BUILT_IN = frozenset({"TopologyPlacementGenerator", "GangScheduling", "PodGroupPodsCount", "NodeResourcesFit"})
"""What these say of groups is known without asking: domains of the topology that a group asks for, the tightest first;
and its minimums. They score only where the configuration names them at `placementScore`."""
ALL_NODES = "all nodes"
_MOST_PLACEMENTS = 4096


class GroupPluginFailed(Exception):
    def __init__(self, plugin: str, error: str) -> None:
        super().__init__(f'running plugin "{plugin}": {error}')
        self.plugin = plugin
        self.error = error


@dataclass(frozen=True, slots=True)
class Objection:
    """A plugin's, to where the gang was to go, or to its going anywhere."""

    plugin: str
    reasons: tuple[str, ...]
    code: Code
    is_before: bool = False
    """It has no placement for the gang: nothing was tried."""

    def __str__(self) -> str:
        return f"{self.plugin}: {', '.join(self.reasons) or self.code}"


@dataclass(frozen=True, slots=True)
class Held:
    """A placement that holds the gang."""

    nodes: Mapping[PodInfo, str]
    scores: Sequence[int]
    """By scorer, as it gave them."""


class GroupPlugins:
    def __init__(
        self,
        generators: Sequence[PlacementGenerate],
        judges: Sequence[PlacementFeasible],
        scorers: Sequence[WeightedPlacements],
    ) -> None:
        self.generators = generators
        self.scorers = scorers
        self._judges = judges
        self.names = frozenset(name_of(plugin) for plugin in (*generators, *judges))
        """Of those that may object."""

    @classmethod
    def of(cls, profile: Profile) -> Self | None:
        """Those of the profile that are to be asked; None where there are none."""
        found = cls(
            [plugin for plugin in profile.placement_generate if name_of(plugin) not in BUILT_IN],
            [plugin for plugin in profile.placement_feasible if name_of(plugin) not in BUILT_IN],
            [one for one in profile.placement_score if name_of(one.plugin) not in BUILT_IN - profile.scores_groups],
        )
        return found if found.generators or found.scorers or found._judges else None

    # Where

    def generate(self, group: Group, cluster: ClusterState, root: Placement) -> Sequence[Placement] | Objection:
        """The placements that are left when each generator has split those of the one before it. A placement has no
        nodes but its parent's."""
        placements: Sequence[Placement] = [root]
        for plugin in self.generators:
            with _named(plugin):
                found = _split(plugin, group, cluster, placements)
            if isinstance(found, Objection):
                return found
            placements = found
        return placements

    # Whether

    def watch(self, group: Group, there: Members, members: Sequence[PodInfo]) -> "Watch":
        return Watch(self._judges, group, there, members)

    # Which

    def rate(
        self, group: Group, cluster: ClusterState, placement: Placement, nodes: Mapping[PodInfo, str]
    ) -> Sequence[int]:
        """By scorer. `cluster`: with the members there."""
        proposed, scores = list(nodes.items()), []
        for one in self.scorers:
            with _named(one.plugin):
                scores.append(index(one.plugin.score_placement(group, cluster, placement, proposed)))
        return scores

    def best(self, held: Sequence[Held]) -> Held:
        """The first of those that have the largest sum of scores by weights."""
        if len(held) == 1:
            return held[0]
        totals = [0] * len(held)
        for number, one in enumerate(self.scorers):
            with _named(one.plugin):
                scores = _normalized(one, [found.scores[number] for found in held])
            totals = [total + score * one.weight for total, score in zip(totals, scores, strict=True)]
        return held[totals.index(max(totals))]


class Watch:
    """Asks, while a placement is filled, whether to go on, and in the end whether it is enough."""

    def __init__(
        self, judges: Sequence[PlacementFeasible], group: Group, there: Members, members: Sequence[PodInfo]
    ) -> None:
        self._judges, self._group = judges, group
        self._scheduled = there.scheduled_count
        self._open = {pod.uid: pod for pod in members}
        self._tasks = self._count_tasks(group, there, members)
        self.objection: Objection | None = None
        """What ends it."""

    @staticmethod
    def _count_tasks(group: Group, there: Members, members: Sequence[PodInfo]) -> dict[str, tuple[int, int]] | None:
        if not group.tasks_with_minimum:
            return None
        tasks = {task: (count, 0) for task, count in there.tasks_scheduled.items()}
        for pod in members:
            scheduled, remaining = tasks.get(task_of(pod), (0, 0))
            tasks[task_of(pod)] = (scheduled, remaining + 1)
        return tasks

    def tried(self, pod: PodInfo, is_placed: bool, is_over: bool = True) -> None:
        """`is_over`: it will not be tried again in this placement."""
        remaining = -1 if (is_placed or is_over) and self._open.pop(pod.uid, None) is not None else 0
        self._scheduled += is_placed
        if self._tasks is not None:
            before = self._tasks[task_of(pod)]
            self._tasks[task_of(pod)] = (before[0] + is_placed, before[1] + remaining)

    def goes_on(self) -> bool:
        """Whether there is any use in trying the next member."""
        found = self._ask()
        if found is not None and found.code is not Code.WAIT:
            self.objection = found
        return self.objection is None

    def conclude(self) -> Objection | None:
        """None where what has been placed is enough."""
        for pod in list(self._open.values()):
            self.tried(pod, is_placed=False)
        return self.objection or self._ask()

    def _ask(self) -> Objection | None:
        """The first rejection; where there is none, whoever says that it is not enough yet."""
        waiting: Objection | None = None
        for plugin in self._judges:
            with _named(plugin):
                progress = Progress(self._scheduled, len(self._open), None if self._tasks is None else {**self._tasks})
                status = plugin.placement_feasible(self._group, progress)
                _check(status)
            if status.code is Code.WAIT:
                waiting = waiting or Objection(name_of(plugin), status.reasons, status.code)
            elif status.is_rejected:
                return Objection(name_of(plugin), status.reasons, status.code)
        return waiting


@contextmanager
def _named(plugin: object) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise GroupPluginFailed(name_of(plugin), f"{type(error).__name__}: {error}") from error


def _split(
    plugin: PlacementGenerate, group: Group, cluster: ClusterState, parents: Sequence[Placement]
) -> Sequence[Placement] | Objection:
    children: list[Placement] = []
    refused: list[Status] = []
    for parent in parents:
        found = plugin.generate_placements(group, cluster, parent)
        _check(found.status)
        if found.status.code is Code.SKIP:
            children.append(parent)
        elif found.status.is_success:
            children += (_inside(child, parent, cluster) for child in found.placements)
        else:
            refused.append(found.status)
    children = [child for child in children if child.nodes.any()]
    if len(children) > _MOST_PLACEMENTS:
        raise ValueError(f"it has {len(children)} placements, and at most {_MOST_PLACEMENTS} can be tried")
    if children:
        return children
    reasons = dict.fromkeys(reason for status in refused for reason in status.reasons)
    is_hopeless = bool(refused) and all(status.code is Code.UNRESOLVABLE for status in refused)
    code = Code.UNRESOLVABLE if is_hopeless else Code.UNSCHEDULABLE
    return Objection(name_of(plugin), (*reasons,) or ("it has no placement for them",), code, is_before=True)


def _inside(child: Placement, parent: Placement, cluster: ClusterState) -> Placement:
    nodes = np.asarray(child.nodes)
    if nodes.dtype != np.bool_ or nodes.shape != (cluster.width,):
        wanted = f"placement {child.name!r} must have a mask over all {cluster.width} nodes"
        raise ValueError(f"{wanted}, found {nodes.dtype} of shape {nodes.shape}")
    return Placement(child.name, nodes & parent.nodes)


def _normalized(one: WeightedPlacements, scores: Sequence[int]) -> Sequence[int]:
    if isinstance(one.plugin, NormalizePlacements):
        status, normalized = one.plugin.normalize_placements(scores)
        _check(status)
        if len(normalized) != len(scores):
            raise ValueError(f"it was given {len(scores)} scores to normalise and returned {len(normalized)}")
        scores = [index(score) for score in normalized]
    wrong = next((score for score in scores if not 0 <= score <= MAX_SCORE), None)
    if wrong is not None:
        raise ValueError(f"its score of a placement is {wrong}, which is not in 0..{MAX_SCORE}")
    return scores


def _check(status: Status) -> None:
    if status.code is Code.ERROR:
        raise RuntimeError(", ".join(status.reasons) or "it failed and did not say why")
