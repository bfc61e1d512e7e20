"""What the views declare about lists must make sense: a misspelt merge key would only show when somebody patches."""

from collections.abc import Mapping

from muster.api import core, everything
from muster.api.meta import ObjectMeta, View
from muster.api.schema import shapes
from muster.api.schema.shapes import Form, Shape


def _views(view: type[View], seen: set[type[View]]) -> set[type[View]]:
    """The view and all that it is built of."""
    if view not in seen:
        seen.add(view)
        for shape in shapes.fields_of(view).values():
            innermost = _innermost(shape)
            if innermost.view is not None:
                _views(innermost.view, seen)
    return seen


def _innermost(shape: Shape) -> Shape:
    return shape if shape.item is None else _innermost(shape.item)


ALL_FIELDS = [
    (f"{view.__qualname__}.{name}", shape)
    for view in set().union(*(_views(kind.view, set()) for kind in everything.REGISTRY))
    for name, shape in shapes.fields_of(view).items()
]


def test_lists_merge_by_fields_that_their_elements_have():
    assert len(ALL_FIELDS) > 500
    for name, shape in ALL_FIELDS:
        if shape.element.form is not Form.ANYTHING:
            assert set(shape.keys) <= set(shape.element.fields), name
        assert not shape.merge_key or shape.merge_key in shape.keys, name
        if shape.is_set:
            assert shape.element.form is Form.SCALAR, name
        if shape.is_patched_by_merging:
            assert shape.form is Form.LIST, name


def test_every_field_has_a_shape_or_says_that_it_has_none():
    for name, shape in ALL_FIELDS:
        if shape.form is Form.ANYTHING:
            assert shape.extensions.get("x-kubernetes-preserve-unknown-fields"), name


class Recursive(View, frozen=True):
    inner: "Recursive | None" = None
    many: tuple["Recursive", ...] = ()
    by_name: Mapping[str, "Recursive"] | None = None


def test_a_view_may_contain_itself():
    inner = shapes.of_view(Recursive).of("inner").of("many").element.of("byName").of("any").of("inner")
    assert inner.view is Recursive


def test_wire_names_are_those_of_the_documents():
    assert "podIP" in shapes.fields_of(core.PodStatus)
    assert shapes.of_view(core.Pod).of("metadata").view is ObjectMeta
    assert shapes.of_view(core.Pod).of("no such field") is shapes.ANYTHING


def test_what_kubernetes_owns_whole_is_atomic():
    pod = shapes.of_view(core.PodSpec)
    assert pod.of("nodeSelector").is_atomic
    assert pod.of("tolerations").is_atomic
    assert not pod.of("containers").is_atomic
    assert shapes.of_view(ObjectMeta).of("ownerReferences").element.is_atomic
    assert not shapes.of_view(ObjectMeta).of("labels").is_atomic
