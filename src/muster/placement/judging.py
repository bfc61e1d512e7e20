"""What a profile says of one class of pods: which nodes are feasible and how good each is, kept true as pods move.

A `Judgement` is made once for all pods of a class and then follows the cluster: a pod that came to a node is answered
by asking again about that node alone where plugins read no further (`Reads.NODE_PODS`), and about all where they do.
Every filter's masks are kept, so the reasons can be counted whenever somebody asks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from muster.api.selectors import EVERYTHING
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState, Move
from muster.placement.framework import (
    AtOneNode,
    Code,
    Filter,
    FollowsPods,
    NodeScores,
    Normalize,
    PreFilter,
    PreScore,
    Reads,
    Rejection,
    Status,
)
from muster.placement.profiles import Profile, Weighted, name_of

INFEASIBLE = -1
CLOSED = "node(s) were held back for a gang that waits, or are outside the domain that was tried"
_MANY = 2000  # so many moves are not followed one by one: starting afresh is cheaper
_FEW = 48  # so many nodes are asked one by one; for more, asking all at once is cheaper
Slots: TypeAlias = npt.NDArray[np.intp]


_ABILITIES: dict[type, tuple[bool, ...]] = {}


def _abilities(plugin: object) -> tuple[bool, ...]:
    """Which of these it can do besides. Asked once a kind: a check against a protocol costs as much as the call."""
    found = _ABILITIES.get(type(plugin))
    if found is None:
        asked = (AtOneNode, FollowsPods, PreFilter, PreScore, Normalize)
        found = _ABILITIES[type(plugin)] = tuple(isinstance(plugin, protocol) for protocol in asked)
    return found


class _Filtering:
    """One filter for this class: its state from PreFilter, what it said last, and what else it can do."""

    __slots__ = ("at_one", "follows", "plugin", "pre_filter", "rejected", "rejections", "state")

    def __init__(self, plugin: Filter, state: object) -> None:
        self.plugin = plugin
        self.state = state
        self.rejections: Sequence[Rejection] = ()
        self.rejected: NodeMask | None = None  # union of the rejections; None: none
        at_one, follows, pre_filter, _, _ = _abilities(plugin)
        self.at_one = cast(AtOneNode, plugin) if at_one else None
        self.follows = cast(FollowsPods, plugin) if follows else None
        self.pre_filter = cast(PreFilter, plugin) if pre_filter else None


class _Scoring:
    """One score for this class, in the same way. `raw`: its scores, where no pod can change them."""

    __slots__ = ("at_one", "normalize", "plugin", "pre_score", "raw", "reads", "state", "weight")

    def __init__(self, weighted: Weighted, state: object) -> None:
        plugin = weighted.plugin
        self.plugin = plugin
        self.weight = weighted.weight
        self.state = state
        self.raw: NodeScores | None = None
        self.reads = plugin.reads
        at_one, _, _, pre_score, normalize = _abilities(plugin)
        self.at_one = cast(AtOneNode, plugin) if at_one else None
        self.normalize = cast(Normalize, plugin) if normalize else None
        self.pre_score = cast(PreScore, plugin) if pre_score else None

    @property
    def is_relative(self) -> bool:
        """Whether one node's score depends on others: it is normalised over the feasible nodes, or reads all pods."""
        return self.normalize is not None or self.reads is Reads.ALL_PODS


class PluginFailed(Exception):
    """A plugin raised while it followed pods that were moved in thought. What it knows is not to be relied on."""


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """What others than plugins say of the nodes that all filters let pass."""

    by: str
    asked: NodeMask
    """The nodes that they were asked about."""
    rejected: NodeMask
    rejections: Sequence[Rejection]
    bonus: NodeScores
    """Added to the sum of all scores."""


class Judgement:
    """`pod` stands for its class. Ask `refresh` first, then read `feasible` and `best`."""

    def __init__(self, profile: Profile, pod: PodInfo, cluster: ClusterState, *, at_once: bool = True) -> None:
        """`at_once`: judge now. Otherwise the first `refresh` does."""
        self._profile = profile
        self.pod = pod
        self._cluster = cluster
        self.calling: object = None
        """The plugin that was called last, for whoever must say which one raised."""
        self.advice: Advice | None = None
        """For one decision: whoever decides sets it, and takes it away again."""
        self._world: tuple[int, ...] = ()
        self._selected = (-1, EVERYTHING.labels)
        """The selectors' version, and what they say of the pod."""
        self._seen = 0
        self._status = Status()
        if at_once:
            self.refresh()

    # Following the cluster

    def refresh(self) -> None:
        """Brings the judgement up to date with all that happened since it was last asked."""
        cluster = self._cluster
        behind = len(cluster.moves) - self._seen
        if self._world != _world(cluster) or behind > _MANY or self._is_selected_anew():
            self._rebuild()
        elif behind:
            moves = cluster.moves[self._seen :]
            self._seen = len(cluster.moves)
            if self._status.is_success:
                self._follow(moves)

    def _is_selected_anew(self) -> bool:
        """Whether services or controllers select the pod otherwise than before: most that come up select others."""
        selectors, (version, before) = self._cluster.pod_selectors, self._selected
        if selectors.version == version:
            return False
        self._selected = (selectors.version, selectors.selector_of(self.pod))
        return self._selected[1] != before

    def start_afresh(self) -> None:
        """Asks every plugin anew: for one that has lost track of the pods because a step of it failed."""
        self._rebuild()

    def _rebuild(self) -> None:
        cluster = self._cluster
        self._world, self._seen = _world(cluster), len(cluster.moves)
        self._selected = (cluster.pod_selectors.version, cluster.pod_selectors.selector_of(self.pod))
        self._status = Status()
        self._only: NodeMask | None = None
        self._only_by: set[str] = set()
        states = self._prepare()
        skipped = {name for name, state in states.items() if state is _SKIPPED}
        self._filters = [
            _Filtering(plugin, states.get(name_of(plugin)))
            for plugin in self._profile.filter
            if name_of(plugin) not in skipped
        ]
        self._fixed = [filtering for filtering in self._filters if filtering.plugin.reads is Reads.NODES]
        self._local = [filtering for filtering in self._filters if filtering.plugin.reads is Reads.NODE_PODS]
        self._global = [filtering for filtering in self._filters if filtering.plugin.reads is Reads.ALL_PODS]
        self._scores: list[_Scoring] | None = None
        if not self._status.is_success:
            self.feasible = cluster.mask()
            return
        for filtering in self._filters:
            self._ask(filtering)
        self._combine()

    def _prepare(self) -> dict[str, object]:
        """PreFilter of all plugins; the first that refuses the pod ends it."""
        states: dict[str, object] = {}
        for plugin in self._profile.pre_filter:
            self.calling = plugin
            prepared = plugin.pre_filter(self.pod, self._cluster)
            name = name_of(plugin)
            if prepared.status.code is Code.SKIP:
                states[name] = _SKIPPED
                continue
            states[name] = prepared.state
            if not prepared.status.is_success:
                self._status, self._refused_by = prepared.status, name
                break
            if prepared.nodes is not None:
                self._only = prepared.nodes if self._only is None else self._only & prepared.nodes
                self._only_by.add(name)
        return states

    def _follow(self, moves: Sequence[Move]) -> None:
        for filtering in self._global:
            self._follow_globally(filtering, moves)
        slots = {move.slot for move in moves}
        if len(slots) > _FEW or not all(f.at_one for f in self._local):
            for filtering in self._local:
                self._ask(filtering)
            self._combine()
            self._scores = None
            return
        for filtering in self._local:
            self._ask_at(filtering, slots)
        if self._global:
            self._combine()
        else:
            for slot in slots:
                self.feasible[slot] = self._passes(slot)
        self._rescore(slots)

    def _follow_globally(self, filtering: _Filtering, moves: Sequence[Move]) -> None:
        if filtering.follows is not None:
            plugin = filtering.follows
            for move in moves:
                step = plugin.pod_added if move.came else plugin.pod_removed
                try:
                    step(filtering.state, self.pod, move.pod, move.slot, self._cluster)
                except Exception as error:
                    verb = "AddPod" if move.came else "RemovePod"
                    raise PluginFailed(f'running {verb} on PreFilter plugin "{name_of(plugin)}": {error}') from error
        elif filtering.pre_filter is not None:
            filtering.state = filtering.pre_filter.pre_filter(self.pod, self._cluster).state
        self._ask(filtering)

    # Filtering

    def _ask(self, filtering: _Filtering) -> None:
        self.calling = filtering.plugin
        filtering.rejections = filtering.plugin.filter(self.pod, self._cluster, filtering.state)
        filtering.rejected = _union(filtering.rejections)

    def _ask_at(self, filtering: _Filtering, slots: Iterable[int]) -> None:
        """Only whether the nodes pass: which reason they fail for is asked of all nodes when somebody wants to know."""
        plugin = filtering.at_one
        assert plugin is not None
        if filtering.rejected is None:
            filtering.rejected = self._cluster.mask()
        filtering.rejections = ()
        for slot in slots:
            filtering.rejected[slot] = not plugin.fits_at(self.pod, self._cluster, filtering.state, slot)

    def _combine(self) -> None:
        feasible = self._cluster.exists[: self._cluster.width].copy()
        if self._only is not None:
            feasible &= self._only
        for filtering in self._filters:
            if filtering.rejected is not None:
                feasible &= ~filtering.rejected
        self.feasible = feasible

    def _passes(self, slot: int) -> bool:
        if not self._cluster.exists[slot] or (self._only is not None and not self._only[slot]):
            return False
        return not any(f.rejected is not None and f.rejected[slot] for f in self._filters)

    # Scoring

    def best(self, choice: int, within: NodeMask | None = None) -> int | None:
        """The slot of the best feasible node, one of equals by `choice`; None where there is none.
        `within`: only nodes of this mask."""
        advice = self.advice
        if advice is not None:
            within = ~advice.rejected if within is None else within & ~advice.rejected
        totals = self._totals(within)
        if totals is None:
            return None
        if advice is not None:
            totals = np.where(totals == INFEASIBLE, INFEASIBLE, totals + advice.bonus)
        top = totals.max(initial=INFEASIBLE)
        if top == INFEASIBLE:
            return None
        # The first of the best from a point that `choice` gives: as fair as need be, and two passes instead of four.
        start = choice % len(totals)
        found = start + int(totals[start:].argmax())
        return found if totals[found] == top else int(totals[:start].argmax())

    def _totals(self, within: NodeMask | None) -> NodeScores | None:
        if self._scores is None and not self._prepare_scores():
            return None
        totals = self._base
        if within is not None:
            totals = np.where(within, totals, INFEASIBLE)
        if not self._relative:
            return totals
        feasible = self.feasible if within is None else self.feasible & within
        slots = np.flatnonzero(feasible)
        if not slots.size:
            return None
        totals = totals.copy()
        for scoring in self._relative:
            if scoring.state is _STALE and scoring.pre_score is not None:
                scoring.state = self._pre_score(scoring.pre_score)
            if scoring.state is _SKIPPED:
                continue
            scores = scoring.raw
            self.calling = scoring.plugin
            if scores is None:
                scores = scoring.plugin.score(self.pod, self._cluster, scoring.state)
            scores = scores[slots]
            if scoring.normalize is not None:
                scores = scoring.normalize.normalize(scores, slots, scoring.state)
            totals[slots] += scores * scoring.weight
        return totals

    def _prepare_scores(self) -> bool:
        """PreScore, and the sum of all scores that depend on their own node alone."""
        if not self.feasible.any():
            return False
        states = {name_of(plugin): self._pre_score(plugin) for plugin in self._profile.pre_score}
        scores = [_Scoring(weighted, states.get(name_of(weighted.plugin))) for weighted in self._profile.score]
        self._scores = [scoring for scoring in scores if scoring.state is not _SKIPPED or self._may_speak(scoring)]
        absolute = [scoring for scoring in self._scores if not scoring.is_relative]
        self._relative = [scoring for scoring in self._scores if scoring.is_relative and not self._is_constant(scoring)]
        self._lively = [scoring for scoring in absolute if scoring.reads is Reads.NODE_PODS]
        self._steady = self._sum([scoring for scoring in absolute if scoring.reads is Reads.NODES])
        self._base = np.where(self.feasible, self._steady + self._sum(self._lively), INFEASIBLE)
        return True

    def _may_speak(self, scoring: _Scoring) -> bool:
        """Whether one that skipped must be asked again: pods that come may give it something to say, where either side
        selects the other."""
        return scoring.reads is Reads.ALL_PODS and self._cluster.selects(self.pod)

    def _is_constant(self, scoring: _Scoring) -> bool:
        """Whether all nodes get the same, whatever is feasible: then it decides nothing. What pods cannot change is
        kept."""
        if scoring.reads is not Reads.NODES:
            return False
        scoring.raw = scoring.plugin.score(self.pod, self._cluster, scoring.state)
        existing = scoring.raw[self._cluster.exists[: self._cluster.width]]
        return bool((existing == existing[:1]).all())

    def _pre_score(self, plugin: PreScore) -> object:
        self.calling = plugin
        prepared = plugin.pre_score(self.pod, self._cluster, self.feasible)
        if prepared.status.code is Code.ERROR:
            reasons = ", ".join(prepared.status.reasons)
            raise PluginFailed(f'running PreScore plugin "{name_of(plugin)}": {reasons}')
        return prepared.state if prepared.status.is_success else _SKIPPED

    def _sum(self, scorings: Sequence[_Scoring]) -> NodeScores:
        total = np.zeros(self._cluster.width, dtype=np.int64)
        for scoring in scorings:
            self.calling = scoring.plugin
            total += scoring.plugin.score(self.pod, self._cluster, scoring.state) * scoring.weight
        return total

    def _rescore(self, slots: Iterable[int]) -> None:
        """Scores of nodes whose pods changed; those that read all pods are prepared again before they are next used."""
        if self._scores is None:
            return
        if not all(scoring.at_one for scoring in self._lively):
            self._scores = None
            return
        for slot in slots:
            self._base[slot] = self._score_at(slot) if self.feasible[slot] else INFEASIBLE
        if self._global:  # they may have changed what is feasible anywhere
            self._base[~self.feasible] = INFEASIBLE
            if (self.feasible & (self._base == INFEASIBLE)).any():
                self._base = np.where(self.feasible, self._steady + self._sum(self._lively), INFEASIBLE)
        for scoring in self._relative:
            if scoring.reads is Reads.ALL_PODS and scoring.pre_score is not None:
                scoring.state = _STALE

    def _score_at(self, slot: int) -> int:
        total = int(self._steady[slot])
        for scoring in self._lively:
            assert scoring.at_one is not None
            total += scoring.at_one.score_at(self.pod, self._cluster, scoring.state, slot) * scoring.weight
        return total

    # Reasons

    def rejected_by(self) -> frozenset[str]:
        """The plugins that rule out at least one node: a change that helps none of them cannot help the pod."""
        if not self._status.is_success:
            return frozenset({self._refused_by})
        rejecting = {name_of(f.plugin) for f in self._filters if f.rejected is not None and f.rejected.any()}
        if self.advice is not None and self.advice.rejections:
            rejecting.add(self.advice.by)
        return frozenset(rejecting | self._only_by)

    def active(self) -> Sequence[tuple[Filter, object]]:
        """The filters that have something to say of this class, in order, with their states."""
        return [(filtering.plugin, filtering.state) for filtering in self._filters] if self._status.is_success else ()

    def steady_mask(self) -> NodeMask:
        """Nodes that pass every filter whose answer no coming or going of pods can change."""
        mask = self._cluster.exists[: self._cluster.width].copy()
        if self._only is not None:
            mask &= self._only
        for filtering in self._fixed:
            if filtering.rejected is not None:
                mask &= ~filtering.rejected
        if self.advice is not None:
            mask &= ~self.advice.rejected
        return mask

    def status_at(self, slot: int) -> Status:
        """What the first filter says that rules out the node; success where none does."""
        if not self._status.is_success:
            return self._status
        if self._only is not None and not self._only[slot]:
            return Status(Code.UNRESOLVABLE)
        for filtering in self._filters:
            if filtering.rejected is None or not filtering.rejected[slot]:
                continue
            if not filtering.rejections:
                self._ask(filtering)
            named = [rejection for rejection in filtering.rejections if rejection.nodes[slot]]
            code = Code.UNRESOLVABLE if any(rejection.is_unresolvable for rejection in named) else Code.UNSCHEDULABLE
            return Status(code, tuple(rejection.reason for rejection in named))
        return Status()

    def diagnosis(self, within: NodeMask | None = None) -> "Diagnosis":
        """Counted now, from the kept masks. `within`: nodes that were open to the pod at all."""
        cluster = self._cluster
        if not self._status.is_success:
            return Diagnosis(cluster.node_count, {reason: cluster.node_count for reason in self._status.reasons})
        counts: dict[str, int] = {}
        left = cluster.exists[: cluster.width].copy()
        unresolvable = cluster.mask()
        if self._only is not None:
            outside = left & ~self._only
            unresolvable |= outside
            left &= self._only
            if outside.any():
                counts[f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(self._only_by))}]"] = int(outside.sum())
        for filtering in self._filters:
            if filtering.rejected is not None and not filtering.rejections:
                self._ask(filtering)
            _count(filtering.rejections, left, counts, unresolvable)
        if self.advice is not None:
            _count(self.advice.rejections, left, counts, unresolvable)
        closed = 0 if within is None else int((left & ~within).sum())
        if closed:
            counts[CLOSED] = closed
        return Diagnosis(cluster.node_count, counts, unresolvable)


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """Why no node takes the pod: nodes counted by reason, each node under the first filter that ruled it out."""

    nodes: int
    counts: Mapping[str, int]
    unresolvable: NodeMask | None = field(default=None)
    """Nodes that evicting pods cannot help."""

    @property
    def message(self) -> str:
        if not self.nodes:
            return "no nodes available to schedule pods"
        listed = ", ".join(sorted(f"{number} {reason}" for reason, number in self.counts.items()))
        return f"0/{self.nodes} nodes are available: {listed}."


_SKIPPED = object()
_STALE = object()


def _count(rejections: Sequence[Rejection], left: NodeMask, counts: dict[str, int], unresolvable: NodeMask) -> None:
    """Nodes that are left and ruled out here: counted, and left no longer."""
    here = left.copy()
    for rejection in rejections:
        blocked = here & rejection.nodes
        number = int(blocked.sum())
        if number:
            counts[rejection.reason] = counts.get(rejection.reason, 0) + number
            left &= ~blocked
            if rejection.is_unresolvable:
                unresolvable |= blocked


def _union(rejections: Sequence[Rejection]) -> NodeMask | None:
    if not rejections:
        return None
    union = rejections[0].nodes.copy()
    for rejection in rejections[1:]:
        union |= rejection.nodes
    return union


def _world(cluster: ClusterState) -> tuple[int, ...]:
    """What a judgement does not follow step by step: when any of it changes, it starts afresh."""
    return (
        cluster.nodes_version,
        cluster.affinity.version,
        cluster.namespaces.version,
        cluster.claims.version,
    )
