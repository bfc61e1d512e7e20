"""Placing the members of a gang in thought: in which domain, in which order, part by part.

A domain is chosen by counting and then filled; where filling fails, for reasons that counting does not see, the next
one is tried. Inside a wide domain the narrow ones are filled one after the other, those first that have members
already, so that the gang is no further apart than it must be. Where a profile has plugins of its own for groups, they
say where to look for domains, when it is enough, and which of several that hold the gang is best. Everything goes
through a `Trial`: the caller keeps it or takes it back.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.api import volcano
from muster.cluster.columns import NodeMask
from muster.cluster.groups import Group, PartKey, Parts, PodGroups, Topology, part_of, short_task, task_of
from muster.cluster.pods import PodInfo, PodShape
from muster.cluster.state import ClusterState
from muster.cluster.trial import Trial
from muster.placement.domains import Demand, Domain, LabelLevel, Level, NoDomain, Requirement, candidates, pods_per_node
from muster.placement.framework import Code, Placement
from muster.placement.group_plugins import ALL_NODES, GroupPlugins, Held, Objection, Watch
from muster.placement.hypernodes import HyperNodes
from muster.placement.judging import Diagnosis, Judgement

Judge: TypeAlias = Callable[[PodInfo], Judgement]
PluginsOf: TypeAlias = Callable[[PodInfo], GroupPlugins | None]
"""Who is asked about the group of a pod."""
Choice: TypeAlias = Callable[[int], int]
"""Any number, the same for the same decision and salt."""
Areas: TypeAlias = Sequence[NodeMask | None]
"""Nodes to be filled, in this order; None: all."""
Slots: TypeAlias = npt.NDArray[np.intp]
_TRIES = 8  # domains that are filled before the gang waits: each costs as much as placing it
_MOST_SITES = 64  # the same over all placements that plugins name
_MOST_AREAS = 512
_NOWHERE: Slots = np.zeros(0, dtype=np.intp)


class Site(NamedTuple):
    """Where a gang is tried."""

    name: str
    areas: Areas


class Shortage(NamedTuple):
    """Why not enough members have a place."""

    placed: int
    diagnosis: Diagnosis | None
    """Of the first that has none, with the others in their places. None where all that there are have one."""
    plugins: frozenset[str]
    """Those that keep any out."""


@dataclass(frozen=True, slots=True)
class Seats:
    nodes: Mapping[PodInfo, str]
    """Empty where they are not enough: then nothing is left in the trial."""
    problem: NoDomain | Shortage | Objection | None = None


@dataclass(slots=True)
class _Part:
    """Members that go together, apart from others of their gang."""

    rules: Parts
    pending: list[PodInfo] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    """Nodes of those that have one."""

    @property
    def is_complete(self) -> bool:
        return len(self.there) >= self.rules.size


class GangPlacer:
    def __init__(
        self, cluster: ClusterState, groups: PodGroups, judge: Judge, choice: Choice, plugins_of: PluginsOf
    ) -> None:
        self._cluster, self._groups = cluster, groups
        self._judge, self._choice, self._plugins_of = judge, choice, plugins_of
        self._tree: HyperNodes | None = None
        self._views: Sequence[volcano.HyperNode] = ()
        self._tree_version = -1

    def hypernodes_changed(self, views: Sequence[volcano.HyperNode]) -> None:
        self._views = views
        self._tree = None

    # Order

    def in_order(self, group: Group, pods: Sequence[PodInfo]) -> list[PodInfo]:
        """Those first without whom the gang is not enough; among them the largest: small pods spread out would fragment
        the nodes that the large ones need."""
        shapes = {pod.shape for pod in pods}
        if len(shapes) == 1 and not group.tasks_with_minimum:
            return [*pods]
        sizes = {shape: self._size(shape) for shape in shapes}
        by_size = sorted(pods, key=lambda pod: -sizes[pod.shape])
        there = self._groups.members(group.key)
        missing = {task: least - there.tasks_scheduled[task] for task, least in group.tasks_with_minimum.items()}
        needed: dict[PodInfo, None] = {}
        for pod in by_size:
            if missing.get(task_of(pod), 0) > 0:
                missing[task_of(pod)] -= 1
                needed[pod] = None
        rest = sorted((pod for pod in by_size if pod not in needed), key=lambda pod: -pod.priority)
        count = max(0, group.min_count - there.scheduled_count - len(needed))
        first = sorted((*needed, *rest[:count]), key=lambda pod: -sizes[pod.shape])
        return [*first, *rest[count:]]

    def _size(self, shape: PodShape) -> float:
        """The largest share of the biggest node that a pod of the shape takes of any resource."""
        shares = [0.0]
        for resource, amount in shape.needs.items():
            row = self._cluster.column(resource)
            most = 0 if row is None else int(self._cluster.allocatable[row].max(initial=0))
            shares.append(amount / most if most else float(amount > 0))
        return max(shares)

    # Placing

    def place(
        self, trial: Trial, group: Group, members: Sequence[PodInfo], within: NodeMask | None, explain: bool = True
    ) -> Seats:
        """As many members as fit, if they are enough. `members` as `in_order` has them. Without `explain` a shortage
        has no diagnosis: that costs as much as a pass over all nodes."""
        plugins = self._plugins_of(members[0])
        if plugins is not None:
            return self._place_as_told(plugins, trial, group, members, within, explain)
        shortage: Shortage | None = None
        for site in self._tried(group, members, within):
            if isinstance(site, NoDomain):
                return Seats({}, shortage or site)
            mark = trial.mark
            nodes = self._fill_site(trial, group, members, site.areas)
            if self.is_enough(group, nodes):
                return Seats(nodes)
            if shortage is None or len(nodes) > shortage.placed:
                shortage = self._shortage(members, nodes, site.areas[-1], explain)
            trial.undo(mark)
        return Seats({}, shortage)

    def _fill_site(
        self, trial: Trial, group: Group, members: Sequence[PodInfo], areas: Areas, watch: Watch | None = None
    ) -> dict[PodInfo, str]:
        if watch is not None and not watch.goes_on():
            return {}
        if group.parts:
            return self._fill_parts(trial, group, members, areas, watch)
        return self._fill(trial, members, areas, watch)

    def is_enough(self, group: Group, placed: Mapping[PodInfo, str]) -> bool:
        there = self._groups.members(group.key)
        if not placed or len(placed) + there.scheduled_count < group.min_count:
            return False
        if group.tasks_with_minimum:
            tasks = there.tasks_scheduled + Counter(task_of(pod) for pod in placed)
            if short_task(group, tasks) is not None:
                return False
        return not any(parts.min_parts for parts in group.parts) or self._has_parts(group, placed)

    def _has_parts(self, group: Group, placed: Mapping[PodInfo, str]) -> bool:
        sizes: Counter[PartKey | None] = Counter(part_of(group, pod) for pod in placed)
        sizes.update(part_of(group, pod) for pod, _ in self._groups.members(group.key).scheduled())
        ready: Counter[int] = Counter()
        for key, size in sizes.items():
            if key is not None and size >= group.parts[key[0]].size:
                ready[key[0]] += 1
        return all(ready[number] >= parts.min_parts for number, parts in enumerate(group.parts))

    def _shortage(
        self, members: Sequence[PodInfo], placed: Mapping[PodInfo, str], within: NodeMask | None, explain: bool
    ) -> Shortage:
        missing = {self._judge(pod): None for pod in members if pod not in placed} if explain else {}
        if not missing:
            return Shortage(len(placed), None, frozenset())
        plugins = frozenset[str]().union(*(judgement.rejected_by() for judgement in missing))
        return Shortage(len(placed), next(iter(missing)).diagnosis(within), plugins)

    def _fill(
        self, trial: Trial, members: Sequence[PodInfo], areas: Areas, watch: Watch | None = None
    ) -> dict[PodInfo, str]:
        """As many members as fit, one after another, each seeing those before it."""
        placed: dict[PodInfo, str] = {}
        left = list(members)
        while left:
            full: dict[Judgement, int] = {}  # areas that have no room for a class: room only shrinks here
            if watch is None:
                missed = [pod for pod in left if not self._put(trial, pod, areas, full, placed)]
            else:
                missed = []
                for pod in left:
                    if not self._put(trial, pod, areas, full, placed):
                        missed.append(pod)
                    watch.tried(pod, pod in placed, is_over=not _needs_others(pod))
                    if not watch.goes_on():
                        return placed
            if len(missed) == len(left) or not any(_needs_others(pod) for pod in missed):
                break
            left = missed
        return placed

    def _put(
        self,
        trial: Trial,
        pod: PodInfo,
        areas: Areas,
        full: dict[Judgement, int],
        placed: dict[PodInfo, str],
    ) -> bool:
        judgement = self._judge(pod)
        for number in range(full.get(judgement, 0), len(areas)):
            slot = judgement.best(self._choice(len(placed)), areas[number])
            if slot is not None:
                full[judgement] = number
                placed[pod] = self._cluster.names[slot]
                trial.assign(pod, placed[pod])
                return True
        full[judgement] = len(areas)
        return False

    # Plugins for groups

    def _place_as_told(
        self,
        plugins: GroupPlugins,
        trial: Trial,
        group: Group,
        members: Sequence[PodInfo],
        within: NodeMask | None,
        explain: bool,
    ) -> Seats:
        """As `place`. Where plugins score, a few of the sites that hold the gang are filled, and the best is taken."""
        problem: NoDomain | Shortage | Objection | None = None
        held: list[Held] = []
        for site in islice(self._sites(plugins, group, members, within), _MOST_SITES):
            if not isinstance(site, Site):
                problem = problem or site
                break
            mark, watch = trial.mark, plugins.watch(group, self._groups.members(group.key), members)
            nodes = self._fill_site(trial, group, members, site.areas, watch)
            objection, is_enough = watch.conclude(), self.is_enough(group, nodes)
            if is_enough and objection is None:
                if not plugins.scorers:
                    return Seats(nodes)
                placement = Placement(site.name, self._open(site.areas[-1]))
                held.append(Held(nodes, plugins.rate(group, self._cluster, placement, nodes)))
            elif objection is not None and (is_enough or objection.code is not Code.WAIT):
                problem = problem if isinstance(problem, Objection) else objection
            elif problem is None or (isinstance(problem, Shortage) and len(nodes) > problem.placed):
                problem = self._shortage(members, nodes, site.areas[-1], explain)
            trial.undo(mark)
            if len(held) == _TRIES:
                break
        if not held:
            return Seats({}, problem)
        best = plugins.best(held)
        for pod, node in best.nodes.items():
            trial.assign(pod, node)
        return Seats(best.nodes)

    def _sites(
        self, plugins: GroupPlugins, group: Group, members: Sequence[PodInfo], within: NodeMask | None
    ) -> Iterator[Site | NoDomain | Objection]:
        """What is tried where plugins say where: each of their placements, and in it each domain that the gang's own
        topology asks for."""
        if not plugins.generators:
            yield from self._tried(group, members, within)
            return
        found = plugins.generate(group, self._cluster, Placement(ALL_NODES, self._open(within)))
        if isinstance(found, Objection):
            yield found
            return
        problem: NoDomain | None = None
        for placement in self._likely_first(group, members, found):
            for site in self._tried(group, members, placement.nodes):
                if isinstance(site, NoDomain):
                    problem = problem or site
                else:
                    inner = "" if site.name == ALL_NODES else f"/{site.name}"
                    yield site._replace(name=placement.name + inner)
        if problem is not None:
            yield problem

    def _likely_first(
        self, group: Group, members: Sequence[PodInfo], placements: Sequence[Placement]
    ) -> Sequence[Placement]:
        """Those where members are already, then those that hold enough by their numbers; else as they were given."""
        there = self._groups.members(group.key)
        pinned = self._slots([node for _, node in there.scheduled()])
        need = max(1, group.min_count - there.scheduled_count)
        room = [(pods_per_node(self._cluster, demand), demand.count) for demand in self._demands(members, None)]

        def rank(placement: Placement) -> tuple[int, bool]:
            fitting = sum(min(int(counts[placement.nodes].sum()), count) for counts, count in room)
            return int((~placement.nodes[pinned]).sum()), fitting < need

        return sorted(placements, key=rank)

    def _open(self, within: NodeMask | None) -> NodeMask:
        existing: NodeMask = self._cluster.exists[: self._cluster.width]
        return existing.copy() if within is None else existing & within

    # Parts

    def _fill_parts(
        self, trial: Trial, group: Group, members: Sequence[PodInfo], areas: Areas, watch: Watch | None
    ) -> dict[PodInfo, str]:
        placed: dict[PodInfo, str] = {}
        outside = areas[-1]
        for part in self._parts(group, members):
            pending = part.pending if isinstance(part, _Part) else part
            if isinstance(part, _Part):
                placed |= self._fill_part(trial, part, outside, areas)
            else:
                placed |= self._fill(trial, part, areas)
            if watch is not None:
                for pod in pending:
                    watch.tried(pod, pod in placed)
                if not watch.goes_on():
                    break
        return placed

    def _parts(self, group: Group, members: Sequence[PodInfo]) -> list[_Part | list[PodInfo]]:
        """In the order in which they are placed: parts that the gang needs, the largest first; members of no part; the
        other parts."""
        found: dict[PartKey, _Part] = {}
        loose: list[PodInfo] = []
        for pod in members:
            key = part_of(group, pod)
            if key is None:
                loose.append(pod)
            else:
                found.setdefault(key, _Part(group.parts[key[0]])).pending.append(pod)
        ready: Counter[int] = Counter()
        for pod, node in self._groups.members(group.key).scheduled():
            key = part_of(group, pod)
            if key is not None:
                found.setdefault(key, _Part(group.parts[key[0]])).there.append(node)
        for key, part in found.items():
            ready[key[0]] += part.is_complete
        needed, others = [], []
        for key, part in sorted(found.items(), key=lambda item: (not item[1].there, -len(item[1].pending))):
            if not part.pending:
                continue
            if not part.is_complete and ready[key[0]] < part.rules.min_parts:
                ready[key[0]] += 1
                needed.append(part)
            else:
                others.append(part)
        needed.sort(key=lambda part: -len(part.pending))
        return [*needed, *([loose] if loose else []), *others]

    def _fill_part(self, trial: Trial, part: _Part, outside: NodeMask | None, areas: Areas) -> dict[PodInfo, str]:
        """Nothing where fewer than must go together have a place."""
        # One that has nobody anywhere goes where all of it fits: what comes later can then still be with it.
        count = len(part.pending) if not part.there else max(1, part.rules.size - len(part.there))
        choices: Iterator[Site | NoDomain] = iter([Site(ALL_NODES, areas)])
        if part.rules.topology is not None:
            choices = self._areas(part.rules.topology, part.pending, count, self._slots(part.there), outside)
        for site in choices:
            if isinstance(site, NoDomain):
                break
            mark = trial.mark
            placed = self._fill(trial, part.pending, site.areas)
            if len(placed) + len(part.there) >= part.rules.size:
                return placed
            trial.undo(mark)
        return {}

    # Domains

    def _tried(self, group: Group, members: Sequence[PodInfo], within: NodeMask | None) -> Iterator[Site | NoDomain]:
        if group.topology is None:
            yield Site(ALL_NODES, [within])
            return
        there = self._groups.members(group.key)
        need = max(1, group.min_count - there.scheduled_count)
        pinned = self._slots([node for _, node in there.scheduled()])
        problem: NoDomain | None = None
        for site in self._areas(group.topology, members, need, pinned, within):
            if isinstance(site, NoDomain):
                problem = site
            else:
                yield site
        if need < len(members) and len({pod.shape for pod in members}) > 1:
            smallest = sorted(members, key=lambda pod: self._size(pod.shape))  # the largest may fit nowhere
            for site in self._areas(group.topology, smallest, need, pinned, within):
                if not isinstance(site, NoDomain):
                    yield site
        assert problem is not None
        yield problem

    def _areas(
        self, topology: Topology, members: Sequence[PodInfo], need: int, pinned: Slots, within: NodeMask | None
    ) -> Iterator[Site | NoDomain]:
        """Domains for `need` of the members, each as areas to be filled one after the other, of which the last is the
        whole domain. NoDomain comes last."""
        demands = self._demands(members[:need], within)
        levels, requirement = self.levels(topology)
        found = candidates(self._cluster, demands, levels, requirement, pinned)
        for domain in islice(found, _TRIES):
            if isinstance(domain, NoDomain):
                yield domain
                return
            nodes = domain.nodes if within is None else domain.nodes & within
            yield Site(domain.name or ALL_NODES, [*self._narrower(levels, domain, nodes, demands, pinned), nodes])
        yield NoDomain(need, ())

    def _narrower(
        self, levels: Sequence[Level], domain: Domain, nodes: NodeMask, demands: Sequence[Demand], pinned: Slots
    ) -> list[NodeMask]:
        """The narrowest domains inside, those that are nearest to members first, then those that hold most, at each
        level on the way down."""
        position = next((number for number, level in enumerate(levels) if level.name == domain.level), -1)
        inner = levels[position + 1 :]
        if not inner:
            return []
        room = sum(
            (pods_per_node(self._cluster, demand) for demand in demands), np.zeros(self._cluster.width, np.int64)
        )
        room = np.where(nodes, room, 0)
        taken = np.bincount(pinned, minlength=self._cluster.width) if len(pinned) else np.zeros_like(room)
        narrowest = inner[-1]
        numbers = np.flatnonzero(narrowest.sums(room) > 0)
        if len(numbers) > _MOST_AREAS:
            return []
        masks = {int(number): narrowest.nodes(int(number)) & nodes for number in numbers}
        ranks = [(level.sums(taken), level.sums(room), level) for level in inner]

        def order(number: int) -> list[tuple[int, int, int]]:
            slot = np.flatnonzero(masks[number])[:1]
            keys = []
            for near, size, level in ranks:
                above = number if level is narrowest else int(np.argmax(level.containing(slot)))
                keys.append((-int(near[above]), -int(size[above]), above))
            return keys

        return [masks[number] for number in sorted(masks, key=order)]

    def _demands(self, members: Sequence[PodInfo], within: NodeMask | None) -> list[Demand]:
        """By shape, with the nodes that are right for each."""
        by_shape: dict[PodShape, list[PodInfo]] = {}
        for pod in members:
            by_shape.setdefault(pod.shape, []).append(pod)
        demands = []
        for shape, pods in by_shape.items():
            feasible = self._judge(pods[0]).steady_mask()
            demands.append(Demand(shape.needs, len(pods), feasible if within is None else feasible & within))
        return demands

    def levels(self, topology: Topology) -> tuple[Sequence[Level], Requirement]:
        """The domains that there are, from wide to narrow, and which of them will do."""
        if topology.keys:
            levels = [LabelLevel.of(self._cluster, key) for key in topology.keys]
            return levels, Requirement(topology.mode, len(levels) - 1)
        if self._tree is None or self._tree_version != self._cluster.nodes_version:
            self._tree = HyperNodes(self._views, self._cluster)
            self._tree_version = self._cluster.nodes_version
        return self._tree.levels, self._tree.requirement(topology)

    def _slots(self, nodes: Sequence[str]) -> Slots:
        known = self._cluster.slots
        return np.array([known[node] for node in nodes if node in known], dtype=np.intp) if nodes else _NOWHERE


def _needs_others(pod: PodInfo) -> bool:
    """Whether members that are placed later may make room for it."""
    affinity = pod.spec.affinity
    return bool(pod.spec.topology_spread_constraints) or (affinity is not None and affinity.pod_affinity is not None)
