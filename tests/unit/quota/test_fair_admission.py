"""Past usage of local queues: how it fades, what entering costs, and what counts in the order."""

from collections.abc import Mapping
from fractions import Fraction
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.queue_worlds import START, a_condition, a_queue, a_workload, after

from muster.quota.fair_admission import Ledger, charges_entry, faded
from muster.quota.gates import Gates
from muster.quota.settings import AdmissionFairSharing, Settings
from muster.quota.workloads import QUOTA_RESERVED

CORE = 1000  # cpu is counted in thousandths
INTERVAL = 10.0


def the_settings(
    half_life: float = 10.0, weights: Mapping[str, Fraction] | None = None, *, ignores_undeclared: bool = False
) -> Settings:
    sharing = AdmissionFairSharing(half_life, INTERVAL, weights or {})
    return Settings(admission_fair_sharing=sharing, ignores_undeclared=ignores_undeclared)


def a_ledger(half_life: float = 10.0, **consumed: str) -> Ledger:
    """With what the local queue `ns/lq` has used so far."""
    ledger = Ledger(the_settings(half_life))
    if consumed:
        ledger.seed("ns/lq", consumed, START)
    return ledger


# Fading


def test_half_is_forgotten_in_a_half_life() -> None:
    ledger = a_ledger(cpu="8", memory="4Gi")
    assert ledger.sample("ns/lq", {"cpu": 2 * CORE}, after(10))
    assert ledger.consumed("ns/lq") == {"cpu": "5", "memory": "2147483648"}
    assert ledger.sample("ns/lq", {}, after(30))
    assert ledger.consumed("ns/lq") == {"cpu": "1250m", "memory": "536870912"}


def test_a_clock_that_went_back_forgets_nothing() -> None:
    ledger = a_ledger(cpu="8")
    ledger.charge(a_workload("a"), a_queue())
    assert ledger.sample("ns/lq", {"cpu": CORE}, START)
    assert ledger.consumed("ns/lq") == {"cpu": "8"}


def test_without_a_half_life_the_past_does_not_count() -> None:
    ledger = a_ledger(0.0, cpu="8")
    ledger.charge(a_workload("a", cpu="4"), a_queue())
    assert ledger.usage("ns/lq") == 8.0
    ledger.sample("ns/lq", {"cpu": CORE}, after(60))
    assert ledger.usage("ns/lq") == 0.0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1000), st.floats(0.1, 1000))
def test_usage_moves_towards_what_is_used_now(before: int, using: int, elapsed: float, half_life: float) -> None:
    ledger = a_ledger(half_life, cpu=f"{before}m")
    ledger.sample("ns/lq", {"cpu": using}, after(INTERVAL + elapsed))
    low, high = sorted((before / CORE, using / CORE))
    assert low - 1e-8 <= ledger.usage("ns/lq") <= high + 1e-8


def test_the_first_sample_starts_the_clock() -> None:
    ledger = a_ledger()
    assert ledger.due("ns/lq") is None
    assert ledger.sample("ns/lq", {"cpu": 4 * CORE}, START)
    assert ledger.usage("ns/lq") == 0.0
    assert ledger.due("ns/lq") == after(INTERVAL)
    ledger.sample("ns/lq", {"cpu": 4 * CORE}, after(INTERVAL))
    assert ledger.usage("ns/lq") == 2.0


def test_sampled_no_sooner_than_the_interval_unless_something_was_charged() -> None:
    ledger = a_ledger(cpu="8")
    assert not ledger.sample("ns/lq", {}, after(9))
    assert ledger.usage("ns/lq") == 8.0
    ledger.charge(a_workload("a", cpu="4"), a_queue())
    assert ledger.is_charged_for("ns/a")
    assert ledger.sample("ns/lq", {}, after(5))
    assert ledger.usage("ns/lq") == pytest.approx(8 * 0.5**0.5 + 2, rel=1e-8)


# Entering


def test_entering_costs_what_would_be_counted_in_one_interval() -> None:
    ledger = a_ledger(cpu="1")
    info = a_workload("a", cpu="4")
    ledger.charge(info, a_queue())
    assert ledger.usage("ns/lq") == 3.0
    ledger.charge(info, a_queue())
    assert ledger.usage("ns/lq") == 3.0  # not twice
    assert ledger.consumed("ns/lq") == {"cpu": "1"}
    ledger.drop(info.key)
    assert ledger.usage("ns/lq") == 1.0
    ledger.drop(info.key)


def test_a_penalty_becomes_usage_with_admission() -> None:
    ledger = a_ledger(cpu="8")
    ledger.charge(a_workload("a", cpu="4"), a_queue())
    ledger.settle("ns/a", {"cpu": 4 * CORE}, after(10))
    assert ledger.consumed("ns/lq") == {"cpu": "8"}  # half of 8, half of 4, and the penalty of 2
    assert not ledger.is_charged_for("ns/a")
    ledger.settle("ns/a", {"cpu": 4 * CORE}, after(20))
    assert ledger.consumed("ns/lq") == {"cpu": "8"}


def test_a_workload_that_moves_takes_its_penalty_along() -> None:
    ledger = a_ledger()
    ledger.charge(a_workload("a", cpu="4"), a_queue())
    ledger.charge(a_workload("a", "other", cpu="4"), a_queue())
    assert ledger.usage("ns/lq") == 0.0
    assert ledger.usage("ns/other") == 2.0


def test_what_a_queue_does_not_cover_costs_nothing_where_it_is_free() -> None:
    ledger = Ledger(the_settings(ignores_undeclared=True))
    ledger.charge(a_workload("a", cpu="4"), a_queue())
    assert ledger.usage("ns/lq") == 0.0


def test_a_local_queue_that_is_gone_has_no_past() -> None:
    ledger = a_ledger(cpu="8")
    ledger.charge(a_workload("a"), a_queue())
    ledger.remove("ns/lq")
    assert ledger.usage("ns/lq") == 0.0
    assert ledger.consumed("ns/lq") == {}
    ledger.settle("ns/a", {}, after(1))
    assert ledger.account("ns/lq") is None
    ledger.remove("ns/lq")


@pytest.mark.parametrize(
    ("settings", "by_usage", "reserved", "expected"),
    [
        (the_settings(), True, False, True),
        (the_settings(), False, False, False),
        (the_settings(), True, True, False),
        (Settings(), True, False, False),
        (
            Settings(Gates.default().changed({"AdmissionFairSharing": False}), None, AdmissionFairSharing()),
            True,
            False,
            False,
        ),
    ],
)
def test_who_is_charged(settings: Settings, by_usage: bool, reserved: bool, expected: bool) -> None:
    info = a_workload("a", conditions=[a_condition(QUOTA_RESERVED)] if reserved else [])
    assert charges_entry(info, a_queue(by_usage=by_usage), settings) is expected


# What counts


def test_resources_have_weights_and_so_have_queues() -> None:
    ledger = Ledger(the_settings(weights={"cpu": Fraction(1, 2), "memory": Fraction(0)}))
    ledger.seed("ns/lq", {"cpu": "3", "memory": "1Gi", "example.com/gpu": "2"}, START)
    assert ledger.usage("ns/lq") == 3.5
    ledger.set_weight("ns/lq", Fraction(2))
    assert ledger.usage("ns/lq") == 1.75
    ledger.set_weight("ns/lq", Fraction(0))
    assert ledger.usage("ns/lq") == inf


def test_every_change_is_noticed() -> None:
    ledger = a_ledger(cpu="1")
    seen = [ledger.version]
    info = a_workload("a")
    for change in (
        lambda: ledger.set_weight("ns/lq", Fraction(2)),
        lambda: ledger.charge(info, a_queue()),
        lambda: ledger.settle(info.key, {}, after(1)),
        lambda: ledger.sample("ns/lq", {}, after(60)),
        lambda: ledger.remove("ns/lq"),
    ):
        change()
        assert ledger.version > seen[-1]
        seen.append(ledger.version)


def test_the_part_that_is_forgotten() -> None:
    assert [faded(elapsed, 10.0) for elapsed in (0.0, 10.0, 20.0)] == [0.0, 0.5, 0.75]
    assert faded(5.0, 0.0) == 0.0
