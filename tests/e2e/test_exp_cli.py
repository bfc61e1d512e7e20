"""`muster exp` and the training API against a real platform: a search from beginning to end, as the guide has it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.cli_platform import ROOT, Platform, platform
from tests.e2e.test_cli_terminal import Terminal

SEARCH = ROOT / "examples" / "search"
_KEEPS_ON = """
import time
from pathlib import Path
from muster.sdk import training

with training.run() as run:
    saved = run.latest_checkpoint()
    print("begins after", run.steps_completed, "with", saved and (saved / "step").read_text(), flush=True)
    for step in range(run.steps_completed + 1, 10_000):
        time.sleep(0.02)
        run.report(step, {"loss": 1 / step}, group="validation")
        if (stops := run.should_stop()) or run.hparams["length"] == step:
            run.save(Path(__file__), step)
            with run.checkpoint(step) as directory:
                (directory / "step").write_text(str(step))
            print("ends after", step, flush=True)
            break
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform() as found:
        yield found


@pytest.fixture
def keeps_on(tmp_path: Path) -> Path:
    """A model that trains until it is told to stop, or for so many steps."""
    (tmp_path / "train.py").write_text(_KEEPS_ON)
    config = {
        "name": "keeps-on",
        "entrypoint": "python3 train.py",
        "hyperparameters": {"length": 0},
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    return tmp_path


def made(up: Platform, *arguments: str) -> str:
    done = up.muster("exp", "create", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[1]


def told(up: Platform, id: str) -> dict:
    found: dict = json.loads(up.muster("exp", "describe", id, "-o", "json").stdout)
    return found


def until(up: Platform, id: str, answer, seconds: float = 30.0) -> dict:
    deadline = time.monotonic() + seconds
    while not answer(found := told(up, id)):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def steps(found: dict) -> int:
    return max((trial["totalBatchesProcessed"] for trial in found["trials"]), default=0)


def test_a_search_ends_with_its_best_trial_whose_checkpoint_can_be_loaded(up, tmp_path):
    done = up.muster("exp", "create", str(SEARCH), "--follow", "-c", "searcher.max_trials=6", timeout=100)
    assert done.returncode == 0, done.stderr
    id, best = done.stdout.split()[1], done.stdout.splitlines()[-1]
    trial, error = best.removeprefix("Best: trial ").split(", error ")
    assert float(error) < 0.1

    trials = told(up, id)["trials"]
    assert len(trials) == 6
    assert {each["state"] for each in trials} == {"STATE_COMPLETED"}
    lengths = sorted(each["totalBatchesProcessed"] for each in trials)
    assert lengths[0] < 27 == lengths[-1]  # some were stopped early, some were not

    done = up.muster("exp", "best", id, "--download", str(tmp_path / "best"))
    assert done.returncode == 0, done.stderr
    assert f"Trial:           {trial}" in done.stdout
    fetched = done.stderr.split("of trial ")[1].split()[0]
    [chosen] = [each["hparams"]["hidden"] for each in trials if str(each["id"]) == fetched]
    with np.load(tmp_path / "best" / "network.npz") as kept:
        assert kept["arr_0"].shape == (2, chosen)

    drawn = up.muster("exp", "plot", id)
    assert f"trial {trial}  " in drawn.stdout.splitlines()[-6]
    assert drawn.stdout.splitlines()[-6].endswith("(best)")
    assert up.muster("exp", "plot", id, "--metric", "loss", "--group", "training", "-o", str(tmp_path / "a.svg")).stdout
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    summary = up.muster("exp", "metrics", id).stdout.splitlines()
    assert len(summary) == 1 + 2 * 6
    rows = json.loads(up.muster("exp", "metrics", id, "--trial", trial, "-o", "json").stdout)
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))


def test_what_is_paused_goes_on_from_its_checkpoint(up, keeps_on):
    id = made(up, str(keeps_on))
    until(up, id, lambda found: steps(found) >= 3)
    assert up.muster("exp", "pause", id).returncode == 0
    _until_log(up, id, "ends after", 1)
    assert up.muster("exp", "activate", id).returncode == 0
    logs = _until_log(up, id, "begins after", 2)
    ended = [line.split()[2] for line in logs if line.startswith("ends after")]
    begun = [line.split() for line in logs if line.startswith("begins after")]
    assert begun == [["begins", "after", "0", "with", "None"], ["begins", "after", ended[0], "with", ended[0]]]
    assert up.muster("exp", "cancel", id).returncode == 0
    done = up.muster("exp", "wait", id)
    assert (done.returncode, "Canceled after" in done.stderr) == (1, True)


def _log(up: Platform, id: str) -> list[str]:
    return up.muster("exp", "logs", id).stdout.splitlines()


def _until_log(up: Platform, id: str, start: str, count: int) -> list[str]:
    deadline = time.monotonic() + 30.0
    while True:
        lines = _log(up, id)
        if sum(line.startswith(start) for line in lines) >= count:
            return lines
        assert time.monotonic() < deadline, lines
        time.sleep(0.2)


def test_an_interrupt_while_following_leaves_the_experiment_alone(up, keeps_on):
    terminal = Terminal(up, "exp", "create", str(keeps_on), "--follow")
    terminal.until("best loss")
    terminal.type("\x03")
    terminal.until("goes on. Wait for it: muster exp wait")
    assert terminal.end() == 130
    id = terminal.plain().split("experiment ")[1].split()[0]
    assert told(up, id)["experiment"]["state"] in ("STATE_RUNNING", "STATE_ACTIVE")
    assert up.muster("exp", "kill", id).returncode == 0
    assert up.muster("exp", "wait", id).returncode == 1
    assert up.muster("exp", "delete", id, "-y").returncode == 0


def test_a_program_that_fails_is_shown_with_the_end_of_its_log(up, keeps_on):
    (keeps_on / "train.py").write_text("raise ValueError('the data is not there')\n")
    done = up.muster("exp", "create", str(keeps_on), "--follow")
    assert done.returncode == 1
    assert "ValueError: the data is not there" in done.stderr


def test_hyperparameters_that_make_no_sense_are_not_an_error(up, keeps_on):
    program = "from muster.sdk import training\nwith training.run() as run:\n    run.invalid_hparams()\n"
    (keeps_on / "train.py").write_text(program)
    id = made(up, str(keeps_on))
    up.muster("exp", "wait", id)
    [trial] = told(up, id)["trials"]
    assert trial["restarts"] == 0


def test_what_is_wrong_is_told_before_anything_runs(up, keeps_on):
    done = up.muster("exp", "create", str(keeps_on), "-c", "searcher.name=sigle", "-c", "resources.slots=x")
    assert done.returncode == 2
    assert "searcher.name" in done.stderr
    assert up.muster("exp", "describe", "9999").stderr.startswith("error: experiment 9999")


def test_training_elsewhere_is_on_record(up, keeps_on):
    server = up.client.connection
    env = {**up.env, "MUSTER_SERVER": server.server, "MUSTER_TOKEN": server.token}
    program = _KEEPS_ON.replace("training.run()", "training.run({'length': 5}, config={'name': 'from-here'})")
    (keeps_on / "train.py").write_text(program)
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=keeps_on, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    id = done.stdout.split("reports to experiment ")[1].split()[0]
    found = told(up, id)
    assert found["experiment"]["state"] == "STATE_COMPLETED"
    assert found["experiment"]["name"] == "from-here"
    assert [trial["totalBatchesProcessed"] for trial in found["trials"]] == [5]


def test_training_goes_on_while_the_server_is_away(up, keeps_on):
    """The whole process is stopped, as a machine that hangs would be, and wakes again."""
    id = made(up, str(keeps_on), "-c", "hyperparameters.length=60")
    until(up, id, lambda found: steps(found) >= 3)
    up.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(2.0)
    finally:
        up.process.send_signal(signal.SIGCONT)
    assert up.muster("exp", "wait", id).returncode == 0
    [trial] = told(up, id)["trials"]
    assert (trial["totalBatchesProcessed"], trial["restarts"]) == (60, 0)
    rows = json.loads(up.muster("exp", "metrics", id, "--trial", str(trial["id"]), "-o", "json").stdout)
    assert [row["step"] for row in rows] == list(range(1, 61))
