"""Numbers, and the text that Prometheus reads."""

import re
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.runtime.metrics import WAIT_BUCKETS, Family, Registry

SERIES = re.compile(r'[a-z_]+(\{([a-z_]+="(\\\\|\\"|\\n|[^"\\\n])*",?)*\})? (-?[0-9.e+-]+|[+-]Inf|NaN)')


def test_a_counter_counts_by_its_labels():
    registry = Registry()
    found = registry.counter("things_total", "Things.", ("color",))
    found.add("red")
    found.add("red", by=2)
    found.add("blue")
    assert found.value("red") == 3
    assert registry.text() == (
        '# HELP things_total Things.\n# TYPE things_total counter\nthings_total{color="red"} 3\n'
        'things_total{color="blue"} 1\n'
    )


def test_a_histogram_counts_what_is_not_above_each_bound():
    registry = Registry()
    found = registry.histogram("wait_seconds", "Waits.", buckets=(1.0, 2.5))
    for seconds in (0.5, 1.0, 2.0, 7.0):
        found.observe(seconds)
    assert found.count() == 4
    assert registry.text().splitlines()[2:] == [
        'wait_seconds_bucket{le="1"} 2',
        'wait_seconds_bucket{le="2.5"} 3',
        'wait_seconds_bucket{le="+Inf"} 4',
        "wait_seconds_sum 10.5",
        "wait_seconds_count 4",
    ]


def test_labels_of_a_histogram_stand_before_its_bound():
    registry = Registry()
    registry.histogram("w", "W.", ("q",), (1.0,)).observe(3.0, "a")
    assert 'w_bucket{q="a",le="1"} 0\n' in registry.text()
    assert 'w_sum{q="a"} 3\n' in registry.text()


def test_what_is_gone_is_forgotten():
    registry = Registry()
    counter = registry.counter("c", "C.", ("queue", "reason"))
    histogram = registry.histogram("h", "H.", ("queue",))
    for queue in ("a", "b"):
        counter.add(queue, "x")
        histogram.observe(1.0, queue)
    counter.forget(queue="a")
    histogram.forget(queue="a")
    assert '"a"' not in registry.text()
    assert (counter.value("b", "x"), histogram.count("b"), histogram.count("a")) == (1, 1, 0)


def test_a_collector_is_asked_each_time():
    registry, values = Registry(), [1.0]
    registry.collect(lambda: [Family("now", "gauge", "Now.", (), [((), values[0])])])
    assert registry.text().endswith("\nnow 1\n")
    values[0] = inf
    assert registry.text().endswith("\nnow +Inf\n")


def test_the_text_comes_in_pieces():
    registry = Registry()
    registry.collect(lambda: [Family("n", "gauge", "N.", ("i",), (((str(i),), i) for i in range(1200)))])
    pieces = list(registry.pieces())
    assert len(pieces) == 3
    assert "".join(pieces) == registry.text()


def test_mistakes_of_ours_are_found_at_once():
    registry = Registry()
    found = registry.counter("c", "C.", ("a", "b"))
    with pytest.raises(ValueError, match="a, b"):
        found.add("only one")
    with pytest.raises(ValueError, match="exists"):
        registry.histogram("c", "C.")


def test_waits_are_told_apart_from_a_second_to_hours():
    assert WAIT_BUCKETS[:3] == (1.0, 2.5, 5.0)
    assert WAIT_BUCKETS[-1] == 10240.0


@given(label=st.text(), help=st.text(), amount=st.floats())
def test_whatever_a_label_says_a_series_is_one_line(label, help, amount):
    registry = Registry()
    registry.collect(lambda: [Family("name", "gauge", help, ("label",), [((label,), amount)])])
    *_, series = registry.text().removesuffix("\n").split("\n")
    assert SERIES.fullmatch(series), series
