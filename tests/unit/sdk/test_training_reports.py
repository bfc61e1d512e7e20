import contextlib
import math

import numpy as np
import pytest
from tests.unit.sdk.training_platform import RUN, TRIAL, TrainingPlatform

from muster.api import errors
from muster.sdk import training_reports
from muster.sdk.training_reports import Reporter

BATCH = f"/api/v1/trials/{TRIAL}/metrics/batch"


@pytest.fixture
def platform():
    return TrainingPlatform()


@pytest.fixture
def reporter(platform):
    found = Reporter(platform.server, TRIAL, RUN, pause=0.001)
    yield found
    with contextlib.suppress(errors.ApiError):
        found.close(0.1)


def put(reporter, step, **metrics):
    reporter.put(training_reports.made(step, metrics or {"loss": 1.0}, "training", 100.0))


def test_reports_travel_in_order_and_together(platform, reporter):
    for step in range(1500):
        put(reporter, step)
    reporter.flush(5.0)
    assert [step for _, step, _ in platform.reports] == list(range(1500))
    assert len(platform.batches) < 10
    assert max(map(len, platform.batches)) <= 1000


def test_a_server_that_is_away_for_a_while_loses_nothing_and_disturbs_nobody(platform, reporter, caplog):
    platform.away = 4
    put(reporter, 1)
    put(reporter, 2)
    reporter.flush(5.0)
    assert [step for _, step, _ in platform.reports] == [1, 2]
    assert "training goes on" in caplog.text


def test_a_server_that_stays_away_is_told_at_the_end(platform, reporter):
    platform.away = 10**9
    put(reporter, 1)
    with pytest.raises(errors.Timeout, match=r"1 reports of trial 7 could not be sent within 0\.05 s"):
        reporter.flush(0.05)


def test_one_report_that_is_refused_is_told_once_and_the_others_arrive(platform, reporter):
    platform.bad_step = 3
    for step in range(6):
        put(reporter, step)
    with pytest.raises(errors.BadRequest, match="step 3 is wrong"):
        reporter.flush(5.0)
    put(reporter, 6)
    reporter.flush(5.0)
    assert [step for _, step, _ in platform.reports] == [0, 1, 2, 4, 5, 6]


def test_a_run_that_another_has_followed_is_told_each_time(platform, reporter):
    platform.refusals[BATCH] = 409, "run 2 was followed by run 3"
    put(reporter, 1)
    for _ in range(2):
        with pytest.raises(errors.ApiError, match="followed by run 3"):
            reporter.flush(5.0)
    with pytest.raises(errors.ApiError, match="followed by run 3"):
        put(reporter, 2)
    assert platform.reports == []


def test_a_run_that_is_over_takes_no_more(reporter):
    reporter.close(1.0)
    with pytest.raises(RuntimeError, match="the run is over"):
        put(reporter, 1)


def test_of_progress_only_the_latest_is_sent(platform, reporter):
    for share in (0.1, 0.2, 0.3):
        reporter.progress(share)
    reporter.flush(5.0)
    assert platform.said("/progress")[-1] == {"progress": 0.3, "is_raw": True}
    assert len(platform.said("/progress")) <= 2


def test_numbers_of_libraries_and_those_that_json_has_not():
    metrics = {
        "a": np.float32(0.5),
        "b": np.int64(3),
        "c": math.nan,
        "d": -math.inf,
        "e": {"f": np.array(2.0), "g": [1, math.inf]},
        "h": np.bool_(True),
    }
    made = training_reports.made(np.int64(4), metrics, "validation", 0.0)
    assert made.step == 4
    assert made.metrics == {
        "a": 0.5, "b": 3, "c": "NaN", "d": "-Infinity", "e": {"f": 2.0, "g": [1, "Infinity"]}, "h": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("step", "metrics", "group", "said"),
    [
        (-1, {"a": 1}, "training", "step: must be a whole number from 0 on, found -1"),
        (0.5, {"a": 1}, "training", "step: must be"),
        (True, {"a": 1}, "training", "step: must be"),
        (1, {}, "training", "metrics: there are none"),
        (1, {"a": 1}, "a.b", "group: must be a name without dots"),
        (1, {"a": np.zeros(3)}, "training", r"metrics\['a'\]: must be one number, found ndarray of several"),
        (1, {"a": {"b": object()}}, "training", r"metrics\['a'\]\['b'\]: must be a number, found object"),
        (1, {"a": None}, "training", r"metrics\['a'\]: must be a number, found NoneType"),
    ],
)
def test_what_cannot_be_reported_is_told_where_it_is_said(step, metrics, group, said):
    with pytest.raises((TypeError, ValueError), match=said):
        training_reports.made(step, metrics, group, 0.0)
