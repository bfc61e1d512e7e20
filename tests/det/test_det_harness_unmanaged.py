"""Experiments that run elsewhere, and TensorBoards over experiments."""

import re
from pathlib import Path

from tests.det.det_client import Det
from tests.det.det_experiments import COMPLETED, ERROR, Lab, of_steps, trained
from tests.det.det_platform import eventually

OPTIONS = ("--fake-gpus", "2")
UNMANAGED = Path(__file__).parent / "sdk" / "unmanaged.py"


def test_trained_outside_and_taken_up_again(lab: Lab, det: Det, tmp_path: Path):
    told = det.python(UNMANAGED.read_text(), str(tmp_path), timeout=90)
    trials = re.findall(r"begins after (\d+) in trial (\d+)", told)
    assert [begin for begin, _ in trials] == ["0", "2"]
    assert len({trial for _, trial in trials}) == 1
    trial = int(trials[0][1])
    experiment = int(lab.trial(trial)["experimentId"])
    found = lab.experiment(experiment)
    assert (found["name"], found["labels"], found["unmanaged"]) == ("elsewhere", ["outside"], True)
    assert lab.trial(trial)["hparams"] == {"rate": 0.5}
    assert [report["totalBatches"] for report in lab.metrics(trial, "training")] == [1, 2, 3, 4]
    assert of_steps(lab.checkpoints(experiment, COMPLETED))[-1] == 4
    assert lab.state(experiment) == COMPLETED
    assert lab.trial(trial)["state"] == COMPLETED
    assert "begins after 2" in lab.logs(trial)  # its output is shipped as well


def test_what_fails_outside_has_failed(lab: Lab, det: Det, tmp_path: Path):
    script = (
        "import sys\n"
        "from determined.experimental import core_v2\n"
        "defaults = core_v2.DefaultConfig(name='fails', checkpoint_storage=sys.argv[1])\n"
        "with core_v2.init_context(defaults=defaults) as context:\n"
        "    print(context.info.trial.trial_id, flush=True)\n"
        "    sys.exit(1)\n"
    )
    told = det.python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}, {str(tmp_path)!r}])")
    trial = int(told.split()[0])
    eventually(lambda: lab.trial(trial)["state"] == ERROR)


def test_a_tensorboard_shows_what_was_trained(lab: Lab, det: Det, emptied: None):
    experiment = lab.completed(trained(steps=3))
    (task,) = det("tensorboard", "start", str(experiment), "--detach").lines[-1:]
    lab.watch.until_ready(task, 90)
    (row,) = [row for row in det("tensorboard", "list").rows if row["id"] == task]
    assert row["state"] == "RUNNING"

    def tags() -> str:
        return lab.platform.http("GET", f"/proxy/{task}/data/plugin/scalars/tags", token=lab.watch.token).text

    eventually(lambda: "loss" in tags(), seconds=40)
    det("tensorboard", "kill", task)
    of_trial = det("tensorboard", "start", "-t", str(lab.first_trial(experiment)), "--detach").lines[-1]
    assert lab.watch.get("tensorboards")["tensorboards"][-1]["trialIds"] == [lab.first_trial(experiment)]
    det("tensorboard", "kill", of_trial)
    assert "999" in det("tensorboard", "start", "999", "--detach", code=1).text
