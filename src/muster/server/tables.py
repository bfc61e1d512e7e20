"""Tables: the form of a list that kubectl prints. Cells come from `columns`; each row carries its object's metadata."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.api import raw
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import Document
from muster.server import columns, versions
from muster.server.paths import Target


@dataclass(frozen=True, slots=True)
class TableView:
    """How a table is wanted. `inclusion` is None, Metadata or Object: how much of the object each row carries."""

    target: Target
    version: str
    inclusion: str
    now: Instant


def encode(view: TableView, items: Sequence[Object], meta: Document, *, has_columns: bool = True) -> bytes:
    return join(view, [row(view, found) for found in items], meta, has_columns=has_columns)


def join(view: TableView, rows: Sequence[bytes], meta: Document, *, has_columns: bool = True) -> bytes:
    """The table of rows that are encoded already."""
    head = {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{view.version}",
        "metadata": meta,
        # Within a watch only the first table says what the columns are.
        "columnDefinitions": [c.definition() for c in columns.of(view.target.kind).columns] if has_columns else None,
    }
    return b"".join((raw.encode(head)[:-1], b',"rows":[', b",".join(rows), b"]}"))


def row(view: TableView, found: Object) -> bytes:
    cells: Document = {"cells": list(columns.of(view.target.kind).cells(found, view.now))}
    if view.inclusion == "Object":
        cells["object"] = versions.document(found, view.target)
    elif view.inclusion == "Metadata":
        cells["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"meta.k8s.io/{view.version}",
            "metadata": found.document()["metadata"],
        }
    return raw.encode(cells)
