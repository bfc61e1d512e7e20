"""`Search`: one look for places in one flavor, for one workload. Each pod set sees those that were placed before it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.api.kueue.topology_assignments import Domain
from muster.cluster.columns import PODS, Amounts, NodeMask
from muster.cluster.domains import Positions
from muster.quota.gates import Gate, Gates
from muster.quota.topology import balancing, choosing
from muster.quota.topology.assignments import TopologyAssignment
from muster.quota.topology.choosing import Missing, Share
from muster.quota.topology.counting import Counts, leaf_counts, pods_that_fit
from muster.quota.topology.descending import descend
from muster.quota.topology.explaining import exclusions, refusal
from muster.quota.topology.requests import Placed, PlacementRequest, Shape
from muster.quota.topology.rooms import Room
from muster.quota.topology.tree import Span

_A_POD: Final = {PODS: 1}


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    leaves: Positions
    pods: Amounts
    needs: Mapping[str, int]


class Search:
    def __init__(self, topology: str, room: Room, gates: Gates, *, as_if_empty: bool) -> None:
        self._topology = topology
        self._room = room
        self._gates = gates
        self._as_if_empty = as_if_empty
        self._taken: list[_Taken] = []

    def take(self, assignment: TopologyAssignment, requests: Mapping[str, int]) -> None:
        """Those pods are there too, from now on. Domains that are gone take nothing."""
        position = self._room.tree.position
        found = [(position[domain.values], domain.pods) for domain in assignment.domains if domain.values in position]
        leaves = np.array([leaf for leaf, _ in found], dtype=np.intp)
        self._taken.append(_Taken(leaves, np.array([pods for _, pods in found], dtype=np.int64), _needs(requests)))

    def place(
        self,
        workers: PlacementRequest,
        shape: Shape,
        *,
        leader: PlacementRequest | None = None,
        inside: Span | None = None,
    ) -> tuple[Placed, Placed | None]:
        """The pod set, and the leader that goes with it. `inside`: the leaves that they may go to."""
        tree = self._room.tree
        if not tree.leaf_count:
            return self._refused(f"no topology domains at level: {tree.levels[shape.level]}", leader)
        needs = _needs(workers.requests)
        free = {resource: self._free(resource) for resource in needs}
        counts = self._counts(workers, leader, shape, free, inside)
        wanted = workers.count // shape.slice_size
        if not wanted and leader is None:
            return Placed(TopologyAssignment(tree.assigned_levels, ())), None
        ascending = shape.is_unconstrained and Gate.TAS_PROFILE_MIXED in self._gates
        found = self._balanced(counts, wanted, leader is not None)
        if found is not None:
            share = descend(counts, *found, ascending=False, stays_put=True)
        else:
            chosen = choosing.choose(counts, wanted, is_led=leader is not None, ascending=ascending)
            if isinstance(chosen, Missing):
                reason = refusal(self._topology, counts, wanted, chosen)
                return self._refused(reason + self._excluded(workers, counts, free, needs, inside), leader)
            share = descend(counts, *chosen, ascending=ascending)
        led = Placed(self._assignment(share.rows[:1], np.ones(1, dtype=np.int64))) if leader is not None else None
        return Placed(self._assignment(share.rows, share.slices)), led

    def _refused(self, reason: str, leader: PlacementRequest | None) -> tuple[Placed, Placed | None]:
        refused = Placed(None, reason)
        return refused, refused if leader is not None else None

    def _free(self, resource: str) -> Amounts:
        there = self._room.free(resource, as_if_empty=self._as_if_empty)
        taken = [taken for taken in self._taken if resource in taken.needs]
        if taken:
            there = there.copy()
            for one in taken:
                there[one.leaves] -= one.pods * one.needs[resource]
        return there

    def _counts(
        self,
        workers: PlacementRequest,
        leader: PlacementRequest | None,
        shape: Shape,
        free: Mapping[str, Amounts],
        inside: Span | None,
    ) -> Counts:
        needs = _needs(workers.requests)
        prefers = Gate.TAS_RESPECT_NODE_AFFINITY_PREFERRED in self._gates
        verdicts = self._room.filters.verdicts(workers, with_preferences=prefers)
        allowed = _both(verdicts.allowed, self._inside(inside))
        pods = _masked(pods_that_fit((free[resource], needed) for resource, needed in needs.items()), allowed)
        led: tuple[Amounts, NodeMask] | None = None
        if leader is not None:
            fits = self._leader_fits(leader, allowed)
            beside = _needs(leader.requests)
            left = ((free[resource] - beside.get(resource, 0), needed) for resource, needed in needs.items())
            led = np.where(fits, pods_that_fit(left), pods), fits
        preference = verdicts.preference
        if preference is not None and allowed is not None:
            preference = np.where(allowed, preference, 0)
        return Counts(self._room.tree, shape, leaf_counts(self._room.tree, shape, pods, led, preference))

    def _leader_fits(self, leader: PlacementRequest, allowed: NodeMask | None) -> NodeMask:
        """Where the leader may go: among the nodes that its workers may go to, those that are right for it too."""
        fits = np.ones(self._room.tree.leaf_count, dtype=np.bool_)
        for resource, needed in _needs(leader.requests).items():
            fits &= self._free(resource) >= needed
        own = self._room.filters.verdicts(leader, with_preferences=False).allowed
        for mask in (allowed, own):
            if mask is not None:
                fits &= mask
        return fits

    def _inside(self, inside: Span | None) -> NodeMask | None:
        if inside is None:
            return None
        mask = np.zeros(self._room.tree.leaf_count, dtype=np.bool_)
        mask[inside] = True
        return mask

    def _balanced(self, counts: Counts, wanted: int, is_led: bool) -> tuple[int, Share] | None:
        if Gate.TAS_BALANCED_PLACEMENT not in self._gates or not balancing.can_be_balanced(counts.shape):
            return None
        return balancing.balance(counts, wanted, is_led=is_led)

    def _excluded(
        self,
        workers: PlacementRequest,
        counts: Counts,
        free: Mapping[str, Amounts],
        needs: Mapping[str, int],
        inside: Span | None,
    ) -> str:
        verdicts = self._room.filters.verdicts(workers, with_preferences=False)
        listed = [(resource, free[resource], needed) for resource, needed in needs.items()]
        return exclusions(verdicts, self._inside(inside), counts.at(counts.tree.lowest).pods, listed)

    def _assignment(self, leaves: Positions, pods: Amounts) -> TopologyAssignment:
        tree = self._room.tree
        order = leaves.argsort()
        values = tree.leaf_values
        listed = zip(leaves[order].tolist(), pods[order].tolist(), strict=True)
        return TopologyAssignment(
            tree.assigned_levels, tuple(Domain(values[leaf], count) for leaf, count in listed if count)
        )


def _needs(requests: Mapping[str, int]) -> dict[str, int]:
    """What one pod takes of its node, its place among the pods there included."""
    return {resource: amount for resource, amount in requests.items() if amount > 0} | _A_POD


def _both(one: NodeMask | None, other: NodeMask | None) -> NodeMask | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _masked(pods: Amounts, allowed: NodeMask | None) -> Amounts:
    return pods if allowed is None else np.where(allowed, pods, 0)
