"""YAML that is small as a text, and too much for a process."""

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
