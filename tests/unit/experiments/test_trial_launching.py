"""What a run of a trial is given, from its experiment's configuration."""

from dataclasses import replace

import pytest
from tests.unit.experiments.checkpoint_worlds import filled

from muster.api import errors
from muster.api.raw import Document
from muster.experiments import experiment_records, launching, removals
from muster.experiments.experiment_records import Experiment


async def experiment(**config: object) -> Experiment:
    database = await filled()
    found = await database.read(lambda connection: experiment_records.get(connection, 1))
    return replace(found, config=config, slots_per_trial=4, pool="gpus", priority=7)


async def test_a_trial_has_what_its_experiment_says() -> None:
    variables = {
        "cpu": ["A=1"],
        "cuda": ["A=2", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=0"],
        "rocm": ["TORCH_FORCE_WEIGHTS_ONLY_LOAD=1"],
    }
    found = launching.task_config(
        await experiment(
            environment={"image": "torch", "environment_variables": variables},
            resources={"shm_size": 1024, "is_single_node": True},
            bind_mounts=[{"host_path": "/data", "container_path": "data"}],
            debug=True,
            preemption_timeout=60,
        )
    )
    assert (found.resources.slots, found.resources.pool, found.resources.priority) == (4, "gpus", 7)
    assert (found.resources.shm_bytes, found.resources.is_single_node) == (1024, True)
    assert (found.is_debug, found.preemption_seconds, found.bind_mounts[0].host_path) == (True, 60, "/data")
    assert found.environment.image["cuda"] == "torch"
    # Resuming needs more than weights, and sockets short paths; who says otherwise is heard.
    usual = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "TMPDIR": "/run/determined/tmp"}
    assert found.environment.variables_of("cpu") == {"A": "1", **usual}
    assert found.environment.variables_of("cuda") == {"A": "2", **usual, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"}
    # Both at once are more than PyTorch can take.
    insisting = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TMPDIR": usual["TMPDIR"]}
    assert found.environment.variables_of("rocm") == insisting


async def test_a_removal_reaches_the_storage_as_trials_do() -> None:
    found = removals.task_config(
        await experiment(
            environment={
                "image": "torch",
                "environment_variables": ["GOOGLE_APPLICATION_CREDENTIALS=/keys/google.json"],
                "pod_spec": {"spec": {"serviceAccountName": "trainer"}},
            },
            bind_mounts=[{"host_path": "/keys", "container_path": "/keys"}],
        )
    )
    assert found.resources.slots == 0
    assert found.environment.variables_of("cpu")["GOOGLE_APPLICATION_CREDENTIALS"] == "/keys/google.json"
    assert found.environment.pod_spec["spec"]["serviceAccountName"] == "trainer"
    assert found.bind_mounts[0].host_path == "/keys"
    assert not found.environment.image  # what trains may be large, and on no other node yet


def test_what_is_too_long_for_a_variable_is_refused_before_anything_runs() -> None:
    assert set(launching.variables_of_experiment({"name": "x"}, {})) == {"DET_EXPERIMENT_CONFIG", "DET_HPARAMS"}
    with pytest.raises(errors.BadRequest, match="put what is large into a file"):
        launching.variables_of_experiment({"data": "x" * 200_000}, {})


def test_a_shared_file_system_is_where_the_library_looks_for_it() -> None:
    ((volume, mount),) = launching.storage_volumes({"type": "shared_fs", "host_path": "/mnt/ck"})
    assert volume["hostPath"] == {"path": "/mnt/ck", "type": "DirectoryOrCreate"}
    assert mount == {"name": volume["name"], "mountPath": "/determined_shared_fs"}
    assert list(launching.storage_volumes({"type": "s3", "bucket": "b"})) == []


def terms(*values: str) -> Document:
    listed = [{"matchExpressions": [{"key": "k", "operator": "In", "values": [value]}]} for value in values]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}}


@pytest.mark.parametrize(("affinity", "count"), [(None, 1), (terms("a"), 1), (terms("a", "b"), 2)])
def test_nodes_that_are_excluded_are_so_by_every_way_to_be_chosen(affinity: Document | None, count: int) -> None:
    spec: Document = {} if affinity is None else {"affinity": affinity}
    before = str(affinity)
    launching.without_nodes({"spec": spec}, ["n2", "n1"])
    found = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    away = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1", "n2"]}
    assert len(found) == count
    assert all(away in term["matchExpressions"] for term in found)
    assert str(affinity) == before  # it is the experiment's own, and used again


def test_without_exclusions_a_pod_stays_as_it_is() -> None:
    template: Document = {"spec": {}}
    launching.without_nodes(template, [])
    assert template == {"spec": {}}
