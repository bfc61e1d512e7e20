"""Configurations as text."""

import pytest

from muster.api import errors
from muster.experiments.config import yaml_text

BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_numbers_are_what_determineds_server_takes_for_numbers() -> None:
    text = "{a: 1e-3, b: .5, c: 1., d: -2E5, e: 1_000, f: 0x1f, g: 010, h: 1:30, i: 2024-01-01, j: 1.2.3, k: e5}"
    assert yaml_text.read(text, "config") == {
        "a": 0.001, "b": 0.5, "c": 1.0, "d": -200000.0, "e": 1000, "f": 31, "g": 8,
        "h": "1:30", "i": "2024-01-01", "j": "1.2.3", "k": "e5",
    }  # fmt: skip


def test_parts_that_a_text_shares_are_not_shared() -> None:
    found = yaml_text.read("usual: &u {a: [1], b: 2}\nother: {<<: *u, b: 3}\nsame: *u\n", "config")
    assert found == {"usual": {"a": [1], "b": 2}, "other": {"a": [1], "b": 3}, "same": {"a": [1], "b": 2}}
    found["usual"]["a"].append(2)
    assert found["same"] == {"a": [1], "b": 2}


def test_json_is_yaml_and_nothing_is_an_empty_configuration() -> None:
    assert yaml_text.read('{"a": [1, null, true], "b": {"c": "d"}}', "config") == {
        "a": [1, None, True],
        "b": {"c": "d"},
    }
    assert yaml_text.read("# only a remark\n", "config") == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: [1,\nc: }", "config: line 3, column 4: while parsing a flow node"),
        ("a: 1\na: 2", "config: line 2, column 1: the key 'a' is there already"),
        ("x:\n  - {b: 1, 'b': 2}", "config: line 2, column 12: the key 'b' is there already"),
        ("a: b\n---\nc: d", "config: line 2, column 1: expected a single document"),
        ("- 1", "config: must be an object, found array"),
        ("1: 2", "config: a key must be a text, found 1; put it in quotes"),
        ("on: {yes: 1}", "a key must be a text, found True"),
        ("? [a]\n: 1", "config: line 1, column 3"),
        ("a: {b: [1, .nan]}", "config.a.b[1]: must be a finite number"),
        ("a: 99999999999999999999", "config.a: is too large a number"),
        ("a: " + "9" * 5000, "config: Exceeds the limit"),
        ("a: !!binary aGk=", "config.a: must be a text, number, list or object, found bytes"),
        ("a: !!python/object:os.system x", "config: line 1, column 4: could not determine a constructor"),
        ("a: \x01", "config: unacceptable character #x0001"),
        ("a: &a [*a]", "or they contain themselves"),
        ("[" * 100_000, "config: line 1, column 201: there are more than 200 levels"),
        (BOMB, "there are more than 100000 values"),
    ],
    ids=range(17),
)
def test_what_is_no_configuration_is_told_with_where_it_is_wrong(text: str, says: str) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        yaml_text.read(text, "config")
    assert says in caught.value.message


def test_a_text_has_a_limit() -> None:
    with pytest.raises(errors.TooLarge, match="config: may have 1048576 characters, this has 1048577"):
        yaml_text.read("x" * (yaml_text.LONGEST + 1), "config")
