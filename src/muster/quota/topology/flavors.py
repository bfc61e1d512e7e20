"""`FlavorTopology`: one flavor with a topology. Finds places for pod sets, and counts what is taken there."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from muster.api import kueue
from muster.api.kueue.topology_assignments import Domain
from muster.cluster.columns import PODS
from muster.quota.gates import Gate, Gates
from muster.quota.topology import replacing
from muster.quota.topology.assignments import (
    DomainUsage,
    TopologyAssignment,
    amounts_by_domain,
    merge,
    pod_count,
    truncate,
)
from muster.quota.topology.counting import pods_that_fit
from muster.quota.topology.explaining import DomainRoom
from muster.quota.topology.ledger import Ledger
from muster.quota.topology.requests import Placed, PlacementRequest, has_levels, shape_of
from muster.quota.topology.rooms import Room
from muster.quota.topology.searching import Search

T = TypeVar("T")


class _Memory(Generic[T]):
    """What was found for requests like these, while the same is free: in a cycle many ask for the same."""

    def __init__(self) -> None:
        self.known: dict[Hashable, T] = {}
        self._version: tuple[int, int] | None = None

    def keep_for(self, version: tuple[int, int]) -> None:
        if version != self._version:
            self.known.clear()
            self._version = version


class FlavorTopology:
    def __init__(
        self, name: str, levels: tuple[str, ...], room: Room, ledgers: tuple[Ledger, ...], gates: Gates
    ) -> None:
        """`name` is the topology's. `ledgers`: where its usage is counted, its own first."""
        self.name = name
        self.levels = levels
        self._room = room
        self._ledgers = ledgers
        self._gates = gates
        self._found = _Memory[Mapping[str, Placed]]()
        self._found_if_empty = _Memory[Mapping[str, Placed]]()
        self._could_hold = _Memory[bool]()

    def has_levels(self, request: kueue.PodSetTopologyRequest | None) -> bool:
        """Whether the request asks for anything, and every level that it names is here."""
        return has_levels(self.levels, request)

    def lack(self) -> str:
        """In words, why no node is part of the topology; empty where one is."""
        self._room.refresh()
        return self._room.lack()

    # Finding

    def find(
        self,
        requests: Sequence[PlacementRequest],
        *,
        workload: kueue.Workload | None = None,
        empty: bool = False,
        assumed: Sequence[DomainUsage] = (),
    ) -> Mapping[str, Placed]:
        """Places for the pod sets of one workload, in order: each sees the ones before it, and the first that has no
        place ends the search. `empty`: as if no assignment took anything. `assumed`: is taken too, for now. Of a
        `workload` with failed nodes, only the pods that were on them are placed."""
        self._room.refresh()
        key = requests[0].key if len(requests) == 1 and workload is None and not assumed else None
        if key is None:
            return self._search(requests, workload, assumed, empty=empty)
        memory = self._found_if_empty if empty else self._found
        memory.keep_for(self._room.version(as_if_empty=empty))
        found = memory.known.get(key)
        if found is None:
            found = memory.known[key] = self._search(requests, None, (), empty=empty)
        return found

    def _search(
        self,
        requests: Sequence[PlacementRequest],
        workload: kueue.Workload | None,
        assumed: Sequence[DomainUsage],
        *,
        empty: bool,
    ) -> Mapping[str, Placed]:
        search = Search(self.name, self._room, self._gates, as_if_empty=empty)
        for used in assumed:
            search.take(TopologyAssignment((), (Domain(used.values, used.count),)), used.requests)
        placed: dict[str, Placed] = {}
        for group in _groups(requests):
            if workload is not None and replacing.replaces(workload, self._gates):
                found = self._replaced(search, group, workload)
            else:
                found = self._placed(search, group)
            placed |= found
            if any(one.reason for one in found.values()):
                break
        return placed

    def _placed(self, search: Search, group: Sequence[PlacementRequest]) -> dict[str, Placed]:
        leader, workers = _leader_and_workers(group)
        kept = self._grown(search, workers, leader)
        if kept is not None:
            return kept
        shape = shape_of(workers.topology, self.levels, self._gates)
        if isinstance(shape, str):
            return {one.name: Placed(None, shape) for one in group}
        placed, led = search.place(workers, shape, leader=leader)
        found = {leader.name: led} if leader is not None and led is not None else {}
        found[workers.name] = placed
        self._take(search, group, found)
        return {one.name: found[one.name] for one in group}

    def _take(self, search: Search, group: Sequence[PlacementRequest], found: Mapping[str, Placed]) -> None:
        for one in group:
            assignment = found[one.name].assignment
            if assignment is not None:
                search.take(assignment, one.requests)

    def _grown(
        self, search: Search, workers: PlacementRequest, leader: PlacementRequest | None
    ) -> dict[str, Placed] | None:
        """A slice that replaces another keeps its places, and only what it has more is placed. None where there is
        nothing to keep."""
        if Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES_WITH_TAS not in self._gates:
            return None
        keeping = [one for one in (leader, workers) if one is not None]
        if any(one.previous is None or self._stale(one.previous) is not None for one in keeping):
            return None
        found: dict[str, Placed] = {}
        for one in keeping:
            assert one.previous is not None
            kept = truncate(one.previous, one.count)
            found[one.name] = Placed(kept)
            search.take(kept, one.requests)
        for one in keeping:
            kept_pods = found[one.name].assignment
            assert kept_pods is not None
            more = one.count - pod_count(kept_pods)
            if more <= 0:
                continue
            shape = shape_of(one.topology, self.levels, self._gates)
            if isinstance(shape, str):
                return {other.name: Placed(None, shape) for other in keeping}
            placed, _ = search.place(replace(one, count=more), shape)
            if placed.assignment is None:
                return {other.name: placed for other in keeping}
            search.take(placed.assignment, one.requests)
            found[one.name] = Placed(self._merged(kept_pods, placed.assignment))
        return found

    def _replaced(
        self, search: Search, group: Sequence[PlacementRequest], workload: kueue.Workload
    ) -> dict[str, Placed]:
        found: dict[str, Placed] = {}
        for one in group:
            loss = replacing.loss_of(workload, one.name)
            if loss is None:
                continue
            found[one.name] = self._replacement(search, one, loss, workload)
            if found[one.name].reason:
                break
        return found

    def _replacement(
        self, search: Search, request: PlacementRequest, loss: replacing.Loss, workload: kueue.Workload
    ) -> Placed:
        if not loss.pods or replacing.keeps_its_place(workload, self._gates):
            return Placed(loss.existing)
        stale = self._stale(loss.kept)
        if stale is not None:
            return Placed(
                None,
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the"
                f" stale domain {stale}",
            )
        shape = shape_of(request.topology, self.levels, self._gates)
        if isinstance(shape, str):
            return Placed(None, shape)
        shape, inside = replacing.confined(self._room.tree, shape, loss.kept)
        placed, _ = search.place(replace(request, count=loss.pods), shape, inside=inside)
        if placed.assignment is None:
            return placed
        search.take(placed.assignment, request.requests)
        return Placed(self._merged(loss.kept, placed.assignment))

    def merge(self, one: TopologyAssignment, other: TopologyAssignment) -> TopologyAssignment:
        """Both together, in the order of this topology."""
        self._room.refresh()
        return self._merged(one, other)

    def _merged(self, one: TopologyAssignment, other: TopologyAssignment) -> TopologyAssignment:
        return merge(one, other, self._room.tree.position)

    def may_hold(self, pods: int, requests: Mapping[str, int]) -> bool:
        """Whether all domains together have room for so many pods now, were they free to go anywhere."""
        self._room.refresh()
        self._could_hold.keep_for(self._room.version())
        key = pods, tuple(requests.items())
        found = self._could_hold.known.get(key)
        if found is None:
            found = self._could_hold.known[key] = self._may_hold(pods, requests)
        return found

    def _may_hold(self, pods: int, requests: Mapping[str, int]) -> bool:
        needs = {**{resource: needed for resource, needed in requests.items() if needed > 0}, PODS: 1}
        fits = pods_that_fit((self._room.free(resource), needed) for resource, needed in needs.items())
        return int(fits.sum()) >= pods

    # Usage

    def fits(self, usage: Sequence[DomainUsage]) -> bool:
        """Whether so much more has room in these very domains."""
        self._room.refresh()
        position = self._room.tree.position
        for values, amounts in amounts_by_domain(usage).items():
            leaf = position.get(values)
            if leaf is None:
                return False
            if any(amount > 0 and amount > self._room.free_at(resource, leaf) for resource, amount in amounts.items()):
                return False
        return True

    def add_usage(self, usage: Sequence[DomainUsage]) -> None:
        for ledger in self._ledgers:
            ledger.change(usage, 1)

    def remove_usage(self, usage: Sequence[DomainUsage]) -> None:
        for ledger in self._ledgers:
            ledger.change(usage, -1)

    def forget(self) -> None:
        """Gives back all that was taken through this flavor, where others count it too."""
        own, *others = self._ledgers
        for ledger in others:
            ledger.give_back(own)

    def is_stale(self, assignment: TopologyAssignment) -> str | None:
        """The first value of the first domain that has no node any more."""
        self._room.refresh()
        return self._stale(assignment)

    def capacities(self) -> dict[str, DomainRoom]:
        """What nodes have left for assignments, and what assignments take of it, by domain."""
        self._room.refresh()
        return self._room.capacities()

    def _stale(self, assignment: TopologyAssignment) -> str | None:
        position = self._room.tree.position
        return next((domain.values[0] for domain in assignment.domains if domain.values not in position), None)


def _groups(requests: Sequence[PlacementRequest]) -> list[list[PlacementRequest]]:
    """Pod sets that are placed together, in the order of the first of each."""
    groups: dict[tuple[str, bool], list[PlacementRequest]] = {}
    for request in requests:
        is_alone = request.group is None
        groups.setdefault((request.name if request.group is None else request.group, is_alone), []).append(request)
    pairs: list[list[PlacementRequest]] = []
    for group in groups.values():
        # Validation lets only a leader and its workers share a group: what else comes is placed one by one.
        is_pair = len(group) == 2 and min(one.count for one in group) == 1
        pairs += [group] if is_pair or len(group) == 1 else [[one] for one in group]
    return pairs


def _leader_and_workers(group: Sequence[PlacementRequest]) -> tuple[PlacementRequest | None, PlacementRequest]:
    if len(group) == 1:
        return None, group[0]
    first, second = group
    return (second, first) if first.count > second.count else (first, second)
