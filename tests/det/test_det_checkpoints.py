"""Checkpoints: looked at, downloaded, removed in part or whole, kept by a policy; event files beside them."""

import io
import json
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.det.det_client import Det
from tests.det.det_experiments import COMPLETED, Lab, of_steps, trained
from tests.det.det_platform import eventually

OPTIONS = ("--fake-gpus", "2", "--set", f"tasks.bind_mounts=[{tempfile.gettempdir()}]")
KEEP_ALL = {"save_trial_best": 9, "save_trial_latest": 9}
FILES = {"metadata.json", "state.json", "weights/layer.bin"}
GONE, IN_PART = "STATE_DELETED", "STATE_PARTIALLY_DELETED"


@pytest.fixture(scope="module")
def three(lab: Lab) -> int:
    """An experiment with checkpoints after steps 1, 2 and 3."""
    return lab.completed({**trained(steps=3), "checkpoint_storage": KEEP_ALL})


def stored(lab: Lab, uuid: str) -> set[str]:
    root = lab.platform.data / "checkpoints" / uuid
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_described(lab: Lab, det: Det, three: int):
    last = lab.checkpoints(three)[-1]
    told = det("checkpoint", "describe", last["uuid"]).out
    assert all(word in told for word in (last["uuid"], '"who": "train.py"', '"loss": 0.666'))
    assert set(last["resources"]) - {"weights/"} == FILES
    assert last["resources"]["weights/layer.bin"] == "3"
    assert last["training"]["hparams"]["steps"] == 3
    det("checkpoint", "describe", "00000000-0000-0000-0000-000000000000", code=1)


@pytest.mark.parametrize("mode", ["auto", "direct", "master"])
def test_downloaded(lab: Lab, det: Det, three: int, tmp_path: Path, mode: str):
    uuid = lab.checkpoints(three)[-1]["uuid"]
    into = tmp_path / "here"
    told = det("checkpoint", "download", uuid, "--mode", mode, "-o", str(into), "-q").out
    assert told.strip() == str(into)
    assert {str(path.relative_to(into)) for path in into.rglob("*") if path.is_file()} == FILES
    assert json.loads((into / "state.json").read_text()) == {"step": 3}


def _of_tar(body: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        found = [(member.name, archive.extractfile(member)) for member in archive if member.isfile()]
        return {name: file.read() for name, file in found if file is not None}


def _of_zip(body: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@pytest.mark.parametrize(
    ("kind", "start", "read"),
    [
        ("application/gzip", b"\x1f\x8b", _of_tar),
        ("application/x-tar", b"", _of_tar),
        ("application/zip", b"PK", _of_zip),
    ],
)
def test_downloaded_as_one_file(
    lab: Lab, three: int, kind: str, start: bytes, read: Callable[[bytes], dict[str, bytes]]
):
    uuid = lab.checkpoints(three)[-1]["uuid"]
    answer = lab.platform.http("GET", f"/checkpoints/{uuid}", token=lab.watch.token, headers={"Accept": kind})
    assert (answer.status, answer.headers["Content-Type"]) == (200, kind)
    assert answer.body.startswith(start)
    found = read(answer.body)
    assert set(found) == FILES
    assert found["weights/layer.bin"] == bytes(3)
    assert lab.platform.http("GET", f"/checkpoints/{uuid}", headers={"Accept": kind}).status == 401


def test_the_best_of_an_experiment_or_a_trial(lab: Lab, det: Det, three: int, tmp_path: Path):
    best = lab.checkpoints(three)[-1]["uuid"]
    det("experiment", "download", str(three), "-o", str(tmp_path / "best"))
    assert [path.name for path in (tmp_path / "best").iterdir()] == [best]
    told = det(
        "experiment", "download", str(three), "-q", "-o", str(tmp_path / "two"),
        "--top-n", "2", "--sort-by", "loss", "--smaller-is-better", "false",
    ).lines  # fmt: skip
    assert [Path(line).name for line in told] == [found["uuid"] for found in lab.checkpoints(three)[:2]]
    trial = str(lab.first_trial(three))
    for words in ("--best", "--sort-by", "loss", "--smaller-is-better", "false"), ("--latest",):
        # The client takes the last of the list that it asks for, which is the other end of what one would think.
        into = tmp_path / words[0]
        det("trial", "download", trial, *words, "-o", str(into))
        assert (into / "state.json").exists()


def test_removed_in_part_and_whole(lab: Lab, det: Det):
    experiment = lab.completed({**trained(steps=2), "checkpoint_storage": KEEP_ALL})
    first, second = (found["uuid"] for found in lab.checkpoints(experiment))
    assert "Stopping" in det("checkpoint", "rm", first, "--glob", "weights", text="n\n").out
    det("checkpoint", "rm", first, "--glob", "weights", "--yes")

    def state(uuid: str) -> Any:
        return lab.watch.get(f"checkpoints/{uuid}")["checkpoint"]["state"]

    eventually(lambda: state(first) == IN_PART, seconds=40)
    assert stored(lab, first) == {"metadata.json", "state.json"}
    left = lab.watch.get(f"checkpoints/{first}")["checkpoint"]["resources"]
    assert set(left) == {"metadata.json", "state.json"}
    det("checkpoint", "delete", f"{first},{second}", "--yes")
    for uuid in (first, second):
        eventually(lambda uuid=uuid: state(uuid) == GONE, seconds=40)
        assert stored(lab, uuid) == set()
    assert "Only COMPLETED or PARTIALLY_DELETED" in det("checkpoint", "download", second, code=1).text
    assert state(lab.checkpoints(experiment)[0]["uuid"]) == GONE  # the record stays


def test_what_a_registered_model_has_is_not_removed(lab: Lab, det: Det, three: int):
    uuid = lab.checkpoints(three)[0]["uuid"]
    det("model", "create", "holds it")
    det("model", "register-version", "holds it", uuid)
    told = det("checkpoint", "delete", uuid, "--yes", code=1)
    assert "model" in told.text
    assert stored(lab, uuid) == FILES


def test_policy_keeps_the_best_and_the_latest(lab: Lab):
    """Losses fall with each step: the best of the trial is its latest, and the others go."""
    config = {**trained(steps=4), "checkpoint_storage": {"save_trial_best": 1, "save_trial_latest": 2}}
    experiment = lab.completed(config)
    eventually(lambda: of_steps(lab.checkpoints(experiment, COMPLETED)) == [3, 4], seconds=40)
    gone = lab.checkpoints(experiment, GONE)
    assert of_steps(gone) == [1, 2]
    assert all(stored(lab, found["uuid"]) == set() for found in gone)


def test_policy_is_tightened_later(lab: Lab, det: Det):
    experiment = lab.completed({**trained(steps=3), "checkpoint_storage": KEEP_ALL})
    words = ("--save-experiment-best", "0", "--save-trial-best", "1", "--save-trial-latest", "0")
    told = det("experiment", "set", "gc-policy", str(experiment), *words, text="n\n").out
    assert "2 checkpoints with validations and 0 checkpoints without" in told
    assert of_steps(lab.checkpoints(experiment, COMPLETED)) == [1, 2, 3]
    det("experiment", "set", "gc-policy", str(experiment), *words, "--yes")
    eventually(lambda: of_steps(lab.checkpoints(experiment, COMPLETED)) == [3], seconds=40)


def test_event_files_go_when_asked(lab: Lab, det: Det, three: int):
    place = lab.platform.data / "checkpoints"
    pattern = f"*/tensorboard/experiment/{three}/trial/*/*tfevents*"
    assert list(place.glob(pattern))
    det("experiment", "delete-tb-files", str(three))
    eventually(lambda: not list(place.glob(pattern)), seconds=40)
    assert of_steps(lab.checkpoints(three, COMPLETED)) == [1, 2, 3]


def test_a_directory_that_trials_have_mounted(lab: Lab, det: Det):
    """Seen under another path than on the host: also what is removed is removed there."""
    place = lab.platform.directory / "kept"
    place.mkdir()
    config = {
        **trained(steps=3),
        "checkpoint_storage": {"type": "directory", "container_path": "/kept"},
        "bind_mounts": [{"host_path": str(place), "container_path": "/kept"}],
    }
    experiment = lab.completed(config)
    eventually(lambda: of_steps(lab.checkpoints(experiment, COMPLETED)) == [3], seconds=40)
    (checkpoint,) = lab.checkpoints(experiment, COMPLETED)
    found = {path.parent.name for path in place.glob("*/state.json")}
    assert found == {checkpoint["uuid"]}
    answer = lab.platform.http("GET", f"/checkpoints/{checkpoint['uuid']}", token=lab.watch.token)
    assert answer.status != 200  # the server has nothing mounted there, and says so
    assert "/kept" in answer.text or "storage" in answer.text


def test_what_trials_that_use_it_have_reported(lab: Lab, three: int):
    """As batch inference tells it."""
    uuid = lab.checkpoints(three)[-1]["uuid"]
    trial = lab.first_trial(three)
    told = {"trialId": trial, "checkpointUuid": uuid, "trialSourceInfoType": "TRIAL_SOURCE_INFO_TYPE_INFERENCE"}
    answer = lab.watch.http("POST", "trial-source-info", {"trialSourceInfo": told})
    assert answer.status == 200, answer.text
    found = lab.watch.get(f"checkpoints/{uuid}/metrics?metricGroup=validation")["metrics"]
    assert [report["totalBatches"] for report in found] == [1, 2, 3]
    assert lab.watch.get(f"checkpoints/{lab.checkpoints(three)[0]['uuid']}/metrics")["metrics"] == []
