"""Reading logs: options, tails, times, rotation, following."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.agent import logs
from muster.agent.logs import LogOptions
from muster.agent.output import Log
from muster.api import errors
from muster.api.meta import Instant
from muster.runtime.clock import SystemClock, VirtualClock
from muster.testing.virtual import on_virtual_time

NOW = Instant(1_767_323_045.0)  # 2026-01-02T03:04:05Z


def record(second: int, text: str, tag: str = "F", stream: str = "stdout") -> str:
    return f"2026-01-02T03:04:{second:02d}.123456789Z {stream} {tag} {text}\n"


def write(pod: Path, *files: str, container: str = "main", attempt: int = 0, ended: bool = True) -> Path:
    """`files`: the oldest first; the last one is the current log."""
    home = pod / "containers" / container
    home.mkdir(parents=True, exist_ok=True)
    for age, content in enumerate(reversed(files)):
        (home / (f"{attempt}.log.{age}" if age else f"{attempt}.log")).write_text(content)
    if ended:
        (home / f"{attempt}.exit.json").write_text("{}")
    return home


async def text(pod: Path, container: str = "main", **options: object) -> str:
    chosen = LogOptions(**options)  # type: ignore[arg-type]
    return b"".join([piece async for piece in logs.read(pod, container, chosen, SystemClock())]).decode()


async def test_text_without_its_head(tmp_path: Path) -> None:
    write(tmp_path, record(1, "one") + record(2, "two", stream="stderr") + record(3, ""))
    assert await text(tmp_path) == "one\ntwo\n\n"


async def test_pieces_of_a_line_are_one_line(tmp_path: Path) -> None:
    write(tmp_path, record(1, "ab", "P") + record(1, "cd", "P") + record(2, "ef") + record(3, "no newline", "P"))
    assert await text(tmp_path) == "abcdef\nno newline"
    stamped = await text(tmp_path, timestamps=True)
    assert stamped == (
        "2026-01-02T03:04:01.123456789Z abcdef\n2026-01-02T03:04:03.123456789Z no newline"
    )  # one time a line


@pytest.mark.parametrize(
    ("tail", "expected"),
    [(0, ""), (1, "e"), (2, "d\ne"), (3, "bc\nd\ne"), (4, "a\nbc\nd\ne"), (99, "a\nbc\nd\ne")],
)
async def test_tails_count_lines_across_files(tmp_path: Path, tail: int, expected: str) -> None:
    write(tmp_path, record(1, "a") + record(1, "b", "P"), record(2, "c"), record(3, "d") + record(4, "e", "P"))
    assert await text(tmp_path, tail=tail) == expected


async def test_since_a_moment(tmp_path: Path) -> None:
    write(tmp_path, record(1, "old") + record(9, "new"))
    assert await text(tmp_path, since=NOW) == "new\n"
    assert await text(tmp_path, since=Instant(NOW + 60)) == ""
    assert await text(tmp_path, since=Instant(-5.0)) == "old\nnew\n"
    assert await text(tmp_path, since=NOW, tail=5) == "new\n"


@pytest.mark.parametrize(("limit", "expected"), [(1, "o"), (5, "one\nt"), (99, "one\ntwo\n")])
async def test_no_more_bytes_than_asked_for(tmp_path: Path, limit: int, expected: str) -> None:
    write(tmp_path, record(1, "one") + record(2, "two"))
    assert await text(tmp_path, limit_bytes=limit) == expected


async def test_the_last_attempt_or_the_one_before(tmp_path: Path) -> None:
    for attempt in (0, 9, 10):
        write(tmp_path, record(1, f"attempt {attempt}"), attempt=attempt)
    assert await text(tmp_path) == "attempt 10\n"
    assert await text(tmp_path, previous=True) == "attempt 9\n"


async def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(errors.BadRequest, match="waiting to start"):
        await text(tmp_path)
    write(tmp_path, record(1, "x"))
    with pytest.raises(errors.BadRequest, match="previous terminated container"):
        await text(tmp_path, previous=True)


async def test_a_record_half_written_waits_for_its_end(tmp_path: Path) -> None:
    write(tmp_path, record(1, "whole") + "2026-01-02T03:04:05.12")
    assert await text(tmp_path) == "whole\n"


@on_virtual_time
async def test_following_sees_what_is_added_and_ends_with_the_attempt(clock: VirtualClock, tmp_path: Path) -> None:
    home = write(tmp_path, record(1, "first"), ended=False)
    seen: list[bytes] = []

    async def follow() -> None:
        async for piece in logs.read(tmp_path, "main", LogOptions(follow=True), clock):
            seen.append(piece)

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await clock.sleep(1)
        assert seen == [b"", b"first\n"]
        with (home / "0.log").open("a") as file:
            file.write(record(2, "second"))
        await clock.sleep(0.1)
        assert seen == [b"", b"first\n", b"second\n"]
        with (home / "0.log").open("a") as file:
            file.write(record(3, "last"))
        (home / "0.exit.json").write_text("{}")
    assert b"".join(seen) == b"first\nsecond\nlast\n"


@on_virtual_time
async def test_following_says_that_it_has_begun_before_there_is_a_line(clock: VirtualClock, tmp_path: Path) -> None:
    write(tmp_path, "", ended=False)
    pieces = logs.read_attempt(tmp_path / "containers" / "main", 0, LogOptions(follow=True), clock)
    began = clock.now()
    assert await anext(pieces) == b""
    assert clock.now() == began
    await pieces.aclose()  # type: ignore[attr-defined]


async def test_without_following_nothing_empty_is_sent(tmp_path: Path) -> None:
    write(tmp_path, "")
    assert [piece async for piece in logs.read(tmp_path, "main", LogOptions(), SystemClock())] == []


@on_virtual_time
async def test_following_ends_when_the_pods_directory_is_taken_away(clock: VirtualClock, tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    home = write(pod, record(1, "first"), ended=False)
    seen: list[bytes] = []

    async def follow() -> None:
        async for piece in logs.read(pod, "main", LogOptions(follow=True), clock):
            seen.append(piece)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(follow())
        await clock.sleep(1)
        with (home / "0.log").open("a") as file:
            file.write(record(2, "last"))
        pod.rename(tmp_path / "trash")
    assert b"".join(seen) == b"first\nlast\n"


@on_virtual_time
async def test_following_goes_on_through_rotations(clock: VirtualClock, tmp_path: Path) -> None:
    home = write(tmp_path, "", ended=False)
    log = Log(str(home / "0.log"), max_bytes=400, files=4)
    log.open()
    got = b""

    async def follow() -> None:
        nonlocal got
        async for piece in logs.read(tmp_path, "main", LogOptions(follow=True), clock):
            got += piece

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        for batch in range(20):
            # Up to two rotations between two looks, which four files can bridge.
            log.write([f"{log.stamp().decode()} stdout F line {batch}-{n:03d}\n".encode() for n in range(12)])
            await clock.sleep(0.2)
        log.close()
        (home / "0.exit.json").write_text("{}")
    expected = "".join(f"line {batch}-{n:03d}\n" for batch in range(20) for n in range(12))
    assert got.decode() == expected
    assert sorted(file.name for file in home.glob("0.log*")) == ["0.log", "0.log.1", "0.log.2", "0.log.3"]


def test_rotation_keeps_files_near_their_size_and_whole_lines(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "0.log"), max_bytes=1000, files=3)
    line = b"x" * 99 + b"\n"
    for _ in range(50):
        log.write([line] * 3)
    log.close()
    for file in tmp_path.iterdir():
        assert file.stat().st_size <= 1000
        assert file.read_bytes() == line * (file.stat().st_size // 100)
    assert len(list(tmp_path.iterdir())) == 3


_lines = st.lists(st.tuples(st.text("abc", max_size=5), st.sampled_from("FFFP")), max_size=30)


@settings(max_examples=60, deadline=None)
@given(lines=_lines, cuts=st.lists(st.integers(0, 30), max_size=3), tail=st.integers(0, 12))
def test_a_tail_is_the_end_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, str]], cuts: list[int], tail: int
) -> None:
    pod = tmp_path_factory.mktemp("pod")
    edges = [0, *sorted(min(cut, len(lines)) for cut in cuts), len(lines)]
    files = ["".join(record(1, t, tag) for t, tag in lines[a:b]) for a, b in pairwise(edges)]
    write(pod, *files)
    whole = asyncio.run(text(pod))
    # A last record without newline is a line of its own, even where it is empty.
    complete = "".join(t + ("\n" if tag == "F" else "") for t, tag in lines)
    assert whole == complete
    groups: list[str] = []
    for index, (t, tag) in enumerate(lines):
        if index == 0 or lines[index - 1][1] == "F":
            groups.append("")
        groups[-1] += t + ("\n" if tag == "F" else "")
    assert asyncio.run(text(pod, tail=tail)) == "".join(groups[max(0, len(groups) - tail) :])


async def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    body = "".join(record(i % 60, f"line {i}") for i in range(50_000))
    write(tmp_path, body)
    assert await text(tmp_path, tail=3) == "line 49997\nline 49998\nline 49999\n"
    assert (await text(tmp_path)).count("\n") == 50_000


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ({}, LogOptions()),
        ({"follow": "true", "tailLines": "5"}, LogOptions(follow=True, tail=5)),
        ({"tailLines": "-1"}, LogOptions()),
        ({"sinceSeconds": "60"}, LogOptions(since=Instant(NOW - 60))),
        ({"sinceTime": "2026-01-02T03:04:05Z"}, LogOptions(since=NOW)),
        ({"sinceTime": "2026-01-02T04:04:05+01:00"}, LogOptions(since=NOW)),
        (
            {"timestamps": "1", "previous": "true", "limitBytes": "10"},
            LogOptions(timestamps=True, previous=True, limit_bytes=10),
        ),
    ],
)
def test_queries_as_kubectl_writes_them(query: dict[str, str], options: LogOptions) -> None:
    assert logs.parse_query(query, NOW) == options


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "-3"},
        {"tailLines": "many"},
        {"tailLines": "9" * 40},
        {"limitBytes": "0"},
        {"sinceSeconds": "0"},
        {"sinceSeconds": "1.5"},
        {"sinceTime": "yesterday"},
        {"sinceTime": "2026-01-02T03:04:05Z", "sinceSeconds": "5"},
        {"follow": "perhaps"},
    ],
)
def test_bad_queries_name_the_parameter(query: dict[str, str]) -> None:
    with pytest.raises(errors.Invalid) as caught:
        logs.parse_query(query, NOW)
    assert {cause.path for cause in caught.value.causes} <= set(query)


def test_all_mistakes_of_a_query_come_at_once() -> None:
    with pytest.raises(errors.Invalid) as caught:
        logs.parse_query({"tailLines": "x", "limitBytes": "-1", "follow": "?"}, NOW)
    assert len(caught.value.causes) == 3


def test_the_end_of_the_output_for_a_message(tmp_path: Path) -> None:
    home = write(tmp_path, "".join(record(1, f"line {i}") for i in range(200)))
    lines = logs.last_lines(home, 0, lines=2, limit_bytes=1000)
    assert b"".join(lines) == b"line 198\nline 199\n"
    assert len(b"".join(logs.last_lines(home, 0, lines=80, limit_bytes=50))) == 50
