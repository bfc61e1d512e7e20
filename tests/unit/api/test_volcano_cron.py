"""Cron schedules, time zones, durations and dependency graphs."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.volcano import cron, durations, graphs


@pytest.mark.parametrize(
    ("text", "minutes", "hours"),
    [
        ("* * * * *", set(range(60)), set(range(24))),
        ("*/15 8-10 * * *", {0, 15, 30, 45}, {8, 9, 10}),
        ("5,10-12 ? * * *", {5, 10, 11, 12}, set(range(24))),
        ("50/4 23 * * *", {50, 54, 58}, {23}),
        ("@hourly", {0}, set(range(24))),
        ("@midnight", {0}, {0}),
    ],
)
def test_minutes_and_hours(text: str, minutes: set[int], hours: set[int]) -> None:
    schedule = cron.parse(text)
    assert schedule.minutes == minutes
    assert schedule.hours == hours


def test_names_of_months_and_days_in_any_case() -> None:
    schedule = cron.parse("0 0 1 JAN,mar-May SUN,fri-Sat")
    assert schedule.months == {1, 3, 4, 5}
    assert schedule.days_of_week == {0, 5, 6}


@pytest.mark.parametrize(
    ("text", "day_of_month", "day_of_week"),
    [("0 0 * * 1", True, False), ("0 0 1 * ?", False, True), ("0 0 */2 * *", False, True), ("0 0 1 * 1", False, False)],
)
def test_which_day_fields_restrict(text: str, day_of_month: bool, day_of_week: bool) -> None:
    schedule = cron.parse(text)
    assert (schedule.is_any_day_of_month, schedule.is_any_day_of_week) == (day_of_month, day_of_week)


@pytest.mark.parametrize(
    ("text", "seconds"), [("@every 90m", 5400.0), ("@every 1h30m10s", 5410.0), ("@every 1ms", 1.0)]
)
def test_a_fixed_pace(text: str, seconds: float) -> None:
    assert cron.parse(text).every_seconds == seconds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "found 0"), ("* * * *", "found 4"), ("* * * * * *", "found 6"), ("60 * * * *", "not from 0 to 59"),
        ("* 24 * * *", "hour"), ("* * 0 * *", "day of month"), ("* * * 13 *", "month"), ("* * * * 7", "day of week"),
        ("5-1 * * * *", "begins after it ends"), ("*/0 * * * *", "greater than 0"), ("a * * * *", "not a number"),
        ("*-5 * * * *", "cannot understand"), ("1,, * * * *", "cannot understand"), ("-1 * * * *", "cannot understand"),
        ("٣ * * * *", "cannot understand"), ("* * * * MON2", "not a number"), ("@daily2", "none of"),
        ("@every", "none of"), ("@every soon", "not a duration"), ("TZ=UTC * * * * *", "time zone"),
        ("CRON_TZ=UTC @daily", "time zone"), ("error schedule", "found 2"), ("99999999999 * * * *", "not a number"),
    ],
)  # fmt: skip
def test_schedules_that_are_none(text: str, why: str) -> None:
    with pytest.raises(cron.BadSchedule, match=why):
        cron.parse(text)


@given(st.text("0123456789*/-,?@ mondec", max_size=24))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    try:
        schedule = cron.parse(text)
    except cron.BadSchedule:
        return
    assert schedule.every_seconds is not None or (schedule.minutes <= set(range(60)) and schedule.days_of_week)


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Etc/GMT+8", "America/Argentina/ComodRivadavia"])
def test_time_zones(name: str) -> None:
    cron.check_time_zone(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Asia/./Shanghai", "unknown"), ("../etc/passwd", "unknown"), ("America/-NewYork", "unknown"),
        ("New York", "unknown"), ("UTC!", "unknown"), ("/UTC", "unknown"), ("Amerrica/New_York", "invalid"),
        ("America", "invalid"), ("Local", "explicit"),
    ],
)  # fmt: skip
def test_time_zones_that_are_none(name: str, why: str) -> None:
    with pytest.raises(cron.BadTimeZone, match=why):
        cron.check_time_zone(name)


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("300ms", 0.3), ("-1.5s", -1.5), ("1h30m", 5400), ("+.5m", 30), ("2us", 2e-6)]
)
def test_durations(text: str, seconds: float) -> None:
    assert durations.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "s", "1 s", "1d", "1h-1m", "9999999999h", "1s" * 40, "١s", "1.2.3s"])
def test_texts_that_are_no_duration(text: str) -> None:
    with pytest.raises(durations.BadDuration):
        durations.parse(text)


@given(st.integers(0, 10**6), st.integers(0, 59))
def test_durations_add_up(hours: int, minutes: int) -> None:
    assert durations.parse(f"{hours}h{minutes}m") == hours * 3600 + minutes * 60


def test_a_cycle_is_named_from_end_to_end() -> None:
    assert graphs.find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert graphs.find_cycle({"a": ["a"]}) == ["a", "a"]
    assert graphs.find_cycle({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}) == []


def test_a_long_chain_is_no_problem() -> None:
    names = [f"t{i}" for i in range(5000)]
    chain: dict[str, list[str]] = {name: [after] for name, after in pairwise(names)}
    chain[names[-1]] = []
    assert graphs.find_cycle(chain) == []


def test_undefined_names_are_told_once() -> None:
    assert graphs.find_undefined({"a": ["x", "a"], "b": ["y", "x"]}) == ["x", "y"]


GRAPHS = st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefx"), max_size=3))


@given(GRAPHS)
def test_a_cycle_is_found_where_no_order_exists(graph: dict[str, list[str]]) -> None:
    waiting = {name: {target for target in targets if target in graph} for name, targets in graph.items()}
    while ready := {name for name, targets in waiting.items() if not targets & waiting.keys()}:
        waiting = {name: targets for name, targets in waiting.items() if name not in ready}
    cycle = graphs.find_cycle(graph)
    assert bool(cycle) == bool(waiting)
    for before, after in pairwise(cycle):
        assert after in graph[before]
