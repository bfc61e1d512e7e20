from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import timestamps
from muster.api.meta import Instant

micros = st.integers(-(10**15), 10**15)  # 1938 to 2001 and far beyond a clock's drift


@given(micros)
def test_micro_text_keeps_every_microsecond(count):
    instant = Instant(count / 1_000_000)
    assert timestamps.parse(timestamps.to_micro_text(instant)) == instant


@given(st.integers(-(10**9), 10**11))
def test_text_is_what_the_calendar_says(seconds):
    expected = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert timestamps.to_text(Instant(seconds)) == expected
    assert timestamps.parse(expected) == seconds


def test_text_rounds_down_to_the_second():
    assert timestamps.to_text(Instant(1_767_323_045.999)) == "2026-01-02T03:04:05Z"


SAME = {
    "a zone": "2026-01-02T05:04:05+02:00",
    "a zone west": "2026-01-01T19:04:05-08:00",
    "small letters": "2026-01-02t03:04:05z",
    "a fraction of zero": "2026-01-02T03:04:05.000Z",
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_ways_to_write_one_instant(text):
    assert timestamps.parse(text) == timestamps.parse("2026-01-02T03:04:05Z")


def test_nanoseconds_are_cut_to_microseconds():
    assert timestamps.parse("1970-01-01T00:00:00.123456789Z") == 0.123456


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-02", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z", "2026-02-30T03:04:05Z",
     "2026-01-02 03:04:05Z", "2026-01-02T25:04:05Z", "2026-01-02T03:04:05+99:00", "1767323045"],
)  # fmt: skip
def test_what_is_no_time_says_what_is_expected(text):
    with pytest.raises(timestamps.BadTimestamp, match="RFC 3339"):
        timestamps.parse(text)


@pytest.mark.parametrize(
    ("now", "left"), [(100, 10), (104, 6), (110, 0), (500, 0), (98, 10), (90, 10), (89, 0), (0, 0)]
)
def test_a_wait_ends_whatever_becomes_of_the_clock(now: float, left: float) -> None:
    assert timestamps.left_of(10, Instant(100), Instant(now)) == left
