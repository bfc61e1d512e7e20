from collections.abc import Mapping
from typing import Annotated

from hypothesis import given
from hypothesis import strategies as st

from muster.api import schema
from muster.api.meta import OPAQUE, LabelSelector, Resource, View, merge_by


class Port(View, frozen=True):
    container_port: int | None = None


class Container(View, frozen=True):
    name: str = ""
    pod_ip: str | None = None
    ports: Annotated[tuple[Port, ...], merge_by("containerPort")] | None = None


class ThingSpec(View, frozen=True):
    containers: Annotated[tuple[Container, ...], merge_by("name")] = ()
    selector: LabelSelector | None = None
    by_name: Mapping[str, Container] | None = None
    blob: Annotated[Mapping[str, object] | None, OPAQUE] = None
    words: tuple[str, ...] = ()


class Thing(Resource, frozen=True):
    spec: ThingSpec = ThingSpec()


def test_it_names_what_the_view_does_not_know_at_any_depth():
    document = {
        "apiVersion": "v1",
        "bogus": 1,
        "metadata": {"name": "x", "nom": "y"},
        "spec": {"containers": [{"name": "a"}, {"foo": 1, "ports": [{"containerPort": 1, "port": 2}]}], "x": {"y": 1}},
    }
    assert schema.unknown_fields(Thing, document) == [
        "bogus",
        "metadata.nom",
        "spec.containers[1].foo",
        "spec.containers[1].ports[0].port",
        "spec.x",
    ]


def test_it_does_not_look_into_maps_and_opaque_objects():
    document = {
        "metadata": {"labels": {"any": "key"}},
        "spec": {"blob": {"a": {"b": 1}}, "byName": {"k": {"bogus": 1}}, "selector": {"matchLabels": {"a": "b"}}},
    }
    assert schema.unknown_fields(Thing, document) == []


def test_wrong_types_are_the_decoders_business():
    assert schema.unknown_fields(Thing, {"spec": [1], "metadata": "x", "kind": {"a": 1}}) == []
    assert schema.unknown_fields(Thing, {"spec": {"containers": ["x", None, {"a": 1}]}}) == ["spec.containers[2].a"]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["spec", "metadata", "kind", "foo", "bar"]), _json))
def test_every_top_level_stranger_is_reported_whatever_else_is_there(document):
    found = [path for path in schema.unknown_fields(Thing, document) if "." not in path]
    assert found == [name for name in document if name in ("foo", "bar")]
