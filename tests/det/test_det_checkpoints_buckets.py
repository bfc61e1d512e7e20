"""Checkpoints in S3 and in Google's and Azure's storage: saved by Determined's library, downloaded by both, removed by
ours."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.det import det_buckets
from tests.det.det_buckets import Bucket
from tests.det.det_client import ROOT, Det, Forks
from tests.det.det_experiments import COMPLETED, ERROR, Lab, of_steps, trained
from tests.det.det_platform import DetPlatform, det_platform, eventually
from tests.e2e.cli_platform import MUSTER

BOTH_WAYS = Path(__file__).parent / "sdk" / "both_ways.py"
GLUE = ROOT / "src" / "muster" / "tasks" / "glue"


@pytest.fixture(scope="module", params=["s3", "gcs", "azure"])
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    """The variables are for our server and the client; tasks have what their experiments give them."""
    with getattr(det_buckets, request.param)() as found, pytest.MonkeyPatch.context() as around:
        for name, value in found.variables.items():
            around.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def platform(forks: Forks, bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetPlatform]:
    packages = det_buckets.client_packages(tmp_path_factory.mktemp("clients") / "packages")
    path = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
    with det_platform(forks, "--fake-gpus", "2", variables={"PYTHONPATH": path}) as running:
        yield running


def test_each_reads_and_removes_what_the_other_has_saved(det: Det, bucket: Bucket):
    assert "both ways" in det.python(BOTH_WAYS.read_text(), str(GLUE), *map(json.dumps, bucket.ways))
    assert bucket.objects() == []


def test_from_training_to_removal(lab: Lab, det: Det, bucket: Bucket, tmp_path: Path):
    storage = bucket.storage(save_trial_best=1, save_trial_latest=2)
    experiment = lab.completed({**trained(steps=3), "checkpoint_storage": storage, "environment": bucket.environment()})
    eventually(lambda: of_steps(lab.checkpoints(experiment, COMPLETED)) == [2, 3], seconds=60)
    second, third = (found["uuid"] for found in lab.checkpoints(experiment, COMPLETED))
    below = f"{storage['prefix']}/" if "prefix" in storage else ""
    kept = {name.removeprefix(below) for name in bucket.objects() if "tensorboard" not in name}
    assert {name.split("/")[0] for name in kept} == {second, third}
    assert f"{third}/weights/layer.bin" in kept
    for mode in ("direct", "master"):
        det("checkpoint", "download", third, "--mode", mode, "-o", str(tmp_path / mode))
        is_step(3, tmp_path / mode)
    native(lab, "exp", "best", str(experiment), "--download", str(tmp_path / "best"))
    is_step(3, tmp_path / "best")
    det("checkpoint", "rm", third, "--glob", "weights", "--yes")
    eventually(lambda: not any(f"{third}/weights" in name for name in bucket.objects()), seconds=40)
    det("experiment", "delete", str(experiment), "--yes")
    eventually(lambda: lab.watch.http("GET", f"experiments/{experiment}").status == 404, seconds=60)
    assert bucket.objects() == []


def test_resumed_from_it(lab: Lab, det: Det, bucket: Bucket):
    config = {
        **trained(steps=60, pause=0.1),
        "checkpoint_storage": bucket.storage(),
        "environment": bucket.environment(),
    }
    experiment = lab.create(config)
    eventually(lambda: lab.checkpoints(experiment), seconds=40)
    lab.paused(experiment)
    steps = of_steps(lab.checkpoints(experiment))[-1]
    det("experiment", "activate", str(experiment))
    lab.until_logged(lab.first_trial(experiment), f"begins after step {steps}")
    det("experiment", "kill", str(experiment))


def test_one_that_cannot_be_used_fails_the_trial_and_its_removal_with_a_reason(lab: Lab, det: Det, bucket: Bucket):
    config = {**trained(steps=1), "checkpoint_storage": bucket.missing, "environment": bucket.environment()}
    experiment = lab.create(config)
    eventually(lambda: lab.state(experiment) == ERROR, seconds=60)
    assert bucket.complaint in lab.all_logs(experiment)
    det("experiment", "delete", str(experiment), "--yes")
    eventually(lambda: lab.state(experiment) == "STATE_DELETE_FAILED", seconds=60)
    told = lab.experiment(experiment)["error"]
    assert "checkpoint_storage nowhere: " in told, told


def is_step(step: int, directory: Path) -> None:
    assert json.loads((directory / "state.json").read_text()) == {"step": step}
    assert (directory / "weights" / "layer.bin").read_bytes() == bytes(step)


def native(lab: Lab, *words: str) -> None:
    """Our own command."""
    variables = {"MUSTER_SERVER": lab.platform.master, "MUSTER_TOKEN": lab.watch.token}
    done = subprocess.run(
        [*MUSTER, *words], env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
