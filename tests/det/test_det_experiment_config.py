"""The client's own harness reads what we make of a configuration."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.det.det_client import DET

from muster.experiments.config import yaml_text
from muster.experiments.config.parsing import Layers, parse
from muster.tasks.config_sections import Allowed

HARNESS = Path(__file__).parent / "harness_config.py"
LEAST = """
entrypoint: model_def:Trial
searcher: {name: single, metric: loss}
"""
MUCH = """
entrypoint: [python3, train.py]
debug: true
data: {secrets: {a: b}}
records_per_epoch: 50
min_validation_period: {epochs: 2}
min_checkpoint_period: {records: 100}
scheduling_unit: 5
checkpoint_policy: all
perform_initial_validation: true
searcher: {name: adaptive_asha, metric: error, smaller_is_better: false, max_length: {epochs: 8}, max_trials: 4}
resources: {slots_per_trial: 4}
profiling: {enabled: true, begin_on_batch: 3, end_after_batch: 9}
reproducibility: {experiment_seed: 77}
checkpoint_storage: {type: directory, container_path: /tmp}
"""


def asked(text: str, storage: dict[str, Any]) -> dict[str, Any]:
    config = parse(Layers("n", 3, cluster_storage=storage, user=yaml_text.read(text, "config")), Allowed())
    told = {
        "DET_TRIAL_ID": "1", "DET_EXPERIMENT_ID": "2", "DET_TRIAL_SEED": "3", "DET_HPARAMS": "{}",
        "DET_STEPS_COMPLETED": "0", "DET_TRIAL_RUN_ID": "1", "DET_EXPERIMENT_CONFIG": json.dumps(config.document()),
    }  # fmt: skip
    python = DET.parent / "python"
    found: dict[str, Any] = json.loads(
        subprocess.check_output([python, HARNESS], env={**os.environ, **told}, timeout=100)
    )
    return found


def test_every_accessor_finds_its_default() -> None:
    found = asked(LEAST, {"type": "shared_fs", "host_path": "/checkpoints", "storage_path": "inside"})
    assert found | {"optimizations": [], "masked": {}} == {
        "debug": False,
        "scheduling_unit": 100,
        "native_parallel": False,
        "average_training_metrics": True,
        "slots_per_trial": 1,
        "seed": 3,
        "profiling": [False, [0, 0], True],
        "records_per_epoch": 0,
        "min_validation_period": {"batches": 0},
        "min_checkpoint_period": {"batches": 0},
        "metric": "loss",
        "smaller_is_better": True,
        "length": [None, None],
        "optimizations": [],
        "entrypoint": "model_def:Trial",
        "checkpoint_policy": "best",
        "perform_initial_validation": False,
        "pachyderm": None,
        "data": {},
        "masked": {},
        "storage": "SharedFSStorageManager",
    }
    assert {"aggregation_frequency", "average_aggregated_gradients", "gradient_compression"} <= {
        *found["optimizations"]
    }


def test_every_accessor_finds_what_was_given() -> None:
    found = asked(MUCH, {})
    assert found["profiling"] == [True, [3, 9], True]
    assert (found["min_validation_period"], found["min_checkpoint_period"]) == ({"epochs": 2}, {"records": 100})
    assert (found["metric"], found["smaller_is_better"], found["length"]) == ("error", False, [8, "EPOCHS"])
    assert (found["slots_per_trial"], found["seed"], found["scheduling_unit"]) == (4, 77, 5)
    assert (found["entrypoint"], found["storage"]) == (["python3", "train.py"], "DirectoryStorageManager")


def test_a_storage_in_the_cloud_is_known_to_it() -> None:
    found = asked(LEAST, {"type": "s3", "bucket": "b", "access_key": "a", "secret_key": "s", "prefix": "p"})
    assert found["storage"] == "S3StorageManager"
    assert found["masked"]["secret_key"] == "********"
