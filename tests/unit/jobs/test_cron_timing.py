"""When schedules come: plain times, days of both kinds, time zones with their gaps and doubled hours."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import timestamps, volcano
from muster.api.meta import Instant
from muster.api.objects import view_of
from muster.jobs.cron import due, timing
from muster.jobs.cron.due import Missed, NeverDue


def following(schedule: str, after: str, zone: str | None = None, count: int = 1) -> list[str]:
    found = timing.read(schedule, zone)
    at: Instant | None = timestamps.parse(after)
    times = []
    for _ in range(count):
        assert at is not None
        at = found.next_after(at)
        times.append(timestamps.to_text(at) if at is not None else "never")
    return times


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2025-03-11T10:00:00Z", "2025-03-11T10:01:00Z"),
        ("* * * * *", "2025-03-11T10:00:59Z", "2025-03-11T10:01:00Z"),
        ("*/5 * * * *", "2025-03-11T10:55:00Z", "2025-03-11T11:00:00Z"),
        ("30 6-16/4 * * 1-5", "2025-03-14T14:30:00Z", "2025-03-17T06:30:00Z"),
        ("0 0 29 2 *", "2025-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 31 2 *", "2025-03-01T00:00:00Z", "never"),
        ("0 0 13 * 5", "2025-06-01T00:00:00Z", "2025-06-06T00:00:00Z"),  # either day, where both are said
        ("0 0 * * 5", "2025-06-01T00:00:00Z", "2025-06-06T00:00:00Z"),
        ("0 0 */2 * 5", "2025-06-02T00:00:00Z", "2025-06-03T00:00:00Z"),
        ("@yearly", "2025-06-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("@every 90s", "2025-06-01T00:00:10Z", "2025-06-01T00:01:40Z"),
        ("59 23 31 12 *", "2025-12-31T23:59:00Z", "2026-12-31T23:59:00Z"),
    ],
)
def test_the_next_time(schedule: str, after: str, expected: str) -> None:
    assert following(schedule, after) == [expected]


def test_times_are_meant_by_the_clocks_of_the_zone() -> None:
    assert following("0 10 * * *", "2025-03-11T00:00:00Z", "Pacific/Honolulu") == ["2025-03-11T20:00:00Z"]
    assert following("TZ=UTC 0 20 * * *", "2025-03-11T00:00:00Z", "Pacific/Honolulu") == ["2025-03-11T20:00:00Z"]
    assert following("30 0 * * *", "2025-03-11T00:00:00Z", "Asia/Kathmandu") == ["2025-03-11T18:45:00Z"]


def test_an_hour_that_is_skipped_does_not_come_and_one_that_is_doubled_comes_twice() -> None:
    zone = "America/New_York"
    assert following("30 2 * * *", "2025-03-08T12:00:00Z", zone, 2) == ["2025-03-10T06:30:00Z", "2025-03-11T06:30:00Z"]
    assert following("30 1 * * *", "2025-11-01T12:00:00Z", zone, 3) == [
        "2025-11-02T05:30:00Z",
        "2025-11-02T06:30:00Z",
        "2025-11-03T06:30:00Z",
    ]


def test_a_day_that_begins_at_one_is_a_day() -> None:
    # In Santiago the clocks skip midnight.
    assert following("0 1 * * *", "2025-09-06T12:00:00Z", "America/Santiago") == ["2025-09-07T04:00:00Z"]
    assert following("0 0 7 9 *", "2025-09-06T12:00:00Z", "America/Santiago") == ["2026-09-07T03:00:00Z"]


PARTS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "5,50", "10-20/3"]),
    st.sampled_from(["*", "2", "*/5", "0,23"]),
    st.sampled_from(["*", "1", "*/9", "28-31"]),
    st.sampled_from(["*", "2", "*/5"]),
    st.sampled_from(["*", "0", "1-5", "6"]),
)


@settings(max_examples=40, deadline=None)
@given(
    PARTS,
    st.integers(1_704_067_200, 1_767_225_600),
    st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "America/Santiago"]),
)
def test_it_is_the_first_minute_that_matches(parts: tuple[str, ...], start: int, zone: str) -> None:
    found = timing.read(" ".join(parts), zone)
    begin = datetime.fromtimestamp(start, UTC)
    expected = None
    minute = begin.replace(second=0, microsecond=0)
    for _ in range(60 * 24 * 3):
        minute += timedelta(minutes=1)
        if matches(found.schedule, minute.astimezone(ZoneInfo(zone))):
            expected = minute.timestamp()
            break
    at = found.next_after(Instant(begin.timestamp()))
    if expected is None:
        assert at is None or at > minute.timestamp()
    else:
        assert at == expected


def matches(schedule, local: datetime) -> bool:
    in_month, in_week = local.day in schedule.days_of_month, local.isoweekday() % 7 in schedule.days_of_week
    is_any = schedule.is_any_day_of_month or schedule.is_any_day_of_week
    is_day = (in_month and in_week) if is_any else (in_month or in_week)
    return (
        is_day and local.month in schedule.months and local.hour in schedule.hours and local.minute in schedule.minutes
    )


def a_cron_job(schedule: str, *, last: str | None = None, deadline: int | None = None) -> volcano.CronJob:
    view = view_of(
        volcano.CRON_JOB,
        {
            "metadata": {"name": "c", "creationTimestamp": "2025-03-11T10:00:00Z"},
            "spec": {"schedule": schedule, "startingDeadlineSeconds": deadline},
            "status": {"lastScheduleTime": last},
        },
    )
    assert isinstance(view, volcano.CronJob)
    return view


def test_a_year_of_missed_runs_is_one_run_and_a_warning() -> None:
    job, every = a_cron_job("* * * * *"), timing.read("* * * * *", None)
    found = due.due(job, every, timestamps.parse("2026-03-11T10:00:30Z"), is_bounded=True)
    assert found.recent == timestamps.parse("2026-03-11T10:00:00Z")
    assert found.missed is Missed.MANY


def test_what_is_before_the_deadline_does_not_count() -> None:
    job, every = a_cron_job("*/5 * * * *", deadline=60), timing.read("*/5 * * * *", None)
    assert due.due(job, every, timestamps.parse("2025-03-11T10:07:00Z"), is_bounded=True).recent is None
    assert due.due(job, every, timestamps.parse("2025-03-11T10:06:00Z"), is_bounded=False).recent is not None


def test_a_schedule_that_never_comes_says_so() -> None:
    job, never = a_cron_job("0 0 31 2 *"), timing.read("0 0 31 2 *", None)
    now = timestamps.parse("2025-03-11T11:00:00Z")
    with pytest.raises(NeverDue):
        due.due(job, never, now, is_bounded=True)
    assert due.delay(job, never, now) == pytest.approx(due.LOOK_AGAIN_SECONDS)
