"""Patterns of users: what they find, what is refused, and that none of them takes long."""

import time

import pytest

from muster.api.errors import BadRequest
from muster.tasks import patterns


def test_what_is_found() -> None:
    assert patterns.search(r"loss=\d+")("step 3 loss=12")
    assert not patterns.search(r"^loss")("step 3 loss=12")


@pytest.mark.parametrize("pattern", ["a(b", r"(\w)\1", "(?=x)", "[", "x" * 3000, "(?:x{900}){900}"])
def test_what_cannot_be_run_in_bounded_time_is_refused_with_the_name_of_its_field(pattern: str) -> None:
    with pytest.raises(BadRequest, match=r"^searchText: "):
        patterns.search(pattern, "searchText")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a|a?)+b$", "(.*)*(.*)*x"])
def test_a_pattern_that_would_stall_others_does_not(pattern: str) -> None:
    search = patterns.search(pattern)
    started = time.perf_counter()
    assert not search("a" * 50_000 + "!")
    assert time.perf_counter() - started < 2
