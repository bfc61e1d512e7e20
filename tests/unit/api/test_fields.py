"""The shared checks of names, labels, numbers and amounts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import errors, fields

ALPHABET = "ab9-._/A\n é"


@pytest.mark.parametrize("text", ["a", "a-b", "9", "x" * 63])
def test_dns_labels(text: str) -> None:
    assert fields.is_dns_label(text)
    assert not list(fields.dns_label("metadata.name", text))


@pytest.mark.parametrize("text", ["", "-a", "a-", "A", "a.b", "a_b", "a\n", "é", "x" * 64, "../etc"])
def test_texts_that_are_no_dns_label(text: str) -> None:
    assert not fields.is_dns_label(text)
    (error,) = fields.dns_label("metadata.name", text)
    assert error.path == "metadata.name"
    assert error.reason == ("FieldValueInvalid" if text else "FieldValueRequired")


@pytest.mark.parametrize("text", ["a", "a.b", "a-1.b-2", "x" * 63 + "." + "y" * 63, "a" * 253])
def test_dns_subdomains(text: str) -> None:
    assert fields.is_dns_subdomain(text)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a/b", "..", "a" * 254, "a b", "a\n"])
def test_texts_that_are_no_dns_subdomain(text: str) -> None:
    assert not fields.is_dns_subdomain(text)
    assert len(list(fields.dns_subdomain("spec.name", text))) == 1


@pytest.mark.parametrize("text", ["a", "A_b.c-d", "example.com/gpu", "x" * 63, "a.b/" + "y" * 63])
def test_qualified_names(text: str) -> None:
    assert not list(fields.qualified_name("key", text))


@pytest.mark.parametrize("text", ["", "/", "a/", "/a", "a/b/c", "-a", "a-", "A.com/x", "x" * 64, "a b", "a\n"])
def test_texts_that_are_no_qualified_name(text: str) -> None:
    (error,) = fields.qualified_name("key", text)
    assert error.reason == "FieldValueInvalid"


@given(st.text(ALPHABET, max_size=12))
def test_each_kind_of_name_contains_the_stricter_one(text: str) -> None:
    assert not fields.is_dns_label(text) or fields.is_dns_subdomain(text)
    assert not fields.is_dns_label(text) or fields.is_label_value(text)
    assert not text or fields.is_label_value(text) == ("/" not in text and fields.is_qualified_name(text))


def test_labels_check_keys_and_values() -> None:
    found = list(fields.labels("metadata.labels", {"ok": "", "": "x", "a": "-", "b": "y" * 64}))
    assert [e.path for e in found] == ["metadata.labels"] * 3
    assert not list(fields.labels("metadata.labels", None))


def test_annotations_take_any_value_but_not_too_much_in_all() -> None:
    assert not list(fields.annotations("m", {"Example.com/Key": "{}\n" * 100}))
    (error,) = fields.annotations("m", {"a": "x" * 262_144})
    assert error.reason == "FieldValueTooLong"
    (counted_in_bytes,) = fields.annotations("m", {"a": "é" * 131_072})
    assert "262144 bytes" in counted_in_bytes.message


@pytest.mark.parametrize(
    ("text", "count"), [("PATH", 0), ("a b", 0), ("1x", 0), ("", 1), ("A=B", 1), ("a\0", 1), ("é", 1)]
)
def test_environment_names(text: str, count: int) -> None:
    assert len(list(fields.env_name("env", text))) == count


def test_one_of_lists_what_is_supported() -> None:
    assert not list(fields.one_of("p", None, ["a"]))
    assert not list(fields.one_of("p", "a", ["a"]))
    (error,) = fields.one_of("p", "c", ["b", "a"])
    assert str(error) == 'p: Unsupported value: "c": supported values: "a", "b"'


@pytest.mark.parametrize(("value", "is_fine"), [(None, True), (0, True), (1, True), (-1, False)])
def test_non_negative(value: int | None, is_fine: bool) -> None:
    assert (not list(fields.non_negative("p", value))) is is_fine


@pytest.mark.parametrize(("value", "is_fine"), [(None, True), (1, True), (0, False), (-1, False)])
def test_positive(value: int | None, is_fine: bool) -> None:
    assert (not list(fields.positive("p", value))) is is_fine


@given(st.lists(st.sampled_from("abc"), max_size=6))
def test_unique_names_each_repeat_once(values: list[str]) -> None:
    found = list(fields.unique("spec.tasks", values, "name"))
    assert len(found) == len(values) - len(set(values))
    for error in found:
        index = int(error.path.removeprefix("spec.tasks[").removesuffix("].name"))
        assert values[index] in values[:index]


def test_immutable_shows_the_new_value() -> None:
    assert not list(fields.immutable("p", 1, 1))
    (error,) = fields.immutable("p", "a", "b")
    assert str(error) == 'p: Invalid value: "b": field is immutable'


def test_at_most() -> None:
    assert not list(fields.at_most("p", [1, 2], 2))
    (error,) = fields.at_most("p", [1, 2, 3], 2)
    assert str(error) == "p: Too many: 3: must have at most 2 items"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(True, "true"), (False, "false"), (3, "3"), (1.5, "1.5"), (None, "null"), ("a", '"a"'), ([], '"[]"')],
)
def test_values_are_shown_as_in_json(value: object, shown: str) -> None:
    assert str(fields.invalid("p", value, "no")) == f"p: Invalid value: {shown}: no"


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(fields.invalid("p", "x" * 10_000, "no").message) < 300


def test_errors_carry_the_reason_that_clients_look_for() -> None:
    assert fields.required("p").reason == "FieldValueRequired"
    assert fields.forbidden("p", "why") == errors.FieldError("p", "FieldValueForbidden", "Forbidden: why")
    assert fields.duplicate("p", "a").reason == "FieldValueDuplicate"
    assert fields.not_found("p", "a").reason == "FieldValueNotFound"
