"""Every call of the SDK about experiments, trials, checkpoints and models; the scripts check what they get."""

import json
import tarfile
from pathlib import Path

from tests.det.det_client import Det
from tests.det.det_experiments import MODELS, Lab, trained

OPTIONS = ("--fake-gpus", "2")
SCRIPTS = Path(__file__).parent / "sdk"
KEEP_ALL = {"save_trial_best": 9, "save_trial_latest": 9}


def test_experiments_and_trials(lab: Lab, det: Det, emptied: None):
    config = {**trained(steps=3), "name": "sdk", "labels": ["sdk"], "checkpoint_storage": KEEP_ALL}
    told = det.python((SCRIPTS / "experiments.py").read_text(), str(MODELS / "core"), json.dumps(config), timeout=120)
    found = json.loads(told.splitlines()[-1])
    assert lab.experiment(found["experiment"])["projectName"] == "sdk-shelf"
    with tarfile.open(det.home / found["code"]) as archive:
        assert "train.py" in archive.getnames()


def test_checkpoints_and_models(lab: Lab, det: Det, emptied: None):
    experiment = lab.completed({**trained(steps=3), "checkpoint_storage": KEEP_ALL})
    told = det.python((SCRIPTS / "checkpoints.py").read_text(), str(experiment), timeout=120)
    assert told.splitlines()[-1] == "all done"
