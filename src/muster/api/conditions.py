"""Conditions: what controllers say of an object, one entry a type, each with the time its status last changed."""

from collections.abc import Iterable

from muster.api import raw
from muster.api.meta import Condition
from muster.api.raw import Document

TRUE = "True"
FALSE = "False"
UNKNOWN = "Unknown"


def find(conditions: Iterable[Condition], type: str) -> Condition | None:
    for condition in conditions:
        if condition.type == type:
            return condition
    return None


def is_true(conditions: Iterable[Condition], type: str) -> bool:
    return _has_status(conditions, type, TRUE)


def is_false(conditions: Iterable[Condition], type: str) -> bool:
    """Said to be false. An absent condition is neither true nor false."""
    return _has_status(conditions, type, FALSE)


def _has_status(conditions: Iterable[Condition], type: str, status: str) -> bool:
    found = find(conditions, type)
    return found is not None and found.status == status


def find_in(document: Document, type: str) -> Document | None:
    """The entry in a document's `status.conditions`."""
    for entry in raw.dig(document, "status", "conditions", default=None) or ():
        if isinstance(entry, dict) and entry.get("type") == type:
            return entry
    return None


def is_true_in(document: Document, type: str) -> bool:
    found = find_in(document, type)
    return found is not None and found.get("status") == TRUE


def set_condition(document: Document, type: str, status: str, reason: str, message: str, now_text: str) -> bool:
    """Put the condition into `status.conditions`, in place; say whether anything changed.

    `lastTransitionTime` moves only with the status: it answers "since when", not "last touched when".
    """
    found = find_in(document, type)
    if found is None:
        entry = {
            "type": type,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": now_text,
        }
        section = raw.section(document, "status")
        section["conditions"] = [*(section.get("conditions") or ()), entry]
        return True
    wanted = {"status": status, "reason": reason, "message": message}
    if all(found.get(key) == value for key, value in wanted.items()):
        return False
    if found.get("status") != status:
        wanted["lastTransitionTime"] = now_text
    found.update(wanted)
    return True


def remove_condition(document: Document, type: str) -> bool:
    """Take the condition out of `status.conditions`, in place; say whether it was there."""
    found = find_in(document, type)
    if found is None:
        return False
    document["status"]["conditions"] = [entry for entry in document["status"]["conditions"] if entry is not found]
    return True
