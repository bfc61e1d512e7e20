"""Reading documents that others wrote: what is missing, null or of another shape reads as nothing."""

from muster.api import raw
from muster.api.raw import JSON, Document


def text(value: JSON, *path: str | int) -> str:
    found = raw.dig(value, *path)
    return "" if found is None else str(found)


def objects(value: JSON, *path: str | int) -> list[Document]:
    """The objects in the list at `path`."""
    found = raw.dig(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def section(value: JSON, *path: str | int) -> Document:
    found = raw.dig(value, *path)
    return found if isinstance(found, dict) else {}
