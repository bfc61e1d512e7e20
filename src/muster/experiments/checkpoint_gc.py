"""Which checkpoints of an experiment are kept. Pure."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from muster.api.raw import Document
from muster.experiments.checkpoint_records import PRESENT, Checkpoint
from muster.experiments.states import TrialId


@dataclass(frozen=True, slots=True)
class Policy:
    """How many of the best and of the latest are kept."""

    save_experiment_best: int = 0
    save_trial_best: int = 1
    save_trial_latest: int = 1


def policy(config: Document) -> Policy:
    """Of an experiment's configuration."""
    storage = config.get("checkpoint_storage") or {}
    return Policy(
        storage.get("save_experiment_best", 0), storage.get("save_trial_best", 1), storage.get("save_trial_latest", 1)
    )


def superfluous(
    checkpoints: Sequence[Checkpoint], wanted: Policy, *, is_smaller_better: bool, kept: Collection[str] = ()
) -> list[Checkpoint]:
    """Those that need not be kept, the oldest first. `kept`: whatever the policy says. Where two are as good, the later
    one counts as better."""
    present = [each for each in checkpoints if each.state in PRESENT and each.training is not None]
    saved = {*kept, *_best(present, wanted.save_experiment_best, is_smaller_better)}
    for trial in {_trial(each) for each in present}:
        own = [each for each in present if _trial(each) == trial]
        latest = sorted(own, key=lambda each: (each.steps, each.reported), reverse=True)
        saved |= {each.uuid for each in latest[: wanted.save_trial_latest]}
        saved |= _best(own, wanted.save_trial_best, is_smaller_better)
    return [each for each in present if each.uuid not in saved]


def _trial(checkpoint: Checkpoint) -> TrialId:
    assert checkpoint.training is not None
    return checkpoint.training.trial


def _best(checkpoints: Sequence[Checkpoint], count: int, is_smaller_better: bool) -> set[str]:
    """Only of those that were measured."""
    measured = [(metric, each) for each in checkpoints if (metric := _metric(each)) is not None]
    sign = 1 if is_smaller_better else -1
    ordered = sorted(measured, key=lambda found: (sign * found[0], -found[1].steps, -found[1].reported))
    return {each.uuid for _, each in ordered[:count]}


def _metric(checkpoint: Checkpoint) -> float | None:
    assert checkpoint.training is not None
    metric = checkpoint.training.metric
    return None if metric is None or math.isnan(metric) else metric
