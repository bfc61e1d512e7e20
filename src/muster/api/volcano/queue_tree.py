"""How a queue fits into the tree of queues: its parent, its depth, and what it may promise next to its siblings.

A queue that names no parent hangs below `root`, which need not exist as an object.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from muster.api import fields, quantity
from muster.api.errors import FieldError
from muster.api.quantity import ZERO, Quantity
from muster.api.scalars import ResourceList
from muster.api.volcano.defaults import DEFAULT_QUEUE, HIERARCHY, ROOT_QUEUE
from muster.api.volcano.views import Queue, QueueSpec

Amounts = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class QueueRules:
    """`protects_root`: what the root may use, deserves and is guaranteed is not for users to set."""

    deepest: int = 5
    protects_root: bool = False


DEFAULT_RULES = QueueRules()


@dataclass(frozen=True, slots=True)
class QueueTree:
    by_name: Mapping[str, Queue]
    _children: Mapping[str, Sequence[Queue]] = field(repr=False)

    @classmethod
    def of(cls, queues: Iterable[Queue]) -> "QueueTree":
        by_name = {queue.metadata.name: queue for queue in queues}
        children: dict[str, list[Queue]] = {}
        for name, queue in by_name.items():
            if name != ROOT_QUEUE:
                children.setdefault(parent_of(queue), []).append(queue)
        return cls(by_name, children)

    def with_queue(self, queue: Queue) -> "QueueTree":
        return QueueTree.of({**self.by_name, queue.metadata.name: queue}.values())

    def children(self, name: str) -> Sequence[Queue]:
        return self._children.get(name, ())

    def ancestors(self, queue: Queue) -> list[Queue]:
        """From the parent upwards, as far as there are objects; a queue that is its own ancestor ends it."""
        found: list[Queue] = []
        seen = {queue.metadata.name}
        while queue.metadata.name != ROOT_QUEUE:
            above = self.by_name.get(parent_of(queue))
            if above is None or above.metadata.name in seen:
                break
            seen.add(above.metadata.name)
            found.append(above)
            queue = above
        return found

    def descendants(self, name: str) -> Iterator[Queue]:
        seen = {name}
        pending = list(self.children(name))
        while pending:
            queue = pending.pop()
            if queue.metadata.name not in seen:
                seen.add(queue.metadata.name)
                pending.extend(self.children(queue.metadata.name))
                yield queue

    def depth(self, queue: Queue) -> int:
        """Below the root, which has depth 0."""
        return 1 + sum(above.metadata.name != ROOT_QUEUE for above in self.ancestors(queue))


def not_found(name: str) -> str:
    return f'queue.scheduling.volcano.sh "{name}" not found'


def parent_of(queue: Queue) -> str:
    return queue.spec.parent or ROOT_QUEUE


def check_queue(
    queue: Queue, old: Queue | None, others: QueueTree, rules: QueueRules = DEFAULT_RULES
) -> list[FieldError]:
    """What is wrong with a queue that is about to be written, given the queues as they are (`old` among them)."""
    tree = others.with_queue(queue)
    found = [*_hierarchy(queue, others)]
    if old is not None and old.spec == queue.spec:
        return found
    if queue.metadata.name == ROOT_QUEUE:
        found += _root(queue.spec, old.spec if old else QueueSpec(), rules)
    else:
        found += _place(queue, old, others, rules)
    if not found:
        found += _amounts_above(queue, tree)
        found += _amounts_below(queue, tree)
    return found


def _hierarchy(queue: Queue, others: QueueTree) -> Iterator[FieldError]:
    """A path of the older kind of hierarchy must not lead through a queue."""
    path = (queue.metadata.annotations or {}).get(HIERARCHY)
    if not path:
        return
    for name, other in others.by_name.items():
        theirs = (other.metadata.annotations or {}).get(HIERARCHY, "")
        if name != queue.metadata.name and theirs.startswith(f"{path}/"):
            message = f"{path} is not allowed to be in the sub path of {theirs} of queue {name}"
            yield fields.invalid("metadata.annotations", path, message)


def _root(spec: QueueSpec, old: QueueSpec, rules: QueueRules) -> Iterator[FieldError]:
    if not rules.protects_root:
        return
    for name, before, after in (
        ("capability", old.capability, spec.capability),
        ("deserved", old.deserved, spec.deserved),
        ("guarantee", old.guarantee, spec.guarantee),
    ):
        if before != after:
            yield fields.forbidden(f"spec.{name}", f"the {name} of queue `{ROOT_QUEUE}` can not be changed")


def _place(queue: Queue, old: Queue | None, others: QueueTree, rules: QueueRules) -> Iterator[FieldError]:
    name, parent = queue.metadata.name, parent_of(queue)
    if parent == name:
        return  # said by the validation of the queue itself
    above = others.by_name.get(parent)
    if parent != ROOT_QUEUE and above is None:
        message = f"failed to get parent queue of queue {name}: {not_found(parent)}"
        yield fields.invalid("spec.parent", parent, message)
        return
    tree = others.with_queue(queue)
    if parent in {below.metadata.name for below in tree.descendants(name)}:
        yield fields.invalid("spec.parent", parent, f"queue {parent} is itself below queue {name}")
        return
    depth = max([tree.depth(queue), *map(tree.depth, tree.descendants(name))])
    if depth > rules.deepest:
        message = f"queue {name} would make the tree {depth} levels deep; at most {rules.deepest} are allowed"
        yield fields.invalid("spec.parent", parent, message)
    has_moved = old is None or parent_of(old) != parent
    if has_moved and above is not None and parent != ROOT_QUEUE:
        pods = allocated_pods(above)
        if pods and not others.children(parent):
            message = f"queue {parent} cannot be the parent queue of queue {name} because it has allocated Pods: {pods}"
            yield fields.invalid("spec.parent", parent, message)


def allocated_pods(queue: Queue) -> int:
    found = quantity.parsed_or_none((queue.status.allocated or {}).get("pods"))
    return found.units if found is not None else 0


def _amounts_above(queue: Queue, tree: QueueTree) -> Iterator[FieldError]:
    """Against the nearest ancestor that limits the resource, and together with the siblings against the parent."""
    name = queue.metadata.name
    ancestors = tree.ancestors(queue)
    for resource, amount in _read(queue.spec.capability).items():
        limits = ((above.metadata.name, _read(above.spec.capability).get(resource)) for above in ancestors)
        nearest = next(((above, limit) for above, limit in limits if limit is not None), None)
        if nearest is not None and amount > nearest[1]:
            message = (
                f"queue {name} capability[{resource}]={amount} exceeds its ancestor's capability: queue {nearest[0]} "
                f"has capability[{resource}]={nearest[1]}"
            )
            yield fields.invalid(f"spec.capability.{resource}", str(amount), message)
    if ancestors and ancestors[0].metadata.name == parent_of(queue):
        yield from _sums(ancestors[0], tree)


def _amounts_below(queue: Queue, tree: QueueTree) -> Iterator[FieldError]:
    name = queue.metadata.name
    below = list(tree.descendants(name))
    for resource, amount in _read(queue.spec.capability).items():
        largest = max((_read(found.spec.capability).get(resource, ZERO) for found in below), default=ZERO)
        if largest > amount:
            message = (
                f"queue {name} capability[{resource}]={amount} is smaller than its descendants' max capability="
                f"{largest}"
            )
            yield fields.invalid(f"spec.capability.{resource}", str(amount), message)
    yield from _sums(queue, tree)


def _sums(parent: Queue, tree: QueueTree) -> Iterator[FieldError]:
    """What a parent promises to its children must be promised to itself. One that states nothing promises freely."""
    children = [child.spec for child in tree.children(parent.metadata.name)]
    for what, path, own, theirs in (
        ("guarantee", "spec.guarantee.resource", _guarantee(parent.spec), map(_guarantee, children)),
        ("deserved", "spec.deserved", _read(parent.spec.deserved), (_read(child.deserved) for child in children)),
    ):
        total: dict[str, Quantity] = {}
        for amounts in theirs:
            for resource, amount in amounts.items():
                total[resource] = total.get(resource, ZERO) + amount
        if own and any(amount > own.get(resource, ZERO) for resource, amount in total.items()):
            message = (
                f"queue {parent.metadata.name} validation failed: sum of children's {what} ({_shown(total)}) exceeds "
                f"parent's {what} limit ({_shown(own)})"
            )
            yield fields.forbidden(path, message)


def _guarantee(spec: QueueSpec) -> Amounts:
    return _read(spec.guarantee.resource if spec.guarantee else None)


def _read(listed: ResourceList | None) -> Amounts:
    """What is no quantity is an error of its own."""
    parsed = {name: quantity.parsed_or_none(value) for name, value in (listed or {}).items()}
    return {name: amount for name, amount in parsed.items() if amount is not None}


def _shown(amounts: Amounts) -> str:
    """As Volcano writes resources: thousandths, but for bytes of memory and whole pods."""
    rest = sorted(name for name in amounts if name not in ("cpu", "memory"))
    scales = {"memory": 1_000_000_000, "pods": 1_000_000_000}
    return ", ".join(
        f"{name} {amounts.get(name, ZERO).nano / scales.get(name, 1_000_000):.2f}" for name in ("cpu", "memory", *rest)
    )


def check_queue_removal(name: str, tree: QueueTree) -> str | None:
    """Why the queue cannot be deleted."""
    if name in (DEFAULT_QUEUE, ROOT_QUEUE):
        return f"`{name}` queue can not be deleted"
    children = sorted(child.metadata.name for child in tree.children(name))
    if children:
        return f"queue {name} can not be deleted because it has {len(children)} child queues: {', '.join(children)}"
    found = tree.by_name.get(name)
    pods = allocated_pods(found) if found else 0
    return f"queue {name} cannot be deleted because it has allocated Pods: {pods}" if pods else None
