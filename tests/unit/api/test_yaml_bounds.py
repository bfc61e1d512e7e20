"""YAML that is small as a text and too much for a process, or that says two things at once."""

import pytest

from muster.api import errors, raw

LINKS = zip("abcdefgh", "bcdefghi", strict=True)
BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in LINKS
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("[" * 100_000, "there are more than 200 levels", id="many levels"),
        pytest.param("- " * 100_000, "there are more than 200 levels", id="many levels of blocks"),
        pytest.param(BOMB, "its aliases stand for more than 1000000 values", id="aliases of aliases"),
        pytest.param("a: &a [*a]", "its aliases stand for more than", id="an alias of itself"),
    ],
)
def test_what_is_too_much_is_refused(text: str, says: str) -> None:
    with pytest.raises(errors.BadRequest, match=says):
        raw.decode_yaml(text)


def test_aliases_are_taken() -> None:
    assert raw.decode_yaml("a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}") == [
        {"a": {"x": 1}, "b": [{"x": 1}, {"x": 1}], "c": {"x": 1, "y": 2}}
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a: 1\nb: {}\na: 2", "line 3, column 1: the key 'a' is there already$", id="twice"),
        pytest.param("x:\n- {a: [1], a: 2}", "line 2, column 12: the key 'a' is there already$", id="further down"),
        pytest.param('{"1": {}, 1: 2}', "the key '1' is there already", id="the same in JSON"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(text: str, says: str) -> None:
    with pytest.raises(errors.BadRequest, match=says):
        raw.decode_yaml(text)


def test_what_is_no_text_is_said_to_be_none() -> None:
    with pytest.raises(errors.BadRequest, match="invalid leading UTF-8 octet"):
        raw.decode_yaml(b"\xbb\x00")


def test_a_key_may_be_a_value_and_stand_in_other_places() -> None:
    assert raw.decode_yaml("a: a\nb: {a: b}\nc: [a, a, {a: a}]\n---\na: 1") == [
        {"a": "a", "b": {"a": "b"}, "c": ["a", "a", {"a": "a"}]},
        {"a": 1},
    ]
    assert raw.decode_yaml("a: &a {x: 1}\nb: {<<: *a, x: 2}") == [{"a": {"x": 1}, "b": {"x": 2}}]
