"""The quality of service class that Kubernetes derives from a pod's requests and limits of cpu and memory."""

from collections.abc import Iterable, Iterator

from muster.api import quantity
from muster.api.core.requests import CPU, MEMORY
from muster.api.documents import child, objects
from muster.api.raw import JSON, Document

_COUNTED = (CPU, MEMORY)


def qos_class(spec: Document) -> str:
    """Guaranteed, Burstable or BestEffort, from a spec whose defaults have run."""
    parts = [child(spec, "resources")] if _is_set(child(spec, "resources")) else list(_container_resources(spec))
    requests = [_amounts(child(part, "requests")) for part in parts]
    limits = [_amounts(child(part, "limits")) for part in parts]
    if not any(requests) and not any(limits):
        return "BestEffort"
    is_limited = all(len(part) == len(_COUNTED) for part in limits)
    if is_limited and all(_total(requests, name) == _total(limits, name) for name in _COUNTED):
        return "Guaranteed"
    return "Burstable"


def _container_resources(spec: Document) -> Iterator[Document]:
    for container in (*objects(spec, "containers"), *objects(spec, "initContainers")):
        yield child(container, "resources")


def _is_set(resources: Document) -> bool:
    return bool(child(resources, "requests") or child(resources, "limits"))


def _amounts(listed: Document) -> dict[str, int]:
    return {name: nano for name in _COUNTED if (nano := _nano(listed.get(name))) > 0}


def _nano(value: JSON) -> int:
    amount = quantity.parsed_or_none(value)
    return amount.nano if amount is not None else 0


def _total(parts: Iterable[dict[str, int]], name: str) -> int:
    return sum(part.get(name, 0) for part in parts)
