"""Filling in documents that nobody has checked yet: every function accepts any shape and leaves wrong ones alone.

Defaults run before validation, so they must not raise; the view's decoder names what has the wrong type.
"""

from collections.abc import Iterator

from muster.api import raw
from muster.api.raw import JSON, Document


def drop_nulls(document: JSON) -> None:
    """Remove fields that are null, in place: to Kubernetes they are absent, and Go clients send many."""
    if not _may_have_nulls(document):
        return
    pending = [document]  # not recursive: a hostile document may be nested deeper than the stack
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for key in [key for key, item in value.items() if item is None]:
                del value[key]
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _may_have_nulls(document: JSON) -> bool:
    """Most documents have none, and to look at their bytes is far cheaper than to walk them."""
    try:
        return b"null" in raw.encode(document)
    except RecursionError:
        return True


def child(document: JSON, *path: str) -> Document:
    """The object at `path`; where there is none, an empty one that belongs to nobody."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def made_child(document: Document, key: str) -> Document:
    """The object at `key`, made where absent; where something else stands, an empty one that belongs to nobody."""
    if document.get(key) is None:
        document[key] = {}
    return child(document, key)


def objects(document: JSON, *path: str) -> Iterator[Document]:
    """The objects in the list at `path`."""
    *outer, last = path
    found = child(document, *outer).get(last)
    if isinstance(found, list):
        for item in found:
            if isinstance(item, dict):
                yield item


def fill(document: Document, key: str, value: JSON) -> None:
    """Set a field that is absent or empty text."""
    if document.get(key) in (None, ""):
        document[key] = value


def fill_number(document: Document, key: str, value: int) -> None:
    """Set a number that is absent or zero: for fields where Kubernetes cannot tell the two apart."""
    if document.get(key) in (None, 0):
        document[key] = value


def text(document: Document, key: str) -> str:
    found = document.get(key)
    return found if isinstance(found, str) else ""
