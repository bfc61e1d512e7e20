"""Amounts of resources in the columns' units: milli for cpu, whole units for all else, within what can be summed."""

from collections.abc import Mapping

from muster.api import core, quantity
from muster.cluster.columns import PODS

LARGEST_AMOUNT = 2**50
"""Absurd amounts count as this (a pebibyte): thousands of them still add up inside an int64."""


def allocatable_of(node: core.Node) -> dict[str, int]:
    """What a node has for pods. One that does not say how many pods it takes, takes none."""
    found: dict[str, int] = {}
    for name, text in (node.status.allocatable or {}).items():
        try:
            amount = quantity.parse(text)
        except quantity.BadQuantity:
            continue  # status is not validated; one node's nonsense must not stop the placing of all others
        found[name] = amount.milli if name == "cpu" else amount.units
    return clamped(found)


def needs_of(spec: core.PodSpec) -> dict[str, int]:
    """What a pod takes of its node, its place among the node's pods included."""
    return clamped({**core.pod_requests(spec), PODS: 1})


def clamped(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: min(amount, LARGEST_AMOUNT) for name, amount in amounts.items()}
