"""Refuses a pod that no registered node could ever hold: told now it helps, found in an event tomorrow it does not.

Only at the API's edge. A pod that is meant for nodes that have yet to join says so with an annotation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.api import core, errors, quantity, raw
from muster.api.errors import FieldError
from muster.api.objects import Object
from muster.api.quantity import ZERO, Quantity
from muster.api.raw import JSON, Document
from muster.store.protocol import Selection, Store

WAIT_FOR_NODES = "muster.dev/wait-for-nodes"


@dataclass(frozen=True, slots=True)
class Largest:
    """The most of one resource that any one node has."""

    amount: Quantity
    node: str


class Fitting:
    """Keeps what the nodes had when they were last looked at. A pod that fits that is let through without looking; a
    refusal is only ever given after a fresh look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._largest: Mapping[str, Largest] = {}

    async def check(self, pod: Document) -> None:
        """Raises Invalid that names the fields. A pod of wrong shape passes: validation has better words for it."""
        if raw.dig(pod, "metadata", "annotations", WAIT_FOR_NODES) == "true":
            return
        if self._largest and not excesses(pod, self._largest):
            return
        self._largest = largest((await self._store.list(Selection(core.NODE))).items)
        problems = excesses(pod, self._largest) if self._largest else []
        if problems:
            name = raw.dig(pod, "metadata", "name") or raw.dig(pod, "metadata", "generateName") or ""
            raise errors.invalid("Pod", str(name), problems)


def largest(nodes: Sequence[Object]) -> Mapping[str, Largest]:
    found: dict[str, Largest] = {}
    for node in nodes:
        status = node.read(core.Node).status
        for resource, text in (status.allocatable or status.capacity or {}).items():
            amount = quantity.parse(text)
            if resource not in found or amount > found[resource].amount:
                found[resource] = Largest(amount, node.key.name)
    return found


def excesses(pod: Document, available: Mapping[str, Largest]) -> list[FieldError]:
    """What the pod asks for beyond the largest node, one error for each resource, at the field that asks for most."""
    problems = []
    for resource, (total, path) in sorted(_demand(pod).items()):
        most = available.get(resource)
        if total <= (most.amount if most else ZERO):
            continue
        if most is None:
            why = f'no node has any "{resource}": check the name, or'
        else:
            why = f'the largest node, "{most.node}", has {most.amount}: ask for less, use more but smaller pods, or'
        problems.append(
            FieldError(
                path,
                "FieldValueInvalid",
                f'Invalid value: "{total}": the pod asks for {total} {resource} in all, {why} add a node (to wait for '
                f'one, annotate the pod with {WAIT_FOR_NODES}: "true")',
            )
        )
    return problems


def _demand(pod: Document) -> dict[str, tuple[Quantity, str]]:
    """By resource: the pod's whole demand, and the field with the largest part in it. Containers run together;
    init containers one after another before them, except those that stay (restartPolicy Always)."""
    together = list(_requests(pod, "containers"))
    before: list[tuple[str, str, Quantity]] = []
    for index, resource, path, amount in _init_requests(pod):
        (together if _stays(pod, index) else before).append((resource, path, amount))
    overhead = raw.dig(pod, "spec", "overhead")
    together += list(_amounts(overhead, "spec.overhead"))
    demand: dict[str, tuple[Quantity, str]] = {}
    parts: dict[str, Quantity] = {}
    for resource, path, amount in together:
        total, where = demand.get(resource, (ZERO, path))
        is_largest = resource not in parts or amount > parts[resource]
        parts[resource] = max(amount, parts.get(resource, ZERO))
        demand[resource] = (total + amount, path if is_largest else where)
    for resource, path, amount in before:
        if resource not in demand or amount > demand[resource][0]:
            demand[resource] = (amount, path)
    return {resource: found for resource, found in demand.items() if found[0] > ZERO}


def _requests(pod: Document, field: str) -> Iterator[tuple[str, str, Quantity]]:
    for index, container in enumerate(_listed(pod, field)):
        yield from _container_requests(container, f"spec.{field}[{index}]")


def _init_requests(pod: Document) -> Iterator[tuple[int, str, str, Quantity]]:
    for index, container in enumerate(_listed(pod, "initContainers")):
        for resource, path, amount in _container_requests(container, f"spec.initContainers[{index}]"):
            yield index, resource, path, amount


def _stays(pod: Document, index: int) -> bool:
    return bool(raw.dig(pod, "spec", "initContainers", index, "restartPolicy") == "Always")


def _listed(pod: Document, field: str) -> list[JSON]:
    found = raw.dig(pod, "spec", field)
    return found if isinstance(found, list) else []


def _container_requests(container: JSON, path: str) -> Iterator[tuple[str, str, Quantity]]:
    """A limit without a request is a request: Kubernetes defaults it so."""
    requests = raw.dig(container, "resources", "requests")
    asked = requests if isinstance(requests, dict) else {}
    yield from _amounts(asked, f"{path}.resources.requests")
    limits = raw.dig(container, "resources", "limits")
    if isinstance(limits, dict):
        rest = {resource: text for resource, text in limits.items() if resource not in asked}
        yield from _amounts(rest, f"{path}.resources.limits")


def _amounts(listed: JSON, path: str) -> Iterator[tuple[str, str, Quantity]]:
    if not isinstance(listed, dict):
        return
    for resource, text in listed.items():
        if isinstance(text, str | int | float) and not isinstance(text, bool):
            try:
                yield resource, f"{path}[{resource}]", quantity.parse(text)
            except quantity.BadQuantity:
                continue  # validation names it
