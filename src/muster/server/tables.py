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
    printer = columns.of(view.target.kind)
    return raw.encode(
        {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{view.version}",
            "metadata": meta,
            # Within a watch only the first table says what the columns are.
            "columnDefinitions": [column.definition() for column in printer.columns] if has_columns else None,
            "rows": [_row(view, printer, found) for found in items],
        }
    )


def _row(view: TableView, printer: columns.Printer, found: Object) -> Document:
    row: Document = {"cells": list(printer.cells(found, view.now))}
    if view.inclusion == "Object":
        row["object"] = versions.document(found, view.target)
    elif view.inclusion == "Metadata":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"meta.k8s.io/{view.version}",
            "metadata": found.document()["metadata"],
        }
    return row
