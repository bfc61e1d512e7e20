"""What holds for server-side apply whatever is applied, edited and forced by whom."""

import contextlib
from collections.abc import Mapping
from typing import Annotated

from hypothesis import given
from hypothesis import strategies as st

from muster.api import applying, errors, raw
from muster.api.meta import MERGED_SET, Resource, View, merge_by
from muster.api.schema import fieldsets, shapes


class Item(View, frozen=True):
    name: str = ""
    value: int | None = None
    words: tuple[str, ...] = ()


class Spec(View, frozen=True):
    size: int | None = None
    items: Annotated[tuple[Item, ...], merge_by("name")] = ()
    tags: Annotated[tuple[str, ...], MERGED_SET] = ()
    table: Mapping[str, Item] | None = None
    inner: Item | None = None


class Thing(Resource, frozen=True):
    spec: Spec = Spec()


SHAPE = shapes.of_view(Thing)
small = st.integers(0, 1)
items = st.fixed_dictionaries(
    {"name": st.sampled_from("abc")}, optional={"value": small, "words": st.lists(st.sampled_from("xy"), max_size=2)}
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "size": small,
        "items": st.lists(items, unique_by=lambda item: item["name"], max_size=3),
        "tags": st.lists(st.sampled_from("xyz"), unique=True, max_size=3),
        "table": st.dictionaries(st.sampled_from("kl"), items, max_size=2),
        "inner": items,
        "novel": st.dictionaries(st.sampled_from("kl"), small | st.lists(small, max_size=2), max_size=2),
    },
)
labels = st.dictionaries(st.sampled_from("kl"), st.sampled_from("12"), max_size=2)
things = st.builds(
    lambda spec, labels: {"apiVersion": "v1", "kind": "T", "metadata": {"name": "t", "labels": labels}, "spec": spec},
    specs,
    labels,
)
steps = st.lists(st.tuples(st.sampled_from(["apply", "force", "update"]), st.sampled_from("AB"), things), max_size=5)


def apply(live, applied, manager, force=False):
    return applying.apply(
        live, applied, view=Thing, manager=manager, force=force, now="2026-01-01T00:00:00Z", api_version="v1"
    )


def play(history):
    """The object after these writes; refused ones leave it as it was."""
    live = None
    for verb, who, thing in history:
        if verb == "update" and live is not None:
            new = raw.copy(thing)
            applying.track_update(live, new, view=Thing, manager=who, now="2026-01-01T00:00:00Z", api_version="v1")
            live = new
        elif verb != "update":
            with contextlib.suppress(errors.Conflict):
                live = apply(live, thing, who, force=verb == "force")
    return live


def managers(document):
    entries = raw.dig(document, "metadata", "managedFields", default=[])
    return {(entry["manager"], entry["operation"]): fieldsets.parse(entry["fieldsV1"]) for entry in entries}


def existing(document):
    """Every path there is, containers too."""
    return fieldsets.compare({}, document, SHAPE).added


@given(steps, things)
def test_applying_twice_is_applying_once(history, applied):
    once = apply(play(history), applied, "A", force=True)
    assert apply(once, applied, "A") == once


@given(steps, things)
def test_what_was_applied_is_there_and_owned(history, applied):
    result = apply(play(history), applied, "A", force=True)
    expected = fieldsets.of_value(applied, SHAPE)
    assert {p for p in expected if p[:1] == ("f:spec",) or "f:labels" in p} <= managers(result)["A", "Apply"] | {()}
    assert apply(result, applied, "fresh")["spec"] == result["spec"], "to apply what is there conflicts with nobody"


@given(steps)
def test_nobody_owns_what_does_not_exist(history):
    live = play(history)
    for owned in managers(live).values():
        assert owned <= existing(live)


@given(steps, things)
def test_without_force_nothing_of_others_changes(history, applied):
    live = play(history)
    others = [fields for who, fields in managers(live).items() if who != ("A", "Apply")]
    try:
        result = apply(live, applied, "A")
    except errors.Conflict:
        return
    found = fieldsets.compare(live or {}, result, SHAPE)
    kept = {who: fields for who, fields in managers(result).items() if who != ("A", "Apply")}
    assert not any(fields & (found.added | found.modified) for fields in others)
    if live is not None and managers(live):
        assert set(kept) <= set(managers(live))


@given(steps, things, things)
def test_giving_everything_up_leaves_what_was_before(history, one, other):
    """An applier that comes and goes leaves others' fields alone."""
    live = apply(play(history), one, "B", force=True)
    try:
        came = apply(live, other, "visitor")
    except errors.Conflict:
        return
    went = apply(came, {"metadata": {"name": "t"}}, "visitor")
    assert all(fields <= existing(went) for fields in managers(went).values())
    assert ("visitor", "Apply") not in managers(went)
    for who, fields in managers(live).items():
        assert fieldsets.with_parents(fields, SHAPE) <= existing(went), who


_steps_of_any_kind: st.SearchStrategy = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.sampled_from([".", "f:a", "f:b", 'k:{"n":1}', 'v:"x"', "i:0"]), inner, max_size=3),
    max_leaves=6,
)


@given(_steps_of_any_kind)
def test_a_set_of_fields_survives_the_wire(tree):
    fields = fieldsets.parse(tree)
    assert fieldsets.parse(fieldsets.to_tree(fields)) == fields


_garbage = st.recursive(
    st.none() | st.integers(0, 1) | st.sampled_from(["FieldsV1", "Apply", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["manager", "operation", "fieldsType", "fieldsV1", "f:a", "k:{", "v:", "."]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=10,
)


@given(_garbage, things)
def test_garbled_ownership_breaks_nothing(garbage, applied):
    live = raw.copy(applied)
    live["metadata"]["managedFields"] = garbage
    assert apply(live, applied, "A")["spec"] == applied["spec"]
