"""Evictions that Volcano makes and Muster does not, because it promises not to: found from a session's fields."""

from collections.abc import Iterator, Mapping

from muster.api.raw import Document
from muster.quota.amounts import amounts
from tests.conformance.adapters.volcano import limits
from tests.conformance.adapters.volcano.quota_worlds import asked, is_placed, key_of
from tests.conformance.adapters.volcano.sessions import Session
from tests.conformance.cases import Case


def why_not(case: Case, evicted: list[str]) -> str | None:
    """Why ours evicts only these; None where there is no such reason."""
    expected = case.get("expectEvicted") or []
    if not set(evicted) < set(expected):
        return None
    if _takes_from_the_deserving(case, expected):
        return limits.ANCESTORS
    return limits.IN_VAIN if _is_in_vain(case, expected) else None


def _takes_from_the_deserving(case: Case, expected: list[str]) -> bool:
    """Whether somebody above the queue of a victim, further up than Volcano was told to look, is within what it
    deserves."""
    plugin = next((plugin for plugin in limits.plugins(case) if plugin["name"] == "capacity"), {})
    level = int((plugin.get("arguments") or {}).get("ancestorReclaimLevel", 0))
    queues = {queue["metadata"]["name"]: queue for queue in case.get("queues") or ()}
    held = _held(case, queues)
    for pod in case["pods"]:
        if key_of(pod) not in expected:
            continue
        for name in list(_above(limits.queue_of(case, pod), queues))[level + 1 :]:
            deserved = amounts((queues[name].get("spec") or {}).get("deserved"))
            if deserved and all(held[name].get(what, 0) <= amount for what, amount in deserved.items()):
                return True
    return False


def _held(case: Case, queues: Mapping[str, Document]) -> dict[str, dict[str, int]]:
    held: dict[str, dict[str, int]] = {name: {} for name in queues}
    for pod in filter(is_placed, case["pods"]):
        for name in _above(limits.queue_of(case, pod), queues):
            for what, amount in asked(pod["spec"]).items():
                held[name][what] = held[name].get(what, 0) + amount
    return held


def _above(name: str | None, queues: Mapping[str, Document]) -> Iterator[str]:
    """The queue itself, and upwards to below the root."""
    while name is not None and name in queues and name != "root":
        yield name
        name = (queues[name].get("spec") or {}).get("parent")


def _is_in_vain(case: Case, expected: list[str]) -> bool:
    """Whether no gang has a place even with all of them gone."""
    pods = [pod for pod in case["pods"] if key_of(pod) not in expected]
    gang = {"plugins": [{"name": "gang", "enableJobReady": True, "enableJobPipelined": True}]}
    tiers = [gang, *(case.get("tiers") or ())]
    return not Session(case | {"pods": pods, "tiers": tiers, "actions": ["allocate"]}).binds
