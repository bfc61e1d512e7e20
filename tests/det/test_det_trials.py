"""`det trial`: described, its logs narrowed, killed, bundled; what is done to a trial that gives up or fails."""

import csv
import io
import tarfile

import pytest
from tests.det.det_client import Det
from tests.det.det_experiments import CANCELED, COMPLETED, ERROR, Lab, shell, trained
from tests.det.det_platform import eventually

OPTIONS = ("--fake-gpus", "2")


@pytest.fixture(scope="module")
def trial(lab: Lab) -> int:
    storage = {"save_trial_best": 9, "save_trial_latest": 9}
    return lab.first_trial(lab.completed({**trained(steps=3), "checkpoint_storage": storage}))


def test_described(lab: Lab, det: Det, trial: int):
    found = det("trial", "describe", str(trial), "--json").json
    assert (found["trial"]["state"], found["trial"]["totalBatchesProcessed"]) == (COMPLETED, 3)
    assert found["trial"]["hparams"] == {"steps": 3, "scale": 1.0}
    kinds = [
        next(kind for kind in ("training", "validation", "checkpoint") if each[kind]) for each in found["workloads"]
    ]
    assert sorted(kinds) == ["checkpoint"] * 3 + ["training"] * 3 + ["validation"] * 3
    told = det("trial", "describe", str(trial), "--metrics", "--metrics-summary", "--csv").out
    assert '"avgMetrics"' in told or '""avgMetrics""' in told
    table = csv.reader(io.StringIO(told.split("Workloads:")[1].split("{\n")[0]))
    assert next(row for row in table if row)[0] == "# of Batches"
    summary = found["trial"]["summaryMetrics"]
    assert summary["validation_metrics"]["loss"]["count"] == 3
    assert summary["validation_metrics"]["loss"]["last"] == pytest.approx(2 / 3)
    assert (summary["avg_metrics"]["loss"]["max"], summary["avg_metrics"]["loss"]["type"]) == (1.0, "number")
    assert float(lab.trial(trial)["bestValidation"]["metrics"]["avgMetrics"]["loss"]) == pytest.approx(2 / 3)
    assert int(lab.trial(trial)["wallClockTime"]) >= 0


def test_logs_are_narrowed(lab: Lab, det: Det):
    line = "echo one; echo two >&2; for n in 1 2 3 4; do echo line $n; done; echo '[rank=3] of a rank'"
    trial = str(lab.first_trial(lab.completed(shell(line))))

    def lines(*words: str) -> list[str]:
        text, _, _ = det("trial", "logs", trial, *words).out.partition("Trial log stream ended")
        return text.splitlines()

    assert any("two" in line for line in lines("--stdtype", "stderr"))
    assert not any("line 1" in line for line in lines("--stdtype", "stderr"))
    assert len(lines("--tail", "2")) == 2
    assert len(lines("--head", "3")) == 3
    assert [line for line in lines("--rank-id", "3")][-1].endswith("of a rank")
    assert any("line 4" in line for line in lines("-f"))
    assert lines("--agent-id", "none-such") == []
    det("trial", "logs", "999999", code=1)


def test_killed(lab: Lab, det: Det, emptied: None):
    experiment = lab.create(shell("echo up; while :; do sleep 1; done"))
    trial = lab.first_trial(experiment)
    lab.until_logged(trial, "up")
    det("trial", "kill", str(trial))
    eventually(lambda: lab.trial(trial)["state"] == CANCELED)
    eventually(lambda: lab.state(experiment) == CANCELED)


def test_killing_one_of_many_lets_the_others_go_on(lab: Lab, det: Det, emptied: None):
    config = {
        **trained(steps=30, pause=0.1, every=100, scale={"type": "categorical", "vals": [1.0, 2.0]}),
        "searcher": {"name": "grid", "metric": "loss"},
    }
    experiment = lab.create(config)
    first, second = eventually(lambda: len(found := lab.trials(experiment)) == 2 and found)
    det("trial", "kill", str(first["id"]))
    lab.until(experiment, COMPLETED)
    assert (lab.trial(first["id"])["state"], lab.trial(second["id"])["state"]) == (CANCELED, COMPLETED)


def test_bundled_for_support(lab: Lab, det: Det, trial: int):
    told = det("trial", "support-bundle", str(trial)).out
    path = told.split("bundle path: ")[1].strip()
    with tarfile.open(path) as bundle:
        names = {name.split("/")[-1] for name in bundle.getnames()}
        assert names == {"trial_logs.txt", "master_logs.txt", "api_experiment_call.json", "api_trial_call.json"}
        (logs,) = [name for name in bundle.getnames() if name.endswith("trial_logs.txt")]
        file = bundle.extractfile(logs)
        assert file is not None
        assert b"has trained" in file.read()


def test_logs_are_kept_as_long_as_wanted(det: Det, trial: int):
    det("trial", "set", "log-retention", str(trial), "--days", "30")
    det("trial", "set", "log-retention", str(trial), "--forever")
    assert "allowed range" in det("trial", "set", "log-retention", str(trial), "--days", "-3", code=1).text


def test_failures_that_count_are_counted(lab: Lab):
    experiment = lab.create({**shell("echo try $DET_TRIAL_RUN_ID; exit 7"), "max_restarts": 2})
    eventually(lambda: lab.state(experiment) == ERROR)
    (trial,) = lab.trials(experiment)
    assert trial["restarts"] == 2
    logs = lab.logs(int(trial["id"]))
    assert [word in logs for word in ("try 1", "try 2", "try 3", "try 4")] == [True, True, True, False]


def test_a_log_policy_ends_retries(lab: Lab):
    config = {
        **shell("echo a wall was hit; exit 7"),
        "max_restarts": 5,
        "log_policies": [{"name": "wall", "pattern": "a w.ll was", "action": "cancel_retries"}],
    }
    experiment = lab.create(config)
    eventually(lambda: lab.state(experiment) == ERROR)
    (trial,) = lab.trials(experiment)
    assert trial["restarts"] == 0
    assert lab.logs(int(trial["id"])).count("a wall was hit") >= 1


def test_one_that_gives_up_its_hyperparameters_is_not_tried_again(lab: Lab):
    """The library turns an InvalidHP into a report and a clean exit."""
    script = (
        "import determined as det\n"
        "from determined import core\n"
        "with core.init() as context:\n"
        "    context.train.report_early_exit(core.EarlyExitReason.INVALID_HP)\n"
    )
    config = {**shell(f"python3 -c '{script}'"), "max_restarts": 3}
    experiment = lab.create(config)
    eventually(lambda: lab.state(experiment) in (ERROR, COMPLETED))
    (trial,) = lab.trials(experiment)
    assert trial["restarts"] == 0
