"""Determined's callbacks for other libraries, unmodified, inside of trials: what they report, and that a trial goes on
where it was paused. `make test-det` does not install these libraries, which are gigabytes: they are tried where they
have been put into `build/det-venv`, in versions that Determined 0.38.1 knows."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.det.det_client import ENVIRONMENT, PYTHON, Det
from tests.det.det_experiments import COMPLETED, Lab, of_steps
from tests.det.det_platform import eventually

OPTIONS = ("--fake-gpus", "1")


@dataclass(frozen=True)
class Library:
    """`packages`: what must be installed. `hparams`: how long it trains. `steps`: after which it reports."""

    name: str
    packages: Sequence[str]
    metric: str
    hparams: Mapping[str, Any]
    steps: Sequence[int]

    def config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "entrypoint": "python3 train.py",
            "searcher": {"name": "single", "metric": self.metric},
            "hyperparameters": dict(self.hparams),
            "checkpoint_storage": {"save_trial_best": 1, "save_trial_latest": 2},
            "max_restarts": 0,
        }


LIBRARIES = [
    Library(
        "transformers_callback",
        ("torch>=2.2", "transformers<5", "accelerate"),
        "eval_loss",
        {"steps": 40, "every": 5, "pause": 0.05},
        range(5, 41, 5),
    ),
    Library("keras_callback", ("keras<3", "tensorflow-cpu"), "loss", {"epochs": 8, "pause": 0.2}, range(5, 41, 5)),
]


MISSING = """
import sys
from importlib import metadata
from packaging.requirements import Requirement

def is_missing(wanted):
    try:
        return not wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return True

print(*(each for each in sys.argv[1:] if is_missing(Requirement(each))))
"""


@pytest.fixture(scope="module", params=LIBRARIES, ids=[library.name for library in LIBRARIES])
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.param
    asked = subprocess.run([PYTHON, "-c", MISSING, *found.packages], capture_output=True, text=True, check=True)
    if asked.stdout.strip():
        pytest.skip(f"not installed in {ENVIRONMENT.name}: {asked.stdout.strip()}")
    return found


@pytest.mark.timeout(300)
def test_reported_paused_and_resumed(library: Library, lab: Lab, det: Det, emptied: None):
    experiment = lab.create(library.config(), model=library.name)
    trial = lab.first_trial(experiment)
    eventually(lambda: lab.metrics(trial, "validation") and lab.checkpoints(experiment), seconds=120)
    lab.paused(experiment)
    saved = of_steps(lab.checkpoints(experiment))
    assert saved[-1] < library.steps[-1]
    det("experiment", "activate", str(experiment))
    lab.until(experiment, COMPLETED, 120)
    first, again = re.findall(r"begins from (\S+)", lab.logs(trial))
    assert first == "None"
    assert again != "None"
    for group in ("training", "validation"):
        assert [report["totalBatches"] for report in lab.metrics(trial, group)] == list(library.steps)
    losses = [report["metrics"]["validation_metrics"][library.metric] for report in lab.metrics(trial, "validation")]
    assert losses[-1] < losses[0], losses
    assert lab.experiment(experiment)["progress"] == 1
    eventually(lambda: of_steps(lab.checkpoints(experiment, COMPLETED))[-1] == library.steps[-1])
