"""`det experiment`: from a directory to a trained trial, what may happen on the way, and what one can see of it."""

import csv
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
import urllib3
from tests.det.det_client import Det
from tests.det.det_experiments import CANCELED, COMPLETED, ERROR, MODELS, PAUSED, Lab, of_steps, shell, trained
from tests.det.det_platform import eventually, free_port

OPTIONS = ("--fake-gpus", "4")
KEEP_ALL = {"save_trial_best": 9, "save_trial_latest": 9}


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def done(lab: Lab) -> int:
    """One that has trained three steps, with a checkpoint after each."""
    config = {**trained(steps=3), "description": "three steps", "labels": ["short"], "checkpoint_storage": KEEP_ALL}
    return lab.completed(config)


def test_follows_its_first_trial(lab: Lab, det: Det):
    config = lab.written(shell("echo hello from $DET_EXPERIMENT_ID; echo to stderr >&2; ls train.py"))
    told = det("experiment", "create", "-f", config, str(MODELS / "core")).out
    experiment = int(told.split("Created experiment ")[1].split()[0])
    assert f"hello from {experiment}" in told
    assert "to stderr" in told
    assert "train.py" in told
    det("experiment", "wait", str(experiment), "--polling-interval", "1")
    assert lab.state(experiment) == COMPLETED


def test_is_listed(lab: Lab, det: Det, done: int):
    rows = {row["ID"]: row for row in table(det("experiment", "list", "--csv").out)}
    row = rows[str(done)]
    assert (row["Owner"], row["Name"], row["State"], row["Progress"]) == ("admin", "trained", "COMPLETED", "100.0%")
    assert row["Started"] < row["Ended"]
    (described,) = [
        row
        for row in table(det("experiment", "list", "--all", "--show_project", "--csv").out)
        if row["ID"] == str(done)
    ]
    assert (described["Workspace"], described["Project"], described["Archived"]) == (
        "Uncategorized",
        "Uncategorized",
        "False",
    )
    other = lab.platform.new_user("reader")
    assert str(done) not in other("experiment", "list").out.split()
    assert str(done) in other("experiment", "list", "-a").out.split()


def test_is_described(det: Det, done: int, tmp_path: Path):
    (found,) = det("experiment", "describe", str(done), "--json").json
    experiment = found["experiment"]
    assert (experiment["state"], experiment["numTrials"], experiment["progress"]) == (COMPLETED, 1, 1.0)
    assert (experiment["description"], experiment["labels"]) == ("three steps", ["short"])
    assert found["jobSummary"] is None or found["jobSummary"]["state"]
    det("experiment", "describe", str(done), "--metrics", "--outdir", str(tmp_path))
    (about,) = table((tmp_path / "experiments.csv").read_text())
    assert (about["Description"], about["Labels"], about["Archived"]) == ("three steps", "short", "False")
    (trial,) = table((tmp_path / "trials.csv").read_text())
    assert (trial["State"], '"steps": 3' in trial["H-Params"]) == ("COMPLETED", True)
    rows = table((tmp_path / "workloads.csv").read_text())
    assert [row["# of Batches"] for row in rows] == ["1", "2", "3"]
    assert [float(row["Training Metric: loss"]) for row in rows] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [float(row["Validation Metric: loss"]) for row in rows] == pytest.approx([2, 1, 2 / 3])
    assert {(row["Checkpoint State"], row["Validation State"]) for row in rows} == {("COMPLETED", "COMPLETED")}
    assert "three steps" in det("experiment", "describe", str(done)).out


def test_shows_its_configuration(det: Det, done: int):
    shown = det("experiment", "config", str(done)).out
    assert "entrypoint: python3 train.py" in shown
    assert "max_restarts: 0" in shown
    assert "smaller_is_better: true" in shown  # a default


def test_shows_trials_and_checkpoints(lab: Lab, det: Det, done: int):
    (trial,) = table(det("experiment", "list-trials", str(done), "--csv").out)
    assert (trial["State"], trial["# of Batches"]) == ("COMPLETED", "3")
    checkpoints = table(det("experiment", "list-checkpoints", str(done), "--csv").out)
    assert [row["# of Batches"] for row in checkpoints] == ["1", "2", "3"]
    assert {row["Trial ID"] for row in checkpoints} == {trial["Trial ID"]}
    assert [float(row["Validation Metric"]) for row in checkpoints] == pytest.approx([2, 1, 2 / 3])
    (best,) = table(det("experiment", "list-checkpoints", str(done), "--best", "1", "--csv").out)
    assert best["# of Batches"] == "3"
    assert "weights/layer.bin" in best["Resources"]
    assert of_steps(lab.checkpoints(done)) == [1, 2, 3]


def test_logs_are_read_in_parts(det: Det, done: int):
    everything = det("experiment", "logs", str(done)).out
    assert everything.index("begins after step 0") < everything.index("has trained")
    assert "has trained" in det("experiment", "logs", "-f", str(done)).out
    tail = det("experiment", "logs", "--tail", "1", str(done)).lines
    assert len(tail) == 2  # and that the stream has ended
    first = det("experiment", "logs", "--head", "1", str(done)).lines
    assert first[0] == everything.splitlines()[0]
    (line,) = det("experiment", "logs", "--tail", "1", "--json", str(done)).out.split("Trial log stream")[:1]
    assert '"trialId"' in line


def test_model_definition_comes_back_as_it_was(det: Det, done: int):
    det("experiment", "download-model-def", str(done))
    with tarfile.open(det.home / f"experiment_{done}_model_def.tgz") as archive:
        member = archive.extractfile("train.py")
        assert member is not None
        assert member.read() == (MODELS / "core" / "train.py").read_bytes()


def test_goes_on_where_it_was_paused(lab: Lab, det: Det, emptied: None):
    config = trained(steps=14, pause=0.2, every=100)
    experiment = lab.create(config, "--paused")
    assert lab.state(experiment) == PAUSED
    assert lab.watch.get("tasks")["allocationIdToSummary"] == {}
    det("experiment", "activate", str(experiment))
    trial = lab.first_trial(experiment)
    lab.until_logged(trial, "begins after step 0")
    eventually(lambda: lab.trial(trial)["totalBatchesProcessed"] >= 2)
    det("experiment", "pause", str(experiment))
    said = lab.until_logged(trial, "stops after step")
    step = int(said.split("stops after step ")[1].split()[0])
    lab.until(experiment, PAUSED)
    eventually(lambda: lab.trial(trial)["state"] == PAUSED)
    assert of_steps(lab.checkpoints(experiment)) == [step]
    det("experiment", "activate", str(experiment))
    lab.until(experiment, COMPLETED)
    assert f"begins after step {step}" in lab.logs(trial)
    reported = [report["totalBatches"] for report in lab.metrics(trial, "training")]
    assert reported == list(range(1, 15))
    assert lab.trial(trial)["restarts"] == 0


def test_is_canceled_gracefully(lab: Lab, det: Det, emptied: None):
    experiment = lab.create(trained(steps=500, pause=0.1, every=1000))
    trial = lab.first_trial(experiment)
    eventually(lambda: lab.trial(trial)["totalBatchesProcessed"] >= 1)
    det("experiment", "cancel", str(experiment))
    eventually(lambda: lab.state(experiment) == CANCELED)
    assert "stops after step" in lab.logs(trial)
    assert len(lab.checkpoints(experiment)) == 1
    assert lab.trial(trial)["state"] == CANCELED


def test_is_killed(lab: Lab, det: Det, emptied: None):
    experiment = lab.create(shell("trap '' TERM; echo deaf; while :; do sleep 1; done"))
    trial = lab.first_trial(experiment)
    lab.until_logged(trial, "deaf")
    det("experiment", "kill", str(experiment))
    eventually(lambda: lab.state(experiment) == CANCELED)
    assert lab.trial(trial)["state"] == CANCELED
    eventually(lambda: not lab.watch.get("tasks")["allocationIdToSummary"])


def test_failures_are_told(lab: Lab, det: Det):
    experiment = lab.create(shell("echo about to fail; exit 3"))
    det("experiment", "wait", str(experiment), "--polling-interval", "1", code=1)
    assert lab.state(experiment) == ERROR
    (trial,) = lab.trials(experiment)
    assert trial["state"] == ERROR
    logs = lab.logs(int(trial["id"]))
    assert "about to fail" in logs
    assert "3" in logs.split("about to fail")[1]


def test_starts_again_from_its_checkpoint(lab: Lab):
    config = {**trained(steps=3, fails_after=1), "max_restarts": 1}
    experiment = lab.completed(config)
    (trial,) = lab.trials(experiment)
    assert trial["restarts"] == 1
    logs = lab.logs(int(trial["id"]))
    assert logs.index("begins after step 0") < logs.index("begins after step 1") < logs.index("has trained")


def test_is_tried_out(lab: Lab, det: Det, emptied: None):
    """A deprecated flag that people still use: the client makes a very short search of it."""
    config = {**trained(steps=1), "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}}}
    told = det("experiment", "create", "--test-mode", lab.written(config), str(MODELS / "core")).out
    assert "configuration validation succeeded" in told
    assert "Model definition test succeeded" in told


def test_grid_search(lab: Lab, emptied: None):
    points: dict[str, Any] = {"type": "categorical", "vals": [3.0, 1.0, 2.0, 4.0]}
    config = {
        **trained(steps=1, scale=points),
        "searcher": {"name": "grid", "metric": "loss", "max_concurrent_trials": 2},
        "checkpoint_storage": {"save_experiment_best": 1, "save_trial_best": 0, "save_trial_latest": 0},
    }
    experiment = lab.completed(config, seconds=60)
    trials = lab.trials(experiment)
    assert sorted(trial["hparams"]["scale"] for trial in trials) == [1.0, 2.0, 3.0, 4.0]
    assert {trial["state"] for trial in trials} == {COMPLETED}
    (best,) = [trial["id"] for trial in trials if trial["hparams"]["scale"] == 1.0]

    def kept() -> list[int]:
        return [found["training"]["trialId"] for found in lab.checkpoints(experiment, COMPLETED)]

    eventually(lambda: kept() == [best], seconds=40)


def test_search_is_previewed(lab: Lab, det: Det):
    searcher = {"name": "adaptive_asha", "metric": "loss", "max_trials": 16, "max_time": 64, "time_metric": "batches"}
    told = det("preview-search", lab.written({**trained(), "searcher": searcher})).out
    assert "adaptive_asha" in told
    assert "16" in told


def test_what_the_client_may_change(lab: Lab, det: Det, done: int):
    experiment = str(lab.create(trained(), "--paused"))
    det("experiment", "label", "add", experiment, "nice")
    det("experiment", "label", "add", experiment, "new")
    det("experiment", "label", "remove", experiment, "nice")
    det("experiment", "set", "description", experiment, "another one")
    det("experiment", "set", "name", experiment, "renamed")
    det("experiment", "set", "max-slots", experiment, "3")
    det("experiment", "set", "weight", experiment, "2.5")
    det("experiment", "set", "priority", experiment, "7")
    det("experiment", "set", "log-retention", experiment, "--days", "20")
    found = lab.experiment(int(experiment))
    assert (found["labels"], found["description"], found["name"]) == (["new"], "another one", "renamed")
    resources = found["config"]["resources"]
    assert (resources["max_slots"], resources["weight"], resources["priority"]) == (3, 2.5, 7)
    det("experiment", "set", "max-slots", experiment, "none")
    assert lab.experiment(int(experiment))["config"]["resources"].get("max_slots") is None
    for days in ("--days", "-2"), ("--days", "40000"):
        assert "allowed range" in det("experiment", "set", "log-retention", experiment, *days, code=1).text
    det("experiment", "kill", experiment)


def test_priority_reaches_the_queue(lab: Lab, det: Det, emptied: None):
    experiment = lab.create(shell("while :; do sleep 1; done"))
    job = lab.experiment(experiment)["jobId"]

    def row() -> dict[str, str]:
        return next((row for row in det("job", "list").rows if row["ID"] == job), {})

    eventually(lambda: row().get("Priority") == "42")
    det("job", "update", job, "--priority", "9")
    eventually(lambda: row()["Priority"] == "9")
    assert lab.experiment(experiment)["config"]["resources"]["priority"] == 9
    det("experiment", "set", "priority", str(experiment), "11")
    eventually(lambda: row()["Priority"] == "11")


def test_is_put_away_and_moved(lab: Lab, det: Det, done: int):
    det("experiment", "archive", str(done))
    assert str(done) not in [row["ID"] for row in table(det("experiment", "list", "--csv").out)]
    det("experiment", "unarchive", str(done))
    assert str(done) in [row["ID"] for row in table(det("experiment", "list", "--csv").out)]
    det("workspace", "create", "lab")
    det("project", "create", "lab", "shelf")
    det("experiment", "move", str(done), "lab", "shelf")
    found = lab.experiment(done)
    assert (found["workspaceName"], found["projectName"]) == ("lab", "shelf")
    assert str(done) in det("project", "list-experiments", "lab", "shelf").out
    det("experiment", "move", str(done), "lab", "nowhere", code=1)


def test_continued_with_other_settings(lab: Lab, det: Det):
    experiment = lab.completed(trained(steps=2))
    (trial,) = lab.trials(experiment)
    det("experiment", "continue", str(experiment), "--config", "hyperparameters.steps=4")
    lab.until(experiment, COMPLETED)
    assert [found["id"] for found in lab.trials(experiment)] == [trial["id"]]
    assert "begins after step 2" in lab.logs(int(trial["id"]))
    assert lab.trial(int(trial["id"]))["totalBatchesProcessed"] == 4


def test_template_and_project(lab: Lab, det: Det):
    template = det.write("template.yaml", "max_restarts: 4\ndescription: by template\nlabels: [templated]\n")
    det("template", "set", "usual", template)
    det("workspace", "create", "rooms")
    det("project", "create", "rooms", "first")
    (project,) = det("workspace", "list-projects", "rooms", "--json").json
    config = {**trained(), "description": "own words"}
    experiment = lab.create(config, "--paused", "--template", "usual", "--project_id", str(project["id"]))
    found = lab.experiment(experiment)
    assert (found["description"], found["labels"]) == ("own words", ["templated"])
    assert (found["workspaceName"], found["projectName"]) == ("rooms", "first")
    assert found["config"]["max_restarts"] == 0  # the user's own wins
    det("experiment", "kill", str(experiment))


def test_is_deleted_with_all_that_it_has(lab: Lab, det: Det):
    experiment = lab.completed(trained(steps=1))
    (trial,) = lab.trials(experiment)
    (checkpoint,) = lab.checkpoints(experiment)
    kept = lab.platform.data / "checkpoints" / checkpoint["uuid"]
    assert (kept / "state.json").exists()
    assert "Aborting" in det("experiment", "delete", str(experiment), text="n\n").out
    det("experiment", "delete", str(experiment), "--yes")
    eventually(lambda: lab.watch.http("GET", f"experiments/{experiment}").status == 404, seconds=40)
    assert not kept.exists()
    assert lab.watch.http("GET", f"trials/{trial['id']}").status == 404
    assert lab.watch.http("GET", f"checkpoints/{checkpoint['uuid']}").status == 404
    det("experiment", "describe", str(experiment), code=1)


def test_only_what_has_ended_is_deleted(lab: Lab, det: Det, emptied: None):
    experiment = lab.create(shell("while :; do sleep 1; done"))
    lab.first_trial(experiment)
    assert "ERROR" not in lab.state(experiment)
    det("experiment", "delete", str(experiment), "--yes", code=1)
    det("experiment", "archive", str(experiment), code=1)


def test_ports_of_a_trial_are_published(lab: Lab, det: Det, emptied: None):
    inside, here = free_port(), free_port()
    config = {
        **shell(f"echo hello > greeting; python3 -m http.server {inside}"),
        "environment": {"proxy_ports": [{"proxy_port": inside, "proxy_tcp": True}]},
    }
    following = det.start(
        "experiment", "create", "-f", "-p", f"{here}:{inside}", lab.written(config), str(MODELS / "core")
    )
    try:
        eventually(lambda: read(f"http://127.0.0.1:{here}/greeting") == b"hello\n", seconds=40)
    finally:
        following.stop()


def read(url: str) -> bytes:
    try:
        return urllib3.request("GET", url, retries=False, timeout=2.0).data
    except urllib3.exceptions.HTTPError:
        return b""
