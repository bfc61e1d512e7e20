"""Task logs: what is written is read, once, in order, by whoever asks, until the task ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import update

from muster.api import errors
from muster.records.tables_logs import TASK_LOGS
from muster.runtime.clock import SystemClock
from muster.tasks.log_filters import NO_RANK, Filter
from muster.tasks.log_following import Pages
from muster.tasks.log_lines import Level, Line, Origin, Piece
from muster.tasks.log_records import Fields
from muster.tasks.log_retention import FOREVER, Retention
from muster.tasks.logs import Appended, Query, TaskLogs
from muster.testing.task_logs import ORIGIN, START, Logged, lines, logged, text_of

pytestmark = pytest.mark.postgres


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Logged]:
    async with logged(tmp_path) as found:
        await found.task()
        yield found


async def test_lines_come_back_in_the_order_in_which_they_came(at: Logged) -> None:
    await at.write("task", "a", "b")
    await at.write("task", "c", origin=Origin("task.1", "container-2"))
    await at.write("other", "x")
    assert await at.texts(Query("task")) == ["a", "b", "c"]
    assert await at.texts(Query("task", is_newest_first=True)) == ["c", "b", "a"]
    assert await at.texts(Query("none")) == []


@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_a_long_log_comes_in_pages_and_stops_at_its_limit(at: Logged, is_newest_first: bool) -> None:
    texts = [f"line {number}" for number in range(3500)]
    for start in range(0, 3500, 700):
        await at.write("task", *texts[start : start + 700], start=START + start * 1_000_000)
    expected = texts[::-1] if is_newest_first else texts
    for limit in (0, 1, 699, 700, 701, 3499, 3500, 9999):
        query = Query("task", limit=limit, is_newest_first=is_newest_first)
        assert await at.texts(query) == expected[: limit or None], limit


async def test_a_batch_that_comes_again_is_kept_once(at: Logged) -> None:
    piece = Piece(ORIGIN, lines("a", "b"))
    await asyncio.gather(*(at.logs.append("task", [piece]) for _ in range(5)))
    await at.logs.append("task", [piece, Piece(ORIGIN, lines("c"))])
    assert await at.texts(Query("task")) == ["a", "b", "c"]
    untimed = Piece(ORIGIN, lines("same"), is_timed=False)
    await at.logs.append("task", [untimed])
    await at.logs.append("task", [untimed])
    assert await at.texts(Query("task")) == ["a", "b", "c", "same", "same"]


async def _varied(at: Logged) -> None:
    await at.logs.append("task", [Piece(ORIGIN, [Line(START, "Loading data", Level.DEBUG, 0, "stdout")])])
    await at.logs.append("task", [Piece(ORIGIN, [Line(START + 1, "loss=0.5\n", Level.INFO, 1, "stdout")])])
    other = Origin("task.2", "container-2", "node-2", "agent")
    await at.logs.append("task", [Piece(other, [Line(START + 2, "out of MEMORY", Level.ERROR, None, "stderr")])])


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (Filter(allocations=frozenset({"task.2"})), [2]),
        (Filter(allocations=frozenset({"task.1", "task.2"})), [0, 1, 2]),
        (Filter(containers=frozenset({"container-1"})), [0, 1]),
        (Filter(agents=frozenset({"node-2"})), [2]),
        (Filter(sources=frozenset({"task"})), [0, 1]),
        (Filter(stdtypes=frozenset({"stderr"})), [2]),
        (Filter(ranks=frozenset({1})), [1]),
        (Filter(ranks=frozenset({NO_RANK, 0})), [0, 2]),
        (Filter(levels=frozenset({Level.DEBUG, Level.ERROR})), [0, 2]),
        (Filter(after=START), [1, 2]),
        (Filter(before=START + 1), [0, 1]),
        (Filter(after=START, before=START + 1), [1]),
        (Filter(text="memory"), [2]),
        (Filter(text="L"), [0, 1]),
        (Filter(text="^l", is_regex=True), [1]),
        (Filter(text="=0.[4-6]", is_regex=True, ranks=frozenset({1})), [1]),
        (Filter(text=r"^loss=0\.5$", is_regex=True), [1]),
        (Filter(text="=0.[4-6]", is_regex=True, ranks=frozenset({0})), []),
    ],
)  # fmt: skip
async def test_filters(at: Logged, chosen: Filter, expected: list[int]) -> None:
    await _varied(at)
    texts = ["Loading data", "loss=0.5\n", "out of MEMORY"]
    assert await at.texts(Query("task", chosen)) == [texts[place] for place in expected]
    assert await at.texts(Query("task", chosen, is_newest_first=True)) == [texts[place] for place in expected[::-1]]


async def test_a_filter_that_matches_late_finds_it_beyond_the_first_page(at: Logged) -> None:
    for start in range(0, 3000, 1000):
        await at.write("task", *(f"n{start + place}" for place in range(1000)), start=START + start * 1_000_000)
    assert await at.texts(Query("task", Filter(text="n2999"), limit=1)) == ["n2999"]
    assert await at.texts(Query("task", Filter(text="n0"), limit=1, is_newest_first=True)) == ["n0"]


async def test_what_there_is_to_filter_by(at: Logged) -> None:
    assert await at.logs.fields("task") == Fields()
    await _varied(at)
    assert await at.logs.fields("task") == Fields(
        ("task.1", "task.2"),
        ("node-1", "node-2"),
        ("container-1", "container-2"),
        (0, 1),
        ("stderr", "stdout"),
        ("agent", "task"),
    )


async def test_a_bad_pattern_and_a_followed_descending_order_are_refused(at: Logged) -> None:
    with pytest.raises(errors.BadRequest, match="searchText"):
        await at.texts(Query("task", Filter(text="(", is_regex=True)))
    with pytest.raises(errors.BadRequest, match="orderBy"):
        await at.texts(Query("task", is_newest_first=True, is_followed=True))


# Following


async def test_a_follower_hears_what_comes_and_ends_with_the_task(at: Logged) -> None:
    await at.write("task", "before")
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        followers = [group.create_task(at.texts(Query("task", is_followed=True))) for _ in range(20)]
        late = group.create_task(at.texts(Query("task", Filter(text="a"), is_followed=True)))
        for text in ("a", "b", "c"):
            await asyncio.sleep(0.02)
            await at.write("task", text, start=START + ord(text))
        await at.end("task")
    assert {tuple(follower.result()) for follower in followers} == {("before", "a", "b", "c")}
    assert late.result() == ["a"]


async def test_following_a_task_that_is_over_ends_at_once(at: Logged) -> None:
    await at.write("task", "a")
    await at.end("task")
    async with asyncio.timeout(5):
        assert await at.texts(Query("task", is_followed=True)) == ["a"]
        assert await at.texts(Query("gone", is_followed=True)) == []


async def test_an_end_of_which_nobody_told_is_noticed_as_are_lines_of_another_server(at: Logged) -> None:
    async with asyncio.timeout(20), TaskLogs(at.database, SystemClock()) as other, asyncio.TaskGroup() as group:
        follower = group.create_task(at.texts(Query("task", is_followed=True)))
        await asyncio.sleep(0.05)
        await other.append("task", [Piece(ORIGIN, lines("from elsewhere"))])
        await Logged(at.ground, other).end("task")
    assert follower.result() == ["from elsewhere"]


async def test_a_follower_with_a_limit_ends_when_it_has_enough(at: Logged) -> None:
    await at.write("task", "a")
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        follower = group.create_task(at.texts(Query("task", limit=2, is_followed=True)))
        await asyncio.sleep(0.05)
        await at.write("task", "b", "c", start=START + 9)
    assert follower.result() == ["a", "b"]


async def test_a_follower_that_leaves_while_others_wait_for_the_same_page_leaves_it_to_them(at: Logged) -> None:
    await at.write("task", "a")
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        followers = [group.create_task(at.texts(Query("task", is_followed=True))) for _ in range(3)]
        await asyncio.sleep(0)
        followers[0].cancel()
        await at.end("task")
    assert [follower.result() for follower in followers[1:]] == [["a"], ["a"]]


async def test_a_reader_that_stops_reading_does_not_hold_up_others(at: Logged) -> None:
    slow = at.logs.read(Query("task", is_followed=True), text_of)
    await at.write("task", "first")
    assert await anext(slow) == b"first\x1f"
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        quick = group.create_task(at.texts(Query("task", is_followed=True)))
        texts = [f"{number}" for number in range(500)]
        for start in range(0, 500, 50):
            await at.write("task", *texts[start : start + 50], start=START + (start + 1) * 1_000_000)
        await at.end("task")
    assert quick.result() == ["first", *texts]
    assert b"".join([sent async for sent in slow]).decode().split("\x1f")[:-1] == texts


async def test_fields_are_told_again_when_there_are_more(at: Logged) -> None:
    await at.write("task", "a")
    found: list[Fields] = []

    async def follow() -> None:
        async for fields in at.logs.follow_fields("task"):
            found.append(fields)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(follow())
        await asyncio.sleep(0.05)
        await at.write("task", "same origin", start=START + 1)
        await at.write("task", "b", origin=Origin("task.2"), start=START + 2)
        await at.end("task")
    assert [fields.allocations for fields in found] == [("task.1",), ("task.1", "task.2")]


async def test_pages_that_are_remembered_have_bounds(at: Logged) -> None:
    for number in range(20):
        await at.write("task", "x" * 1000, start=START + number)
    reads = 0

    async with asyncio.TaskGroup() as group:

        def spawn(read, name):
            nonlocal reads
            reads += 1
            group.create_task(read)

        pages = Pages(at.database, spawn, kept_bytes=60_000)
        for task in ("task", "task", "other"):
            page = await pages.after(task, 0, Filter(), text_of)
        assert reads == 2
        await at.write("other", "y" * 50_000)
        page = await pages.after("other", 0, Filter(), text_of)
        assert page.lines == 1
        await pages.after("task", 0, Filter(), text_of)
        assert reads == 4  # the first had to make room


# Who is told, and what goes wrong


async def test_observers_hear_of_each_line_once(at: Logged) -> None:
    heard: list[Appended] = []
    at.logs.observe(heard.append)
    many = Piece(ORIGIN, lines(*(str(number) for number in range(1500))))
    few = Piece(Origin("task.2"), lines("a"))
    await at.logs.append("task", [many, few])
    await at.logs.append("task", [few])
    assert [line.text for each in heard for line in each.lines] == [*(str(number) for number in range(1500)), "a"]
    assert heard[-1].origin == Origin("task.2")


async def test_a_line_of_the_server(at: Logged) -> None:
    await at.logs.tell("task", "Scheduling", Level.WARNING)
    assert await at.texts(Query("task", Filter(sources=frozenset({"master"})))) == ["Scheduling"]


async def test_after_the_end_nothing_is_taken(tmp_path: Path) -> None:
    async with logged(tmp_path) as at:
        logs = at.logs
    with pytest.raises(errors.Unavailable):
        await logs.append("task", [Piece(ORIGIN, lines("late"))])


# Retention


DAY = 86_400.0


async def test_logs_are_kept_as_long_as_they_should_after_the_end(at: Logged) -> None:
    now = at.ground.clock.now() + 100 * DAY  # well after what these tests write
    for task in ("running", "old", "new", "told", "forever"):
        await at.task(task)
        await at.write(task, "a", "b")
    at.ground.clock.seconds = now
    for task, ago in (("old", 40.0), ("new", 10.0), ("told", 10.0), ("forever", 900.0)):
        await at.end(task, now - ago * DAY)
    await at.write("gone", "its task is not in the records")

    retention = Retention(at.database, at.ground.clock, 30)
    await retention.keep(["told"], 7)
    await retention.keep(["forever"], FOREVER)
    await _age(at)
    assert await retention.clean() == 5
    kept = {task: len(await at.texts(Query(task))) for task in ("running", "old", "new", "told", "forever", "gone")}
    assert kept == {"running": 2, "old": 0, "new": 2, "told": 0, "forever": 2, "gone": 0}
    assert await retention.clean() == 0
    await retention.keep(["forever"], None)
    assert await retention.clean() == 2


async def _age(at: Logged) -> None:
    """As if the lines had come when they say."""
    change = update(TASK_LOGS).values(newest=START)
    await at.database.write(lambda connection: connection.execute(change))


async def test_what_was_removed_is_not_remembered_either(at: Logged) -> None:
    await at.write("gone", "a secret")
    assert await at.texts(Query("gone")) == ["a secret"]
    await Retention(at.database, at.ground.clock, on_removed=at.logs.forget).clean()
    assert await at.texts(Query("gone")) == []


async def test_much_is_removed_in_small_steps(at: Logged) -> None:
    await asyncio.gather(*(at.write("gone", "x", start=START + number) for number in range(450)))
    assert await Retention(at.database, at.ground.clock).clean() == 450


@pytest.mark.parametrize("days", [-2, 40_000])
async def test_days_out_of_range(at: Logged, days: int) -> None:
    with pytest.raises(errors.BadRequest, match="days"):
        Retention(at.database, at.ground.clock, days)
    with pytest.raises(errors.BadRequest, match="numDays"):
        await Retention(at.database, at.ground.clock).keep(["task"], days)
