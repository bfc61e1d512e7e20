"""What may be changed in an experiment that is continued."""

from typing import Any

import pytest
from tests.unit.experiments.experiment_configs import read

from muster.api import errors
from muster.experiments.config.overriding import overridden
from muster.experiments.config.parsing import Layers, parse
from muster.tasks.config_sections import Allowed

STORED = {"type": "s3", "bucket": "b", "secret_key": "s"}


def stored(**changes: Any) -> dict[str, Any]:
    return read(**{"checkpoint_storage": STORED, "workspace": "w", "project": "p", **changes}).document()


def test_a_single_trial_may_go_on_with_nearly_everything_changed() -> None:
    config = stored(hyperparameters={"lr": 0.1, "deep": {"a": 1}}, max_restarts=5)
    override = {
        "searcher": {"name": "single", "max_length": {"batches": 5}},
        "hyperparameters": {"lr": 0.2},
        "max_restarts": 0,
        "checkpoint_storage": {"save_trial_latest": 7, "bucket": "b", "secret_key": "********"},
        "workspace": "w",
        "description": None,
    }
    merged = overridden(config, override)
    found = parse(Layers("", 0, accepted=config, user=merged), Allowed())
    assert found.document() == {
        **config,
        "searcher": {**config["searcher"], "max_length": {"batches": 5}},
        "hyperparameters": {**config["hyperparameters"], "lr": {"type": "const", "val": 0.2}},
        "max_restarts": 0,
        "checkpoint_storage": {**config["checkpoint_storage"], "save_trial_latest": 7},
    }


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ({"searcher": {"name": "random", "max_trials": 3}}, "overrideConfig: searcher.name: must stay single"),
        ({"checkpoint_storage": {"bucket": "c"}}, "checkpoint_storage.bucket: cannot change: the checkpoints"),
        ({"checkpoint_storage": {"type": "gcs"}}, "checkpoint_storage.type: cannot change"),
        ({"workspace": "other"}, "workspace: cannot change here; move the experiment"),
        ({"project": "other"}, "project: cannot change here; move the experiment"),
    ],
)
def test_what_it_is_and_where_its_checkpoints_are_does_not_change(override: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        overridden(stored(), override)
    assert says in caught.value.message


def test_a_search_goes_on_as_it_began() -> None:
    config = stored(searcher={"name": "random", "metric": "loss", "max_trials": 3})
    assert parse(Layers("", 0, user=overridden(config, {})), Allowed()).document() == config
    with pytest.raises(errors.BadRequest, match="only a single trial can be continued with another configuration"):
        overridden(config, {"max_restarts": 1})
