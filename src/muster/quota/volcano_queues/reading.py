"""The tree of queues as it is meant: what each states, in numbers, where it hangs, and what is wrong with it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from muster.api import core, quantity, volcano
from muster.api.scalars import ResourceList
from muster.api.volcano.defaults import HIERARCHY, HIERARCHY_WEIGHTS, ROOT_QUEUE
from muster.api.volcano.queue_tree import parent_of
from muster.quota.amounts import CPU
from muster.quota.volcano_queues.sharing import Amounts

OVERCOMMIT_ANNOTATION: Final = "muster.dev/overcommit-factor"
"""Of the root queue: how many times what the nodes have may be admitted, so that pods stand by when there is room."""
_NOTHING: Amounts = {}
_ONE: Final = quantity.from_units(1)


@dataclass(frozen=True, slots=True)
class Place:
    """A queue in the tree, or a level of the older hierarchy, which only annotations know (`queue` is None)."""

    name: str
    parent: str
    weight: int = 1
    queue: volcano.Queue | None = None
    capability: Amounts = field(default_factory=dict)
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)

    @property
    def is_unlimited(self) -> bool:
        return not (self.capability or self.deserved or self.guarantee)


@dataclass(frozen=True, slots=True)
class Places:
    by_name: Mapping[str, Place]
    """Of those that hang below the root, the root among them."""
    children: Mapping[str, Sequence[Place]]
    """By name, in order of their names."""
    lost: Mapping[str, str]
    """Queues that do not, and why."""

    @property
    def overcommit(self) -> Fraction | None:
        """None where nothing, or nothing that makes sense, is said."""
        queue = self.by_name[ROOT_QUEUE].queue
        said = (queue.metadata.annotations or {}).get(OVERCOMMIT_ANNOTATION) if queue is not None else None
        found = quantity.parsed_or_none(said)
        return Fraction(found.nano, quantity.NANO) if found is not None and found >= _ONE else None

    def below(self, name: str) -> Sequence[Place]:
        return self.children.get(name, ())

    def resources(self) -> list[str]:
        """All that any of them names."""
        parts = (
            part for place in self.by_name.values() for part in (place.capability, place.deserved, place.guarantee)
        )
        return sorted({name for part in parts for name in part})


def read(queues: Iterable[volcano.Queue]) -> Places:
    known = {ROOT_QUEUE: Place(ROOT_QUEUE, "")}
    for queue in queues:
        for place in _places(queue):
            if place.queue is not None or place.name not in known:
                known[place.name] = place
    lost = {name: problem for name in known if (problem := _problem(name, known))}
    found = {name: place for name, place in sorted(known.items()) if name not in lost}
    children: dict[str, list[Place]] = {}
    for place in found.values():
        if place.name != ROOT_QUEUE:
            children.setdefault(place.parent, []).append(place)
    return Places(found, children, lost)


def _places(queue: volcano.Queue) -> Iterable[Place]:
    """The queue, and what is above it by annotation."""
    spec, name = queue.spec, queue.metadata.name
    parent, weight = "" if name == ROOT_QUEUE else parent_of(queue), max(1, spec.weight or 1)
    annotations = queue.metadata.annotations or {}
    path = [part for part in annotations.get(HIERARCHY, "").split("/") if part]
    weights = annotations.get(HIERARCHY_WEIGHTS, "").split("/")
    if parent == ROOT_QUEUE and len(path) > 1 and len(path) == len(weights) and path[0] == ROOT_QUEUE:
        for depth in range(1, len(path) - 1):
            yield Place(_level(path[: depth + 1]), _level(path[:depth]), _weight(weights[depth]))
        parent, weight = _level(path[:-1]), _weight(weights[-1])
    yield Place(
        name,
        parent,
        weight,
        queue,
        _amounts(spec.capability),
        _amounts(spec.deserved),
        _amounts(spec.guarantee.resource if spec.guarantee is not None else None),
    )


def _level(path: Sequence[str]) -> str:
    return ROOT_QUEUE if len(path) == 1 else ".".join(path)


def _weight(text: str) -> int:
    found = quantity.parsed_or_none(text)
    return max(1, found.units) if found is not None else 1


def _amounts(listed: ResourceList | None) -> Amounts:
    """What is no quantity was refused when it was written; where it was not, nothing is said."""
    if not listed:
        return _NOTHING
    parsed = {name: quantity.parsed_or_none(value) for name, value in listed.items()}
    return {
        name: max(0, found.milli if name == CPU else found.units) for name, found in parsed.items() if found is not None
    }


def _problem(name: str, known: Mapping[str, Place]) -> str:
    """Why it does not hang below the root; empty where it does."""
    above: list[str] = [name]
    while (here := above[-1]) != ROOT_QUEUE:
        parent = known[here].parent
        if parent not in known:
            whose = "its parent" if here == name else f"the parent of queue {here}, which it is below,"
            return f"{whose} {parent} does not exist"
        if parent in above:
            circle = above[above.index(parent) :]
            first = circle.index(min(circle))
            names = ", ".join([*circle[first:], *circle[:first]])
            return f"queues are each other's parents, and none leads to the root: {names}"
        above.append(parent)
    return ""


def node_total(nodes: Iterable[core.Node]) -> dict[str, int]:
    """What there is to share: of nodes that say that they are not ready, nothing."""
    total: dict[str, int] = {}
    for node in nodes:
        if any(found.type == "Ready" and found.status != "True" for found in node.status.conditions):
            continue
        for resource, amount in _amounts(node.status.allocatable).items():
            total[resource] = total.get(resource, 0) + amount
    return total
