"""The proof: an adaptive search of 16 trials on four slots of two machines, each trial training a network with
Determined's PyTorch Trainer. It is paused and resumed, loses a machine, and its server is killed on the way."""

from typing import Any

import pytest
from tests.det.det_client import Det
from tests.det.det_experiments import COMPLETED, MODELS, Lab
from tests.det.det_platform import DetPlatform, eventually, machine

pytestmark = pytest.mark.timeout(300)  # a lost machine is waited for
OPTIONS = ("--fake-gpus", "2", "--set", "log.level=warning")
LONGEST = 32
LOST = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 1,  # what runs on a lost machine is not waited for
}
SEARCH: dict[str, Any] = {
    "name": "clouds, searched",
    "entrypoint": "python3 train.py",
    "searcher": {
        "name": "adaptive_asha",
        "metric": "validation_loss",
        "max_trials": 16,
        "max_time": LONGEST,
        "time_metric": "batches",
        "max_rungs": 2,
        "mode": "aggressive",
    },
    "hyperparameters": {
        "global_batch_size": 32,
        "batches": LONGEST,
        "every": LONGEST // 4,
        "pause": 0.05,
        "learning_rate": {"type": "log", "base": 10, "minval": -4, "maxval": -0.5},
        "hidden": {"type": "int", "minval": 4, "maxval": 32},
    },
    "environment": {"pod_spec": {"spec": {"tolerations": [LOST]}}},
    "reproducibility": {"experiment_seed": 7},
    "max_restarts": 2,
}


def steps(lab: Lab, trial: int) -> list[int]:
    return [report["totalBatches"] for report in lab.metrics(trial, "validation")]


def test_a_search_survives_what_happens_to_it(platform: DetPlatform, det: Det, lab: Lab):
    with machine(platform, "second", "--fake-gpus", "2") as second:
        experiment = lab.create(SEARCH, model="mlp")
        eventually(lambda: any(steps(lab, trial["id"]) for trial in lab.trials(experiment)), seconds=60, every=0.5)

        lab.paused(experiment)
        det("experiment", "activate", str(experiment))
        lost = eventually(lambda: on_machine(lab, "second"), seconds=40)
        second.lose()
        eventually(lambda: len(finished(lab, experiment)) >= 3, seconds=60, every=0.5)

        platform.kill()
        platform.start()
        eventually(lambda: lab.state(experiment) == COMPLETED, seconds=100, every=0.5)
    judge(lab, experiment)
    for run in lost:
        assert int(latest_run(lab, run).rpartition(".")[2]) > int(run.rpartition(".")[2])
    load_the_best(lab, det, experiment)
    eventually(lambda: lab.running() == 0)


def on_machine(lab: Lab, name: str) -> list[str]:
    """Runs that are there."""
    found = lab.watch.get("tasks")["allocationIdToSummary"]
    return [
        run for run, about in found.items() if any(name in part["agentDevices"] for part in about["resources"] or ())
    ]


def latest_run(lab: Lab, run: str) -> str:
    """Of the trial that this was a run of."""
    task = lab.watch.task(run.rpartition(".")[0])
    latest = max(task["allocations"], key=lambda found: int(found["allocationId"].rpartition(".")[2]))
    return str(latest["allocationId"])


def finished(lab: Lab, experiment: int) -> list[dict[str, Any]]:
    return [trial for trial in lab.trials(experiment) if trial["state"] == COMPLETED]


def judge(lab: Lab, experiment: int) -> None:
    trials = lab.trials(experiment)
    assert len(trials) == 16
    assert {trial["state"] for trial in trials} == {COMPLETED}, lab.all_logs(experiment)
    assert len({str(trial["hparams"]) for trial in trials}) == 16
    reached = [steps(lab, trial["id"]) for trial in trials]
    for trial, found in zip(trials, reached, strict=True):
        # None is told twice, whatever was trained again after a loss.
        assert found == sorted(set(found)), (trial["id"], found)
        assert found[0] == LONGEST // 4
    longest = [found[-1] for found in reached]
    assert LONGEST in longest
    # With four slots and a divisor of four, most are stopped at the first rung.
    assert sum(last < LONGEST for last in longest) >= 6, longest
    assert all(trial["restarts"] <= 1 for trial in trials)


def load_the_best(lab: Lab, det: Det, experiment: int) -> None:
    found = lab.watch.get(f"experiments/{experiment}")["experiment"]
    losses = {
        trial["id"]: min(
            report["metrics"]["validation_metrics"]["validation_loss"]
            for report in lab.metrics(trial["id"], "validation")
        )
        for trial in lab.trials(experiment)
    }
    best = min(losses, key=lambda trial: losses[trial])
    assert found["bestTrialId"] == best
    (path,) = det("experiment", "download", str(experiment), "-q", "-o", "best").lines
    script = (
        "import sys, torch; sys.path.insert(0, sys.argv[2]); import model_def; from determined import pytorch\n"
        "from torch.nn.functional import cross_entropy\n"
        "kinds = dict(trial_class=model_def.Clouds, torch_load_kwargs=dict(map_location='cpu', weights_only=False))\n"
        "trial = pytorch.load_trial_from_checkpoint_path(sys.argv[1], **kinds)\n"
        "points, labels = model_def.clouds(3).tensors\n"
        "print(cross_entropy(trial.model(points), labels).item())\n"
    )
    loss = float(det.python(script, str(det.home / path), str(MODELS / "mlp")).splitlines()[-1])
    assert abs(loss - losses[best]) < 0.05
