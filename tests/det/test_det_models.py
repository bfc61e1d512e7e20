"""`det model`: a registry over checkpoints."""

import pytest
from tests.det.det_client import Det
from tests.det.det_experiments import Lab, trained

OPTIONS = ("--fake-gpus", "1")


@pytest.fixture(scope="module")
def checkpoints(lab: Lab) -> list[str]:
    config = {**trained(steps=2), "checkpoint_storage": {"save_trial_best": 9, "save_trial_latest": 9}}
    return [found["uuid"] for found in lab.checkpoints(lab.completed(config))]


def test_from_a_checkpoint_to_a_version(det: Det, checkpoints: list[str]):
    made = det("model", "create", "digits", "--description", "tells digits apart", "--json").json
    assert (made["name"], made["description"], made["archived"]) == ("digits", "tells digits apart", False)
    det("model", "create", "digits", code=1)
    for uuid in checkpoints:
        det("model", "register-version", "digits", uuid)
    versions = det("model", "list-versions", "digits", "--json").json["modelVersions"]
    assert sorted((each["version"], each["checkpoint"]["uuid"]) for each in versions) == [
        (1, checkpoints[0]),
        (2, checkpoints[1]),
    ]
    assert checkpoints[0] in det("model", "list-versions", "digits").out
    told = det("model", "describe", "digits").out
    assert checkpoints[1] in told  # the latest
    assert checkpoints[0] in det("model", "describe", "digits", "--version", "1").out
    assert "digits" in [row["Name"] for row in det("model", "list").rows]
    names = [each["name"] for each in det("model", "list", "--json", "--sort-by", "name").json]
    assert names == sorted(names)
    assert "digits" in names


def test_what_is_wrong_is_told(det: Det, checkpoints: list[str]):
    det("model", "create", "letters")
    assert "none-such" in det("model", "describe", "none-such", code=1).text
    missing = "00000000-0000-0000-0000-000000000000"
    assert missing in det("model", "register-version", "letters", missing, code=1).text


def test_moved_and_deleted(det: Det):
    det("workspace", "create", "registry")
    det("model", "create", "wanderer", "--workspace-name", "Uncategorized")
    det("model", "move", "wanderer", "--workspace-name", "registry")
    listed = det("model", "list", "--workspace-names", "registry").out
    assert "wanderer" in listed
    det("model", "delete", "wanderer")
    assert "wanderer" not in det("model", "list").out
    det("model", "describe", "wanderer", code=1)
