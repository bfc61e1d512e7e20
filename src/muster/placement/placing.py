"""Place gangs on nodes, each all or nothing, in the order given. The seam that the binding controller calls.

A pod goes to the node that stays least used, counted over what the pod asks for; ties go to the node
that stands first. Pods of one shape share one pass over the nodes, across gangs: after a pod is placed only
its node is scored again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from muster.cluster import PODS, ClusterArrays
from muster.placement import feasibility
from muster.placement.requests import Gang, PodRequest, PodShape
from muster.placement.verdicts import Obstacle, Placed, Reason, Refusal, Unplaceable, Verdict

_Positions = npt.NDArray[np.intp]
_Scores = npt.NDArray[np.float64]


def place(requests: Sequence[Gang], cluster: ClusterArrays) -> Sequence[Verdict]:
    """One verdict a gang, in order: what one gets, later ones find gone. `cluster` itself stays as it is."""
    attempt = _Pass(cluster)
    return [attempt.place(gang) for gang in requests]


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A shape against this cluster: what does not change while pods are placed."""

    needs: tuple[tuple[int, int], ...]  # row and amount
    unknown: tuple[tuple[str, int], ...]  # resources that no node has
    scored: tuple[tuple[int, int], ...]  # the rows of `needs` that say how used a node is
    candidates: _Positions
    feasible: feasibility.Feasible


@dataclass(slots=True, eq=False)
class _Standing:
    """How the nodes stand for a shape: minus infinity where a pod of it does not fit."""

    scores: _Scores  # [node]
    seen: int  # how much of the pass's log of touched nodes the scores reflect


class _Pass:
    def __init__(self, cluster: ClusterArrays) -> None:
        self._cluster = cluster
        self._free = cluster.free.copy()
        self._touched: list[int] = []
        self._prepared: dict[PodShape, _Prepared] = {}
        self._standings: dict[PodShape, _Standing] = {}
        self._refused: dict[tuple[PodShape, int, int], Unplaceable] = {}

    def place(self, gang: Gang) -> Verdict:
        alike = self._likeness(gang)
        if alike in self._refused:
            return replace(self._refused[alike], gang=gang)
        assigned: list[tuple[PodRequest, int]] = []
        left_out: list[tuple[PodRequest, Refusal]] = []
        for shape, pods in self._by_shape(gang):
            positions = self._fill(shape, len(pods))
            assigned += zip(pods, positions, strict=False)
            if len(positions) < len(pods):
                refusal = self._refusal(shape)
                left_out += [(pod, refusal) for pod in pods[len(positions) :]]
        if len(assigned) >= max(1, gang.missing):
            # Nothing is ever given back within a pass, so a refusal stands; only its numbers would be out of date.
            self._refused.clear()
            names = self._cluster.names
            return Placed(gang, [(pod, names[position]) for pod, position in assigned], left_out)
        for pod, position in assigned:
            self._take(self._prepare(pod.shape), position, -1)
        verdict = Unplaceable(gang, len(assigned), left_out[0][1])
        if alike is not None:
            self._refused[alike] = verdict
        return verdict

    def _likeness(self, gang: Gang) -> tuple[PodShape, int, int] | None:
        """Gangs alike in this get the same verdict as long as nothing is placed in between."""
        shapes = {pod.shape for pod in gang.pods}
        return (shapes.pop(), len(gang.pods), gang.missing) if len(shapes) == 1 else None

    def _by_shape(self, gang: Gang) -> list[tuple[PodShape, list[PodRequest]]]:
        """Largest shapes first: small pods spread out would fragment the nodes that the large ones need."""
        pods: dict[PodShape, list[PodRequest]] = {}
        for pod in gang.pods:
            pods.setdefault(pod.shape, []).append(pod)
        return sorted(pods.items(), key=lambda item: -self._size(item[0])) if len(pods) > 1 else list(pods.items())

    def _size(self, shape: PodShape) -> float:
        """The largest share of the biggest node that the pod takes of any resource."""
        prepared = self._prepare(shape)
        if prepared.unknown:
            return np.inf
        most = [int(self._cluster.allocatable[row].max(initial=0)) for row, _ in prepared.needs]
        return max((amount / max(1, total) for (_, amount), total in zip(prepared.needs, most, strict=True)), default=0)

    def _prepare(self, shape: PodShape) -> _Prepared:
        known = self._prepared.get(shape)
        if known is not None:
            return known
        rows = self._cluster.resources
        needs = [(name, rows[name], amount) for name, amount in shape.needs if name in rows]
        scored = [(row, amount) for name, row, amount in needs if name != PODS]
        feasible = feasibility.feasible(shape, self._cluster)
        prepared = self._prepared[shape] = _Prepared(
            needs=tuple((row, amount) for _, row, amount in needs),
            unknown=tuple((name, amount) for name, amount in shape.needs if name not in rows),
            scored=tuple(scored or [(row, amount) for _, row, amount in needs]),
            candidates=np.flatnonzero(feasible.mask),
            feasible=feasible,
        )
        return prepared

    def _fill(self, shape: PodShape, count: int) -> list[int]:
        """Place up to `count` pods of the shape: the node of each, in order of placing."""
        prepared = self._prepare(shape)
        if prepared.unknown or not prepared.candidates.size:
            return []
        standing = self._standing(shape, prepared)
        chosen: list[int] = []
        while len(chosen) < count:
            position = int(standing.scores.argmax())  # the first of equals
            if standing.scores[position] == -np.inf:
                break
            self._take(prepared, position, +1)
            standing.scores[position] = self._score(prepared, position)
            chosen.append(position)
        standing.seen = len(self._touched)
        return chosen

    def _standing(self, shape: PodShape, prepared: _Prepared) -> _Standing:
        known = self._standings.get(shape)
        if known is None:
            known = self._standings[shape] = _Standing(self._scores(prepared), len(self._touched))
        for position in set(self._touched[known.seen :]):
            if prepared.feasible.mask[position]:
                known.scores[position] = self._score(prepared, position)
        return known

    def _scores(self, prepared: _Prepared) -> _Scores:
        """`_score` for all nodes at once."""
        fits = np.ones(prepared.candidates.shape, dtype=np.bool_)
        for row, amount in prepared.needs:
            fits &= self._free[row, prepared.candidates] >= amount
        positions = prepared.candidates[fits]
        scores = np.full(self._cluster.exists.shape, -np.inf)
        scores[positions] = 0.0
        for row, amount in prepared.scored:
            scores[positions] += (self._free[row, positions] - amount) / self._cluster.allocatable[row, positions]
        return scores

    def _take(self, prepared: _Prepared, position: int, sign: int) -> None:
        for row, amount in prepared.needs:
            self._free[row, position] -= sign * amount
        self._touched.append(position)

    def _score(self, prepared: _Prepared, position: int) -> float:
        """How unused the node stays with one more pod on it; minus infinity where the pod does not fit."""
        free, allocatable = self._free[:, position], self._cluster.allocatable[:, position]
        if any(free[row] < amount for row, amount in prepared.needs):
            return -np.inf
        score = 0.0
        for row, amount in prepared.scored:
            score += float((free[row] - amount) / allocatable[row])
        return score

    def _refusal(self, shape: PodShape) -> Refusal:
        """Why no node takes one more pod of the shape now."""
        prepared, cluster = self._prepare(shape), self._cluster
        candidates = prepared.candidates
        reasons = list(prepared.feasible.reasons)
        beyond = [name for name, _ in prepared.unknown]
        for name, amount in shape.needs:
            row = cluster.resources.get(name)
            free = self._free[row, candidates] if row is not None else np.zeros(candidates.shape, dtype=np.int64)
            short = int((free < amount).sum())
            if short:
                obstacle = Obstacle.POD_COUNT if name == PODS else Obstacle.RESOURCE
                reasons.append(Reason(obstacle, short, name, amount, max(0, int(free.max()))))
            if row is not None and cluster.node_count and cluster.allocatable[row, cluster.exists].max() < amount:
                beyond.append(name)
        return Refusal(cluster.node_count, tuple(reasons), tuple(beyond))
