"""Lines: how they look, how they are packed, and what is not a time or a level."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.tasks import log_lines
from muster.tasks.log_lines import Level, Line, Origin, Piece

AT = 1_710_520_146_552_162


@pytest.mark.parametrize(
    ("origin", "line", "shown"),
    [
        (Origin(), Line(AT, "Scheduling\n", Level.INFO), "[2024-03-15T16:29:06.552162Z] || INFO: Scheduling\n"),
        (Origin(), Line(AT, "no newline"), "[2024-03-15T16:29:06.552162Z] || no newline\n"),
        (
            Origin(container="5c902731-aaaa"),
            Line(AT, "x\n", Level.ERROR, 0),
            "[2024-03-15T16:29:06.552162Z] 5c902731 [rank=0] || ERROR: x\n",
        ),
        (Origin(container="5c902731"), Line(0, "x\n"), "[1970-01-01T00:00:00.000000Z] 5c902731 || x\n"),
    ],
)  # fmt: skip
def test_a_line_as_the_client_prints_it(origin: Origin, line: Line, shown: str) -> None:
    assert log_lines.shown(origin, line) == shown


LINES = st.lists(
    st.builds(
        Line,
        st.integers(0, 2**52),
        st.text(),
        st.sampled_from(Level).map(int),
        st.none() | st.integers(0, 999),
        st.sampled_from(["", "stdout", "stderr"]),
    ),
    min_size=1,
    max_size=20,
)


@given(LINES)
def test_what_is_packed_is_unpacked(lines: list[Line]) -> None:
    (chunk,) = log_lines.chunks("task", Piece(Origin(), lines))
    assert log_lines.unpacked(chunk.body) == lines
    assert chunk.lines == len(lines)
    assert (chunk.oldest, chunk.newest) == (min(line.at for line in lines), max(line.at for line in lines))
    assert all(chunk.levels >> line.level & 1 for line in lines)


def test_many_lines_are_several_chunks_in_order() -> None:
    lines = [Line(number, f"{number}\n") for number in range(2500)]
    chunks = list(log_lines.chunks("task", Piece(Origin(), lines)))
    assert [chunk.lines for chunk in chunks] == [1000, 1000, 500]
    assert [line for chunk in chunks for line in log_lines.unpacked(chunk.body)] == lines


def test_long_lines_share_a_chunk_with_few() -> None:
    chunks = list(log_lines.chunks("task", Piece(Origin(), [Line(0, "x" * 200_000) for _ in range(12)])))
    assert [chunk.lines for chunk in chunks] == [6, 6]


def test_the_same_lines_are_known_again_and_others_are_not() -> None:
    def digest(task: str = "task", allocation: str = "a", text: str = "x", timed: bool = True) -> bytes | None:
        (chunk,) = log_lines.chunks(task, Piece(Origin(allocation), [Line(AT, text)], timed))
        return chunk.digest

    assert digest() == digest()
    assert len({digest(), digest("other"), digest(allocation="b"), digest(text="y")}) == 4
    assert digest(timed=False) is None


def test_a_line_that_is_too_long_is_cut_and_says_so() -> None:
    assert log_lines.cut("x" * 300_000).endswith("x [37856 more characters were cut]\n")
    assert log_lines.cut("short") == "short"


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_times_are_read_and_written_alike(when: datetime) -> None:
    micros = log_lines.micros(when.isoformat())
    assert log_lines.micros(log_lines.time_text(micros)) == micros
    assert log_lines.time_text(micros).startswith(when.isoformat()[:19])


@pytest.mark.parametrize("text", ["", "yesterday", "2024-13-01T00:00:00Z", "12", "2024-03-15T25:00:00Z"])
def test_what_is_not_a_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|must be in|Invalid"):
        log_lines.micros(text)


def test_levels_with_and_without_their_prefix() -> None:
    assert log_lines.level_of("LOG_LEVEL_ERROR") is log_lines.level_of("error") is Level.ERROR
    with pytest.raises(ValueError, match="expected one of UNSPECIFIED, TRACE"):
        log_lines.level_of("LOUD")
