"""Volcano's HyperNodes as levels of a topology. Each is a set of nodes: named, matched, or of HyperNodes below it."""

import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from muster.api import selectors, volcano
from muster.api.meta import LabelSelector, Resource
from muster.cluster.groups import Mode, Topology
from muster.cluster.state import ClusterState
from muster.placement.domains import Requirement, TreeLevel

Slots = npt.NDArray[np.intp]


class HyperNodes:
    """The tree as it is for one set of nodes: built anew when nodes come or go, or labels or HyperNodes change."""

    def __init__(self, hypernodes: Sequence[volcano.HyperNode], cluster: ClusterState) -> None:
        self._cluster = cluster
        self._by_name = {found.metadata.name: found for found in hypernodes}
        self._slots: dict[str, Slots] = {}
        self.problems: list[str] = []
        """What is wrong with the tree: members left out, for the administrator to see."""
        for name in sorted(self._by_name, key=lambda name: _tier(self._by_name[name])):  # what is below comes first
            self._resolve(name, ())
        self.tiers: tuple[int, ...] = tuple(sorted({_tier(found) for found in hypernodes}, reverse=True))
        """From wide to narrow, as `levels`."""
        self.levels: tuple[TreeLevel, ...] = tuple(self._level(tier) for tier in self.tiers)

    def slots(self, name: str) -> Slots:
        """The nodes below a HyperNode."""
        return self._slots[name]

    def requirement(self, topology: Topology) -> Requirement:
        """What a group asks of these levels. Above the highest tier there is, as Volcano has it, one that all nodes are
        in; and a tier that is not said, or has a name that no HyperNode knows, is no limit."""
        highest = topology.highest_tier
        if topology.highest_tier_name:
            named = [_tier(h) for h in self._by_name.values() if h.spec.tier_name == topology.highest_tier_name]
            highest = max(named, default=None)
        if topology.mode is not Mode.REQUIRED:
            return Requirement(topology.mode)
        if highest is None or highest > max(self.tiers, default=0):
            return Requirement(Mode.SOFT)
        return Requirement(Mode.REQUIRED, sum(tier > highest for tier in self.tiers))

    def _level(self, tier: int) -> TreeLevel:
        members = {name: self._slots[name] for name, found in self._by_name.items() if _tier(found) == tier}
        return TreeLevel.of(_level_name(tier, self._by_name), members, self._cluster.width)

    def _resolve(self, name: str, above: tuple[str, ...]) -> Slots:
        known = self._slots.get(name)
        if known is not None:
            return known
        if name in above:
            self.problems.append(f"HyperNode {name} is below itself: {' > '.join((*above, name))}")
            return np.zeros(0, dtype=np.intp)
        found: list[Slots] = []
        for member in self._by_name[name].spec.members:
            if member.type == "Node":
                found.append(self._nodes(name, member.selector))
            else:
                found += [self._resolve(below, (*above, name)) for below in self._below(name, member.selector)]
        slots = np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.intp)
        if not above:
            self._slots[name] = slots  # what is found on the way down may have been cut short by a circle
        return slots

    def _nodes(self, name: str, selector: volcano.MemberSelector) -> Slots:
        known = self._cluster.slots
        if selector.label_match is not None:
            return self._labelled(selector.label_match)
        return np.array([known[node] for node in self._named(name, selector, known)], dtype=np.intp)

    def _labelled(self, selector: LabelSelector) -> Slots:
        cluster = self._cluster
        mask = cluster.exists[: cluster.width].copy()
        for key, value in (selector.match_labels or {}).items():
            codes = cluster.labelled(key)
            mask &= False if codes is None else codes == cluster.value_code(value)
        slots = np.flatnonzero(mask)
        if not selector.match_expressions:
            return slots
        chosen = selectors.from_view(selector)
        found = [slot for slot in slots if chosen.matches(_labels(cluster.nodes[slot]))]
        return np.array(found, dtype=np.intp)

    def _below(self, name: str, selector: volcano.MemberSelector) -> list[str]:
        if selector.label_match is not None:
            chosen = selectors.from_view(selector.label_match)
            matching = [other for other, found in self._by_name.items() if chosen.matches(_labels(found))]
        else:
            matching = self._named(name, selector, self._by_name)
        is_named = selector.exact_match is not None  # a pattern that its own HyperNode happens to match is no circle
        return [other for other in matching if other != name or is_named]

    def _named(self, name: str, selector: volcano.MemberSelector, known: Collection[str]) -> list[str]:
        if selector.exact_match is not None:
            return [selector.exact_match.name] if selector.exact_match.name in known else []
        if selector.regex_match is None:
            return []
        try:
            pattern = re.compile(selector.regex_match.pattern)
        except re.error as error:
            self.problems.append(f"HyperNode {name}: pattern {selector.regex_match.pattern!r}: {error}")
            return []
        return [other for other in known if pattern.search(other)]


def _labels(found: Resource | None) -> Mapping[str, str]:
    return {} if found is None else found.metadata.labels or {}


def _tier(hypernode: volcano.HyperNode) -> int:
    return hypernode.spec.tier or 0


def _level_name(tier: int, hypernodes: Mapping[str, volcano.HyperNode]) -> str:
    names = sorted({h.spec.tier_name for h in hypernodes.values() if _tier(h) == tier and h.spec.tier_name})
    return names[0] if names else f"tier {tier}"
