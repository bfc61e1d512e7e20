"""Label and field selectors: what the text means, that it survives a round trip, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import errors, raw, selectors
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.meta import LabelSelector as LabelSelectorView
from muster.api.meta import LabelSelectorRequirement, Resource
from muster.api.objects import Object
from muster.api.selectors import FieldRequirement, FieldSelector, LabelSelector, Operator, Requirement

WIDGET = Kind("", "v1", "Widget", "widgets", Resource, selectable={"spec.color": lambda view: view.kind})

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9_.]{0,8}[a-z0-9])?", fullmatch=True)
VALUES = st.one_of(st.just(""), NAMES)
INTEGERS = st.integers(-(10**9), 10**9).map(str)


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    operator = draw(st.sampled_from(Operator))
    match operator:
        case Operator.IN | Operator.NOT_IN:
            values = draw(st.frozensets(VALUES, min_size=1, max_size=3))
        case Operator.GREATER | Operator.LESS:
            values = frozenset({draw(INTEGERS)})
        case _:
            values = frozenset()
    return Requirement(draw(NAMES), operator, values)


LABELS = st.dictionaries(NAMES, VALUES, max_size=4)


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("app=web", {"app": "web"}, {"app": "db"}),
        ("app==web", {"app": "web"}, {}),
        ("app!=web", {}, {"app": "web"}),
        ("app", {"app": ""}, {}),
        ("!app", {}, {"app": "x"}),
        ("app in (a, b)", {"app": "b"}, {"app": "c"}),
        ("app notin (a,b)", {}, {"app": "a"}),
        ("app in (a,)", {"app": ""}, {"app": "b"}),
        ("app in ()", {"app": ""}, {}),
        ("n>5", {"n": "6"}, {"n": "5"}),
        ("n<-1", {"n": "-2"}, {"n": "x"}),
        ("example.com/a=1,!b , c in (d)", {"example.com/a": "1", "c": "d"}, {"example.com/a": "1", "c": "d", "b": ""}),
        ("", {"anything": "x"}, None),
    ],
)
def test_text_selects_what_it_says(text: str, matching: dict[str, str], other: dict[str, str] | None) -> None:
    selector = selectors.parse_labels(text)
    assert selector.matches(matching)
    assert other is None or not selector.matches(other)


def test_an_underscore_is_not_part_of_a_number() -> None:
    assert not selectors.parse_labels("n>5").matches({"n": "1_0"})


@pytest.mark.parametrize(
    "text",
    [
        "a b", "a,,b", ",a", "a,", "a=b=c", "!a=b", "a in b", "a in (b", "a in (b c)", "a in (=)", "a in (b,!)",
        "=b", "a=$", "A/B/c", "a>b", "a>--1", "a>", "a>²", "!", "-a", "a in (b))", "x" * 64, "a=" + "b" * 64, "()",
    ],
)  # fmt: skip
def test_text_without_a_meaning_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(errors.BadRequest, match="unable to parse selector"):
        selectors.parse_labels(text)


@given(st.text(alphabet="ab=!,()<> in.-/_1\\\n", max_size=20))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        selector = selectors.parse_labels(text)
    except errors.BadRequest:
        return
    assert selectors.parse_labels(str(selector)) == selector


@given(st.lists(requirements(), max_size=4).map(tuple))
def test_a_selector_survives_its_text(wanted: tuple[Requirement, ...]) -> None:
    selector = LabelSelector(wanted)
    assert selectors.parse_labels(str(selector)) == selector
    assert hash(selectors.parse_labels(str(selector))) == hash(selector)


@given(requirements(), LABELS)
def test_opposites_never_agree(requirement: Requirement, labels: dict[str, str]) -> None:
    opposites = {Operator.IN: Operator.NOT_IN, Operator.EXISTS: Operator.DOES_NOT_EXIST}
    opposites |= {b: a for a, b in opposites.items()}
    if requirement.operator in opposites:
        opposite = Requirement(requirement.key, opposites[requirement.operator], requirement.values)
        assert requirement.matches(labels) is not opposite.matches(labels)


@given(LABELS)
def test_a_selector_of_nothing_stays_so_as_text(labels: dict[str, str]) -> None:
    nothing = selectors.from_view(None)
    assert not nothing.matches(labels)
    assert not selectors.parse_labels(str(nothing)).matches(labels)


def test_a_comparison_without_a_value_matches_nothing() -> None:
    assert not Requirement("a", Operator.GREATER).matches({"a": "1"})


def test_an_empty_view_selects_everything_and_an_absent_one_nothing() -> None:
    assert selectors.from_view(LabelSelectorView()).matches({})
    assert not selectors.from_view(None).matches({})


def test_a_view_needs_labels_and_expressions_to_hold() -> None:
    selector = selectors.from_view(
        LabelSelectorView(
            match_labels={"app": "web"},
            match_expressions=(
                LabelSelectorRequirement(key="tier", operator="In", values=("a", "b")),
                LabelSelectorRequirement(key="old", operator="DoesNotExist"),
            ),
        )
    )
    assert selector.matches({"app": "web", "tier": "b"})
    assert not selector.matches({"app": "web", "tier": "b", "old": ""})
    assert not selector.matches({"tier": "b"})
    assert str(selector) == "app=web,tier in (a,b),!old"


def test_a_view_with_an_unknown_operator_is_refused() -> None:
    view = LabelSelectorView(match_expressions=(LabelSelectorRequirement(key="a", operator="Like"),))
    with pytest.raises(errors.BadRequest, match="'Like'"):
        selectors.from_view(view)


def an_object(name: str = "x", namespace: str = "ns", kind_text: str = "red") -> Object:
    return Object(WIDGET, raw.encode({"kind": kind_text, "metadata": {"name": name, "namespace": namespace}}))


@pytest.mark.parametrize(
    ("text", "is_match"),
    [
        ("", True),
        ("metadata.name=x", True),
        ("metadata.name==x,metadata.namespace=ns", True),
        ("metadata.name!=x", False),
        (" spec.color = red ", True),
        ("spec.color=red,metadata.name=y", False),
        ("spec.color=", False),
        (",,metadata.name=x,", True),
    ],
)
def test_field_selectors_compare_fields(text: str, is_match: bool) -> None:
    assert selectors.parse_fields(text, WIDGET).matches(an_object()) is is_match


@given(st.text(alphabet="a\\,=!", max_size=6), st.booleans())
def test_a_field_selector_survives_its_text(value: str, is_negated: bool) -> None:
    selector = FieldSelector((FieldRequirement("metadata.name", value, is_negated), FieldRequirement("spec.color", "")))
    assert selectors.parse_fields(str(selector), WIDGET) == selector


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("spec.size=1", "field label not supported"),
        ("metadata.name", "can't understand"),
        ("=x", "can't understand"),
        ("metadata.name=a=b", "write"),
        ("metadata.name=a\\", "write"),
        ("metadata.name=a\\b", "write"),
    ],
)
def test_field_selectors_that_make_no_sense_are_refused(text: str, why: str) -> None:
    with pytest.raises(errors.BadRequest, match=why):
        selectors.parse_fields(text, WIDGET)


@given(st.text(alphabet="metadata.name\\,=! \n", max_size=30))
def test_any_field_text_parses_or_is_refused(text: str) -> None:
    try:
        selector = selectors.parse_fields(text, WIDGET)
    except errors.BadRequest:
        return
    assert selectors.parse_fields(str(selector), WIDGET) == selector


def test_every_selectable_field_of_every_kind_can_be_read_of_an_empty_object() -> None:
    for kind in REGISTRY:
        for path in kind.selectable:
            found = Object(kind, raw.encode({"metadata": {"name": "x"}}))
            assert isinstance(kind.selectable[path](found.view), str), f"{kind} {path}"
