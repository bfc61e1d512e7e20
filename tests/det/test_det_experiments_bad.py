"""What is wrong with an experiment is said before it runs; what trials report that they should not is refused, or taken
as documented."""

import json
from typing import Any

import pytest
from tests.det.det_client import Det
from tests.det.det_experiments import MODELS, Lab, shell, trained

OPTIONS = ("--fake-gpus", "2")
ASHA = {"name": "adaptive_asha", "metric": "loss", "max_trials": 4, "max_time": 8, "time_metric": "batches"}
GRID = {"name": "grid", "metric": "loss"}
REAL = {"type": "double", "minval": 0, "maxval": 1}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"entrypiont": "x"}, ["entrypiont"]),
        ({"entrypoint": None}, ["entrypoint"]),
        ({"max_restarts": "many"}, ["max_restarts"]),
        ({"searcher": {"name": "single"}}, ["searcher.metric"]),
        ({"searcher": {"name": "alchemy", "metric": "loss"}}, ["searcher.name", "alchemy"]),
        ({"searcher": {**ASHA, "max_trials": 0}}, ["searcher.max_trials"]),
        ({"searcher": {**ASHA, "divisor": 0.5}}, ["searcher.divisor"]),
        ({"searcher": {**GRID}, "hyperparameters": {"x": REAL}}, ["hyperparameters.x", "count"]),
        ({"hyperparameters": {"x": {"type": "int", "minval": 5, "maxval": 1}}}, ["hyperparameters.x"]),
        ({"checkpoint_storage": {"type": "tape"}}, ["checkpoint_storage.type", "shared_fs"]),
        ({"resources": {"slots_per_trial": -1}}, ["slots_per_trial"]),
        ({"resources": {"resource_pool": "none-such"}}, ["none-such"]),
        ({"workspace": "none-such", "project": "p"}, ["none-such"]),
        ({"log_policies": [{"pattern": "(", "action": "cancel_retries"}]}, ["log_policies"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(lab: Lab, det: Det, changed: dict[str, Any], words: list[str]):
    config = {name: value for name, value in {**trained(), **changed}.items() if value is not None}
    told = det("experiment", "create", lab.written(config), str(MODELS / "core"), code=1).text
    assert all(word in told for word in words), told
    assert "Traceback" not in told


def test_nothing_is_left_of_what_was_refused(lab: Lab, det: Det):
    before = lab.watch.get("experiments")["pagination"]["total"]
    det("experiment", "create", lab.written({**trained(), "nonsense": 1}), str(MODELS / "core"), code=1)
    assert lab.watch.get("experiments")["pagination"]["total"] == before


def test_more_slots_than_there_are_is_warned_of(lab: Lab, det: Det, emptied: None):
    config = {**trained(), "resources": {"slots_per_trial": 3}}
    told = det("experiment", "create", lab.written(config), str(MODELS / "core")).text
    assert "Warning" in told
    assert "slots" in told


def test_a_model_directory_that_is_too_large(lab: Lab, det: Det):
    large = det.home / "large"
    large.mkdir()
    with (large / "weights.bin").open("wb") as file:
        file.truncate(100 << 20)
    told = det("experiment", "create", lab.written(trained()), str(large), code=1).text
    assert "maximum" in told or "exceeds" in told


def test_reports_that_should_not_be_made(lab: Lab):
    other = lab.first_trial(lab.completed(shell("true")))
    config = {**trained(other=other), "name": "odd"}
    trial = lab.first_trial(lab.completed(config, model="odd"))
    answers = json.loads(lab.logs(trial).split("answers ")[1].splitlines()[0])
    assert answers == {
        "another's": 403,
        "a later run": 403,
        "next": 200,
        "the same again": 200,
        "another value": 409,
        "out of order": 200,
        "no number": 200,
    }
    assert lab.metrics(other, "training") == []
    reports = {
        report["totalBatches"]: report["metrics"]["avg_metrics"]["loss"] for report in lab.metrics(trial, "training")
    }
    assert reports == {1: "NaN", 4: 1.0, 5: 1.0, 6: "Infinity"}
    validations = [report["metrics"]["validation_metrics"] for report in lab.metrics(trial, "validation")]
    assert validations == [{"loss": "NaN", "inf": "-Infinity"}, {"loss": 0.5, "inf": "Infinity"}]
    found = lab.trial(trial)
    assert found["bestValidation"]["totalBatches"] == 3  # what is no number is not the best
    summary = found["summaryMetrics"]["avg_metrics"]["loss"]
    assert summary["count"] == 4
