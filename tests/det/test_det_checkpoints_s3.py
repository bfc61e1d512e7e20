"""Checkpoints in a bucket: saved by Determined's library, downloaded by both, removed by ours."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.det import det_s3
from tests.det.det_client import ROOT, Det, Forks
from tests.det.det_experiments import COMPLETED, Lab, of_steps, trained
from tests.det.det_platform import DetPlatform, det_platform, eventually
from tests.det.det_s3 import Bucket

BOTH_WAYS = Path(__file__).parent / "sdk" / "s3_both_ways.py"
STORAGES = ROOT / "src" / "muster" / "tasks" / "glue" / "storages.py"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with det_s3.bucket("checkpoints") as found:
        yield found


@pytest.fixture(scope="module")
def platform(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetPlatform]:
    packages = det_s3.client_packages(tmp_path_factory.mktemp("s3") / "packages")
    with det_platform(forks, "--fake-gpus", "2", variables={"PYTHONPATH": packages}) as running:
        yield running


def test_each_reads_and_removes_what_the_other_has_saved(det: Det, bucket: Bucket):
    assert "both ways" in det.python(BOTH_WAYS.read_text(), bucket.endpoint, str(STORAGES))


def test_from_training_to_removal(lab: Lab, det: Det, bucket: Bucket, tmp_path: Path):
    storage = bucket.storage(prefix="team/a", save_trial_best=1, save_trial_latest=2)
    experiment = lab.completed({**trained(steps=3), "checkpoint_storage": storage})
    eventually(lambda: of_steps(lab.checkpoints(experiment, COMPLETED)) == [2, 3], seconds=60)
    second, third = (found["uuid"] for found in lab.checkpoints(experiment, COMPLETED))
    kept = {key for key in bucket.objects() if "tensorboard" not in key}
    assert {key.split("/")[2] for key in kept} == {second, third}
    assert f"team/a/{third}/weights/layer.bin" in kept
    for mode in ("direct", "master"):
        into = tmp_path / mode
        det("checkpoint", "download", third, "--mode", mode, "-o", str(into))
        assert json.loads((into / "state.json").read_text()) == {"step": 3}
        assert (into / "weights" / "layer.bin").read_bytes() == bytes(3)
    det("checkpoint", "rm", third, "--glob", "weights", "--yes")
    eventually(lambda: not any(key.startswith(f"team/a/{third}/weights") for key in bucket.objects()), seconds=40)
    det("experiment", "delete", str(experiment), "--yes")
    eventually(lambda: lab.watch.http("GET", f"experiments/{experiment}").status == 404, seconds=60)
    assert bucket.objects() == []


def test_one_that_cannot_be_reached_fails_the_trial_with_a_reason(lab: Lab, bucket: Bucket):
    missing = bucket.storage(bucket="nowhere")
    experiment = lab.create({**trained(steps=1), "checkpoint_storage": missing})
    eventually(lambda: lab.state(experiment) == "STATE_ERROR", seconds=40)
    assert "nowhere" in lab.all_logs(experiment) or "NoSuchBucket" in lab.all_logs(experiment)
