"""Configurations of experiments for tests."""

from typing import Any

import pytest

from muster.api import errors
from muster.experiments.config.experiment_config import ExperimentConfig
from muster.experiments.config.parsing import Layers, parse
from muster.tasks.config_sections import Allowed

ANYTHING = Allowed(["/"])
LEAST: dict[str, Any] = {"entrypoint": "python3 train.py", "searcher": {"name": "single", "metric": "loss"}}
STORAGE = {"type": "shared_fs", "host_path": "/cluster"}


def layers(user: dict[str, Any], **others: Any) -> Layers:
    return Layers(**{"name": "made up", "seed": 7, "cluster_storage": STORAGE, **others}, user={**LEAST, **user})


def read(allowed: Allowed = ANYTHING, **user: Any) -> ExperimentConfig:
    return parse(layers(user), allowed)


def refusal(allowed: Allowed = ANYTHING, **user: Any) -> str:
    return refused(layers(user), allowed)


def refused(layered: Layers, allowed: Allowed = ANYTHING) -> str:
    with pytest.raises(errors.BadRequest) as caught:
        parse(layered, allowed)
    return caught.value.message
