"""The reference page names every method and every key."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from muster.search.config import Mode, Pruner, Sampler, SearcherConfig

_PAGE = (Path(__file__).parents[3] / "docs/reference/search.md").read_text()


@pytest.mark.parametrize("method", get_args(SearcherConfig))
def test_every_key_is_on_the_page(method: type[msgspec.Struct]) -> None:
    tag = method.__struct_config__.tag
    missing = [name for name in (tag, *method.__struct_fields__) if f"`{name}`" not in _PAGE]
    assert missing == []


def test_every_word_is_on_the_page() -> None:
    assert [word for words in (Mode, Sampler, Pruner) for word in words if f"`{word}`" not in _PAGE] == []
