"""Where checkpoints of an experiment are kept, and what of the nodes its trials may see."""

from typing import Any

import pytest
from tests.unit.experiments.experiment_configs import layers, read, refusal, refused

from muster.accounts.policies import Constraints, Policy
from muster.experiments.config.parsing import Layers, parse
from muster.experiments.config.storage import S3, Azure, CheckpointStorage, Directory, Gcs, Place, SharedFs
from muster.tasks.config_sections import Allowed


@pytest.mark.parametrize(
    ("storage", "place"),
    [
        ({"type": "shared_fs", "host_path": "/x", "storage_path": "/x/y"}, SharedFs("/x", "/x/y")),
        ({"type": "directory", "container_path": "/x"}, Directory("/x")),
        ({"type": "s3", "bucket": "b", "access_key": "a", "secret_key": "s"}, S3("b", "a", "s")),
        ({"type": "gcs", "bucket": "b", "prefix": "/p"}, Gcs("b", "/p")),
        ({"type": "azure", "container": "c", "account_url": "u", "credential": "k"}, Azure("c", None, "u", "k")),
    ],
)  # fmt: skip
def test_checkpoints_can_be_kept_in_several_kinds_of_places(storage: dict[str, Any], place: Place) -> None:
    found = read(checkpoint_storage={**storage, "save_trial_best": 0}).checkpoint_storage
    assert found == CheckpointStorage(place, trial_best=0, trial_latest=1)


@pytest.mark.parametrize(
    ("storage", "says"),
    [
        ({"type": "hdfs"}, "type: there is no hdfs any more: use one of shared_fs"),
        ({"type": "shared"}, "type: no such storage; did you mean shared_fs?"),
        ({"type": 3}, "type: must be a text"),
        ({"type": "s3", "host_path": "/x"}, "bucket: must be given"),
        ({"type": "s3", "bucket": "b", "host_path": "/x"}, "host_path: unknown key"),
        ({"type": "s3", "bucket": "b", "endpoint_url": "ftp://x"}, "endpoint_url: must begin with http"),
        ({"type": "gcs", "bucket": "b", "prefix": "a/../../b"}, 'prefix: must be a path without ".."'),
        ({"type": "directory", "container_path": "x"}, "container_path: must be an absolute path"),
        ({"type": "shared_fs", "host_path": "x"}, "host_path: must be an absolute path"),
        ({"type": "shared_fs", "host_path": "/x", "storage_path": "/y"}, "storage_path: must be a path below"),
        ({"type": "shared_fs", "host_path": "/x", "storage_path": "../y"}, "storage_path: must be a path below"),
        ({"type": "azure", "container": "c"}, "connection_string: exactly one of"),
        ({"type": "azure", "container": "c", "connection_string": "s", "credential": "k"}, "credential: goes with"),
        ({"save_trial_best": -1}, "save_trial_best: must be a whole number"),
    ],
)  # fmt: skip
def test_a_place_that_is_none_is_refused(storage: dict[str, Any], says: str) -> None:
    assert f"checkpoint_storage.{says}" in refusal(checkpoint_storage=storage)


def test_somebody_must_say_where_checkpoints_are_kept() -> None:
    assert "checkpoint_storage: must be given" in refused(layers({}, cluster_storage={}))
    assert "checkpoint_storage.type: must be given" in refused(
        layers({"checkpoint_storage": {"save_trial_best": 1}}, cluster_storage={})
    )


def test_a_path_of_the_node_must_be_allowed_or_be_the_administrators() -> None:
    mine = {"type": "shared_fs", "host_path": "/etc"}
    assert "checkpoint_storage.host_path: /etc may not be mounted; allowed is nowhere" in refusal(
        Allowed(), checkpoint_storage=mine
    )
    assert read(Allowed(["/etc"]), checkpoint_storage=mine).checkpoint_storage.place == SharedFs("/etc")
    assert read(Allowed()).checkpoint_storage.place == SharedFs("/cluster")
    template = layers({}, template={"checkpoint_storage": mine})
    assert "/etc may not be mounted" in refused(template, Allowed())
    for trusted in ({"workspace_storage": mine}, {"policies": [Policy({"checkpoint_storage": mine}, Constraints())]}):
        assert parse(layers({}, **trusted), Allowed()).checkpoint_storage.place == SharedFs("/etc")
    mount = [{"host_path": "/data", "container_path": "/data"}]
    assert "bind_mounts[0].host_path: /data may not be mounted" in refusal(Allowed(), bind_mounts=mount)
    assert "volumes[0].hostPath" in refusal(
        Allowed(), environment={"pod_spec": {"spec": {"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}}}
    )


def test_what_was_accepted_before_stays_allowed() -> None:
    accepted = read(
        Allowed(["/data"]),
        bind_mounts=[{"host_path": "/data", "container_path": "/d"}],
        checkpoint_storage={"type": "shared_fs", "host_path": "/data"},
    ).document()
    again = parse(Layers("", 0, accepted=accepted, user={"max_restarts": 1}), Allowed())
    assert (again.max_restarts, again.bind_mounts[0].host_path) == (1, "/data")
