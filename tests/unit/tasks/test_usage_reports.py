"""Usage: every second of every slot, once, on the day and in the month it was."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, insert

from muster.api import errors
from muster.api.meta import Instant
from muster.records.tables_tasks import ALLOCATIONS, JOBS, TASKS
from muster.tasks import usage
from muster.tasks.usage import Period, Usage, Use, totals
from muster.testing import accounts
from muster.testing.accounts import Ground


def at(text: str) -> Instant:
    return Instant(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def a_use(started: float, ended: float | None, slots: int = 1, user: str = "ann", pool: str = "gold") -> Use:
    return Use("a", "COMMAND", 1, user, None, "", pool, slots, ("x",), Instant(started), ended and Instant(ended))  # type: ignore[arg-type]


def days(first: str, count: int) -> list[date]:
    return [date.fromisoformat(first) + timedelta(days=number) for number in range(count)]


def test_a_use_over_midnight_counts_on_both_days() -> None:
    use = a_use(at("2026-01-01T23:00:00"), at("2026-01-02T02:00:00"), slots=4)
    first, second, third = totals([use], Period.DAILY, days("2026-01-01", 3), at("2026-01-09T00:00:00"))
    assert (first.seconds, second.seconds, third.seconds) == (4 * 3600, 4 * 7200, 0)
    assert (second.by_user, second.by_pool, second.by_label) == ({"ann": 28800}, {"gold": 28800}, {"x": 28800})


def test_what_runs_counts_until_now_and_what_has_no_slots_not_at_all() -> None:
    uses = [a_use(at("2026-01-01T10:00:00"), None, 2), a_use(at("2026-01-01T10:00:00"), None, 0)]
    (day,) = totals(uses, Period.DAILY, days("2026-01-01", 1), at("2026-01-01T11:00:00"))
    assert day.seconds == 7200


def test_months_have_their_own_length() -> None:
    use = a_use(at("2025-12-31T00:00:00"), at("2026-03-01T00:00:00"))
    found = totals([use], Period.MONTHLY, [date(2025, 12, 1), date(2026, 1, 1), date(2026, 2, 1)], at("2027-01-01"))
    assert [total.seconds / 86_400 for total in found] == [1, 31, 28]
    assert [usage.text(Period.MONTHLY, total.start) for total in found] == ["2025-12", "2026-01", "2026-02"]


moments = st.integers(0, 20 * 86_400).map(lambda seconds: at("2026-01-01T00:00:00") + seconds)


@given(st.lists(st.tuples(moments, moments, st.integers(0, 8), st.sampled_from("ab")), max_size=8), moments)
def test_nothing_is_lost_or_counted_twice(rows: list[tuple[float, float, int, str]], now: float) -> None:
    uses = [a_use(min(one, other), max(one, other), slots, user) for one, other, slots, user in rows]
    uses.append(a_use(min(now, at("2026-01-03T00:00:00")), None, 3, "c"))
    found = totals(uses, Period.DAILY, days("2026-01-01", 21), now)
    expected = sum((now if use.ended is None else use.ended) - use.started for use in uses for _ in range(use.slots))
    assert sum(total.seconds for total in found) == pytest.approx(max(expected, 0))
    for total in found:
        assert sum(total.by_user.values()) == pytest.approx(total.seconds)
        assert sum(total.by_pool.values()) == pytest.approx(total.seconds)


# Over records


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with accounts.ground(tmp_path) as found:
        yield found


async def an_allocation(ground: Ground, id: str, requested: float, started: float | None, ended: float | None) -> None:
    task = {"id": f"t-{id}", "type": "COMMAND", "user_id": 1, "workspace_id": 1, "created": 0.0}
    task |= {"job_id": f"j-{id}", "config": {"labels": ["b", "a", 7]}}
    run = {"id": id, "task_id": f"t-{id}", "user_id": 1, "pool": "gold", "slots": 2, "phase": "RUNNING"}
    run |= {"requested": requested, "started": started, "ended": ended, "is_open": True, "launch": "", "state": ""}
    job = {"id": f"j-{id}", "type": "COMMAND", "user_id": 1, "created": 0.0}

    def add(connection: Connection) -> None:
        for table, row in ((JOBS, job), (TASKS, task), (ALLOCATIONS, run)):
            connection.execute(insert(table).values(row))

    await ground.database.write(add)


@pytest.mark.postgres
async def test_allocations_are_reported_from_the_records(ground: Ground) -> None:
    now = ground.clock.seconds
    await an_allocation(ground, "done", now - 500, now - 400, now - 100)
    await an_allocation(ground, "runs", now - 90, now - 60, None)
    await an_allocation(ground, "waits", now - 50, None, None)
    books = Usage(ground.database, ground.clock)
    held = await books.between(Instant(now - 200), Instant(now + 999))
    assert [(each.use.allocation, each.seconds, each.use.labels) for each in held] == [
        ("done", 100, ["a", "b"]),
        ("runs", 60, ["a", "b"]),
    ]
    assert held[0].use.workspace_name == "Uncategorized"
    today = datetime.fromtimestamp(now, UTC).date()
    (total,) = await books.totals(Period.DAILY, today, today + timedelta(days=3))
    assert (total.start, total.seconds, total.by_label) == (today, 720, {"a": 720, "b": 720})
    assert await books.totals(Period.DAILY, today + timedelta(days=1), today + timedelta(days=3)) == []
    (waited,) = (await books.waits(["gold", "other"]))["gold"]
    assert (waited.day, waited.seconds) == (today, 65)
    with pytest.raises(errors.BadRequest, match="timestampAfter"):
        await books.between(Instant(2.0), Instant(1.0))


@pytest.mark.parametrize(
    ("period", "text", "found"),
    [(Period.DAILY, "2026-02-28", date(2026, 2, 28)), (Period.MONTHLY, "2026-02", date(2026, 2, 1))],
)
def test_days_are_read(period: Period, text: str, found: date) -> None:
    assert usage.parse_day(period, "startDate", text) == found
    for wrong in ("", "2026", "2026-02-30", "tomorrow", f"{text}x"):
        with pytest.raises(errors.BadRequest, match="startDate: must be as in"):
            usage.parse_day(period, "startDate", wrong)


def test_not_everything_at_once() -> None:
    with pytest.raises(errors.BadRequest, match="startDate"):
        usage.checked(Period.DAILY, date(2026, 2, 1), date(2026, 1, 1))
    with pytest.raises(errors.BadRequest, match="endDate"):
        usage.checked(Period.DAILY, date(1, 1, 1), date(9999, 1, 1))
