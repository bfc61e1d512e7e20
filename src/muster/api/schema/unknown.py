"""Fields of a document that its view does not know: what `fieldValidation=Warn|Strict` reports."""

from collections.abc import Iterator

from muster.api.meta import View
from muster.api.raw import JSON, Document
from muster.api.schema import shapes
from muster.api.schema.shapes import Form, Shape


def unknown_fields(view: type[View], document: Document) -> list[str]:
    """Paths, in document order, of fields that the view tree does not know: `spec.containers[0].foo`."""
    return list(_unknown(shapes.of_view(view), document, ""))


def _unknown(shape: Shape, value: JSON, path: str) -> Iterator[str]:
    if isinstance(value, dict) and shape.form is Form.STRUCT:
        known = shape.fields
        for name, item in value.items():
            below = f"{path}.{name}" if path else name
            if name in known:
                yield from _unknown(known[name], item, below)
            else:
                yield below
    elif isinstance(value, list) and shape.form is Form.LIST and shape.element.form in (Form.STRUCT, Form.LIST):
        for index, item in enumerate(value):
            yield from _unknown(shape.element, item, f"{path}[{index}]")
