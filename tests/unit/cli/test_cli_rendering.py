import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import errors
from muster.cli import durations, prefixes, rendering
from muster.cli.rendering import Table


def test_plain_tables_are_aligned_and_have_no_trailing_space():
    shown = rendering.plain(Table(["Name", "Age"], [["a", "1s"], ["longer", "20d"]]))
    assert shown == "NAME     AGE\na        1s\nlonger   20d\n"


@given(st.lists(st.lists(st.text(alphabet="abc -", max_size=8), min_size=3, max_size=3), max_size=6))
def test_every_cell_starts_where_its_header_does(rows):
    table = Table(["One", "Two", "Three"], rows)
    lines = rendering.plain(table).splitlines()
    header = lines[0]
    starts = [header.index(word) for word in ("ONE", "TWO", "THREE")]
    for line, row in zip(lines[1:], rows, strict=True):
        for start, cell in zip(starts, row, strict=True):
            assert line[start:].startswith(cell.rstrip())


@pytest.mark.parametrize(
    ("natural", "available", "expected"),
    [
        ([10, 10, 10], 30, [10, 10, 10]),
        ([10, 40, 8], 30, [10, 12, 8]),
        ([20, 9, 9], 32, [20, 6, 6]),
        ([20, 9, 9], 30, [18, 6, 6]),
        ([44, 7, 9, 4, 16], 72, [36, 7, 9, 4, 16]),
        ([44, 30, 9], 60, [35, 16, 9]),
    ],
)
def test_wide_tables_give_way_at_long_cells_then_at_long_names_and_at_the_name_last(natural, available, expected):
    assert rendering.fitted(natural, available) == expected


@given(st.lists(st.integers(1, 80), min_size=1, max_size=8), st.integers(8, 200))
def test_tables_fit(natural, available):
    widths = rendering.fitted(natural, available)
    assert sum(widths) <= max(available, len(natural))
    assert all(1 <= width <= before for width, before in zip(widths, natural, strict=True))


@given(st.floats(0, 100), st.floats(0.1, 100))
def test_a_bar_is_full_only_when_full_and_empty_only_when_empty(used, total):
    shown = rendering.bar(used, total)
    assert len(shown) == 10
    assert (shown == "░" * 10) == (used == 0)
    assert (shown == "█" * 10) == (used >= total)


def test_nothing_of_nothing_has_no_bar():
    assert rendering.bar(0, 0) == ""


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0s"),
        (3.21, "3.2s"),
        (59, "59s"),
        (60, "1m"),
        (185, "3m5s"),
        (7800, "2h10m"),
        (90000, "1d1h"),
        (-5, "0.0s"),
    ],
)
def test_durations_are_shown_in_two_units(seconds, shown):
    assert durations.show(seconds) == shown


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1h30m", 5400), ("1.5m", 90), ("250ms", 0.25)])
def test_durations_are_read_as_people_write_them(text, seconds):
    assert durations.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 m", "m5", "1h30", "-3s"])
def test_a_wrong_duration_says_how_to_write_one(text):
    with pytest.raises(errors.BadRequest, match="like 90s, 5m or 1h30m"):
        durations.parse(text)


def test_ages_are_whole_and_unknown_ones_are_a_dash():
    assert durations.age("2026-01-01T00:00:00Z", 1767225603.7) == "3s"
    assert durations.age("", 0) == "-"


@pytest.mark.parametrize(
    ("line", "shown"), [("plain", "plain"), ("10%\r50%\r100%", "100%"), ("done\r", "done"), ("", "")]
)
def test_a_progress_bar_shows_its_last_state(line, shown):
    assert prefixes.visible(line) == shown


@pytest.mark.parametrize(("cell", "style"), [("Running", "green"), ("NotReady,SchedulingDisabled", "red"), ("web", "")])
def test_states_have_one_colour_everywhere(cell, style):
    assert rendering.style_of(cell) == style
