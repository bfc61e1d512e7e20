from typing import Any

import pytest

from muster.api import core
from muster.api.reading import read


def test_a_good_document_is_read_and_nulls_count_as_absent() -> None:
    found = read(core.NodeSelectorTerm, {"matchFields": None, "matchExpressions": [{"key": "a", "values": None}]})
    assert found == core.NodeSelectorTerm(match_expressions=(core.NodeSelectorRequirement(key="a"),))


@pytest.mark.parametrize(
    ("document", "errors"),
    [
        ([], ["at: expected an object, found array"]),
        (None, ["at: expected an object, found null"]),
        ({"x": 1, "matchFields": [{"y": 2}]}, ["at.x: unknown field", "at.matchFields[0].y: unknown field"]),
        ({"matchFields": [{"key": 5}]}, ["at.matchFields[0].key: Expected `str`, got `int`"]),
    ],
)
def test_every_wrong_field_is_named(document: Any, errors: list[str]) -> None:
    found = read(core.NodeSelectorTerm, document, "at")
    assert isinstance(found, list)
    assert [str(error) for error in found] == errors


def test_a_document_that_is_the_whole_has_paths_without_a_prefix() -> None:
    found = read(core.NodeSelectorTerm, {"nope": 1})
    assert isinstance(found, list)
    assert [error.path for error in found] == ["nope"]
