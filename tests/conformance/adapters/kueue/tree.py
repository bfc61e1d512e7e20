"""Quota arithmetic and shares (FORMAT.md §6.4)."""

from decimal import Decimal
from math import inf

from muster.quota.amounts import MOST
from muster.quota.shares import Share, share_of
from muster.quota.state import QuotaState
from muster.quota.tree import Node
from tests.conformance.adapters.kueue import building
from tests.conformance.cases import Adapters, Case, Outcome, Passed, compare


def available(case: Case) -> Outcome:
    made, want = building.state(case), case["want"]
    idle = _by_queue(made, lambda node, what: max(0, node.available(what)))
    for queue, nested in (case["inputs"].get("usage") or {}).items():
        building.use(made, queue, nested)
    potential = _by_queue(made, Node.potentially_available)
    return (
        compare("available", _by_queue(made, lambda node, what: max(0, node.available(what))), want["wantAvailable"])
        or compare("potentially available", potential, want["wantPotentiallyAvailable"])
        or compare("available without usage", idle, potential)
        or Passed()
    )


def _by_queue(made: QuotaState, ask) -> dict[str, dict[str, dict[str, int]]]:
    return {
        name: building.nested_amounts({what: min(MOST, ask(queue.node, what)) for what in queue.policy.quotas})
        for name, queue in made.queues.items()
    }


def dominant_share(case: Case) -> Outcome:
    made, inputs = building.state(case), case["inputs"]
    building.use(made, "cq", inputs.get("usage"))
    more = building.flavor_amounts(inputs.get("flvResQ"))
    nodes = [*made.tree.queues.values(), *made.tree.cohorts.values()]
    found = sorted((_described(node, share_of(node, more)) for node in nodes), key=_name)
    return compare("shares", found, sorted(case["want"]["want"], key=_name)) or Passed()


def _described(node: Node, share: Share) -> dict[str, object]:
    return {
        "borrowing": bool(share.borrowed),
        "drName": share.resource,
        "drValue": share.shown,
        "name": node.name,
        "nodeType": "ClusterQueue" if node.is_queue else "Cohort",
    }


def _name(described: dict[str, object]) -> tuple[str, str]:
    return str(described["nodeType"]), str(described["name"])


def borrowing_on(case: Case) -> Outcome:
    made, inputs, want = building.state(case), case["inputs"], case["want"]
    building.use(made, "cq", inputs.get("usage"))
    share = share_of(made.queues["cq"].node)
    asked = building.flavor_amounts(inputs.get("requestedFRs"))
    return (
        compare("borrows", bool(share.borrowed), want["wantBorrowing"])
        or compare("borrows what is asked for", share.borrows_any(asked), want["wantBorrowingOnRequested"])
        or Passed()
    )


def precise_share(case: Case) -> Outcome:
    given = case["inputs"]["drs"]
    share = Share(float(given["unweightedRatio"]), float(given["fairWeight"]))
    return compare("share", _go_text(share.value), case["want"]["want"]) or Passed()


def _go_text(value: float) -> str:
    """As Go writes a number: no exponent, no `.0`."""
    if value == inf:
        return "+Inf"
    text = f"{Decimal(repr(value)):f}"
    return text.removesuffix(".0")


ADAPTERS: Adapters = {
    "cache.scheduler.TestAvailable": available,
    "cache.scheduler.TestDominantResourceShare": dominant_share,
    "cache.scheduler.TestIsBorrowingOn": borrowing_on,
    "cache.scheduler.TestPreciseWeightedShareSerialized": precise_share,
}
