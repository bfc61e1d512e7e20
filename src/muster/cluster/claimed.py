"""What the resource claims of a pod take of its node, besides what its containers ask for.

Kubernetes' dynamic resource allocation can hand out CPU and memory of the node itself. Muster allocates no claims, but
a pod that another scheduler allocated some for takes them all the same: its status says so.
"""

from collections.abc import Iterator, Mapping

from muster.api import core, quantity, raw
from muster.api.core.requests import Amounts


def claimed_by(pod: core.Pod) -> list[Amounts]:
    """To be added up. What makes no sense is left out: status is not validated."""
    entries = pod.status.node_allocatable_resource_claim_statuses
    return [amounts for entry in entries for amounts in _of_claim(entry)]


def _of_claim(entry: Mapping[str, object]) -> Iterator[Amounts]:
    containers = entry.get("containers")
    count = len(containers) if isinstance(containers, list | tuple) else 0
    for mapping in _listed(entry, "mapping"):
        yield from _amounts(mapping, "quantity", 1)
    for overhead in _listed(entry, "overhead"):
        yield from _amounts(overhead, "perPod", 1)
        yield from _amounts(overhead, "perContainer", count)


def _listed(entry: Mapping[str, object], field: str) -> list[object]:
    found = entry.get(field)
    return list(found) if isinstance(found, list | tuple) else []


def _amounts(entry: object, field: str, times: int) -> Iterator[Amounts]:
    name, amount = raw.dig(entry, "name"), quantity.parsed_or_none(raw.dig(entry, field))
    if isinstance(name, str) and amount is not None and amount.milli > 0:
        for _ in range(times):
            yield {name: amount}
