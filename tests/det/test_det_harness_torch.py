"""Determined's PyTorch Trainer, unmodified, inside of trials: alone, paused and resumed, over several slots and nodes,
and as it was written before there were scripts."""

import re
from typing import Any

import pytest
from tests.det.det_client import Det
from tests.det.det_experiments import COMPLETED, ERROR, MODELS, Lab, of_steps
from tests.det.det_platform import eventually
from tests.det.det_tasks import processes_of_task

OPTIONS = ("--nodes", "2", "--fake-gpus", "2")
LAUNCH = "python3 -m determined.launch.torch_distributed"
# The launcher of PyTorch 1.13 fails on Python 3.11 (both Debian 12's) unless the first two say something: that the
# output of a tenth process would go to a file. The last: how often it looks at its processes.
OF_LAUNCHER = ["PET_REDIRECTS=9:1", "PET_TEE=9:1", "PET_MONITOR_INTERVAL=0.5"]


def clouds(entrypoint: str = "python3 train.py", slots: int = 1, **hparams: Any) -> dict[str, Any]:
    return {
        "name": "clouds",
        "entrypoint": entrypoint,
        "searcher": {"name": "single", "metric": "validation_loss"},
        "hyperparameters": {"global_batch_size": 32, "batches": 20, "every": 10, **hparams},
        "resources": {"slots_per_trial": slots},
        "environment": {"environment_variables": OF_LAUNCHER},
        "max_restarts": 0,
    }


def test_trained_resumed_and_loaded(lab: Lab, det: Det, emptied: None):
    """What the Trainer saves is more than weights, which newer PyTorch does not load unless it is told to."""
    experiment = lab.create(clouds(batches=60, every=5, pause=0.1), model="mlp")
    trial = lab.first_trial(experiment)
    eventually(lambda: lab.metrics(trial, "training"), seconds=60)
    lab.paused(experiment)
    saved = lab.checkpoints(experiment)
    assert 5 <= of_steps(saved)[-1] < 60
    det("experiment", "activate", str(experiment))
    lab.until(experiment, COMPLETED, 60)
    assert re.findall(r"rank 0 of 1 on \S+, from (\S+)", lab.logs(trial))[1] in {found["uuid"] for found in saved}
    losses = [report["metrics"]["validation_metrics"]["validation_loss"] for report in lab.metrics(trial, "validation")]
    assert losses[-1] < losses[0] / 2, losses
    steps = [report["totalBatches"] for report in lab.metrics(trial, "training")]
    assert steps == sorted(set(steps))
    best = lab.checkpoints(experiment, COMPLETED)[-1]["uuid"]
    det("checkpoint", "download", best, "-o", "trained")
    script = (
        "import torch, sys; sys.path.insert(0, sys.argv[2]); import model_def; from determined import pytorch\n"
        "kinds = dict(map_location='cpu', weights_only=False)\n"
        "state = torch.load(sys.argv[1] + '/state_dict.pth', **kinds)\n"
        "print(sum(value.numel() for value in state['models_state_dict'][0].values()))\n"
        "trial = pytorch.load_trial_from_checkpoint_path(sys.argv[1], trial_class=model_def.Clouds,"
        " trial_kwargs=dict(), torch_load_kwargs=kinds)\n"
        "print(type(trial).__name__)\n"
    )
    told = det.python(script, str(det.home / "trained"), str(MODELS / "mlp")).splitlines()
    assert told == [str(16 * 16 + 16 + 16 * 10 + 10), "Clouds"]


def test_a_user_may_insist_on_weights_only(lab: Lab, det: Det, emptied: None):
    """Which shows that the other way is what makes a resume work."""
    config = clouds(batches=200, every=5, pause=0.1)
    config["environment"] = {"environment_variables": ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=0"]}
    experiment = lab.create(config, model="mlp")
    trial = lab.first_trial(experiment)
    eventually(lambda: lab.metrics(trial, "training"), seconds=60)
    lab.paused(experiment)
    det("experiment", "activate", str(experiment))
    eventually(lambda: lab.state(experiment) == ERROR, seconds=60)
    assert "unpickl" in lab.logs(trial).lower()


def test_two_slots_of_one_node(lab: Lab, emptied: None):
    experiment = lab.completed(clouds(f"{LAUNCH} python3 train.py", slots=2), model="mlp", seconds=90)
    logs = lab.logs(lab.first_trial(experiment))
    assert "[rank=0]" in logs
    assert "rank 0 of 2" in logs
    assert "rank 1 of 2" in logs
    assert len(lab.metrics(lab.first_trial(experiment), "validation")) == 2


def test_four_slots_of_two_nodes(lab: Lab, emptied: None):
    """More than a node has: the trial is a gang, and its parts find each other."""
    experiment = lab.completed(clouds(f"{LAUNCH} python3 train.py", slots=4), model="mlp", seconds=120)
    trial = lab.first_trial(experiment)
    logs = lab.logs(trial)
    for rank in range(4):
        assert f"rank {rank} of 4" in logs
        assert f"rank {rank} has trained" in logs
    nodes = {line.split(" of 4 on ")[1].split(",")[0] for line in logs.splitlines() if " of 4 on " in line}
    assert len(nodes) == 2
    assert len(lab.metrics(trial, "validation")) == 2  # told by one rank only


def test_ranks_of_core_api_meet_and_stop_together(lab: Lab, det: Det, emptied: None):
    config = {
        **clouds(f"{LAUNCH} python3 train.py", slots=4),
        "searcher": {"name": "single", "metric": "loss"},
        "hyperparameters": {"rounds": 600},
    }
    experiment = lab.create(config, model="ranks")
    trial = lab.first_trial(experiment)
    logs = lab.until_logged(trial, "met [", seconds=60)
    eventually(lambda: lab.logs(trial).count("met [") == 4)
    (said,) = {line.split("met ")[1].split(", here")[0] for line in lab.logs(trial).splitlines() if "met [" in line}
    assert [f"'{rank}@" in said for rank in range(4)] == [True] * 4
    assert said.endswith("chief 0"), logs
    (checkpoint,) = eventually(lambda: lab.checkpoints(experiment))
    assert {f"rank-{rank}" for rank in range(4)} <= set(checkpoint["resources"])
    task = lab.trial(trial)["taskId"]
    lab.paused(experiment)
    assert lab.logs(trial).count("stops") == 4
    eventually(lambda: processes_of_task(task) == [])
    det("experiment", "kill", str(experiment))


def test_a_class_as_the_entrypoint(lab: Lab, emptied: None):
    """As it was written before there were scripts: the length comes from the configuration."""
    config = clouds("model_def:Clouds")
    config["searcher"] = {"name": "single", "metric": "validation_loss", "max_length": {"batches": 20}}
    config["min_validation_period"] = {"batches": 10}
    experiment = lab.completed(config, model="mlp", seconds=90)
    trial = lab.first_trial(experiment)
    assert [report["totalBatches"] for report in lab.metrics(trial, "validation")] == [10, 20]
    assert lab.checkpoints(experiment, COMPLETED)


@pytest.mark.parametrize("launcher", ["horovod", "deepspeed"])
def test_launchers_that_are_not_there_are_named(lab: Lab, det: Det, launcher: str):
    config = clouds(f"python3 -m determined.launch.{launcher} python3 train.py", slots=2)
    told = det("experiment", "create", lab.written(config), str(MODELS / "mlp"), code=1).text
    assert launcher in told
