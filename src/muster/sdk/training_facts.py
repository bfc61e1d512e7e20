"""What training code finds out about itself from its environment: which trial it is, with which hyperparameters, as
which of how many processes. Reads; asks nobody."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.api import raw
from muster.api.raw import JSON, Document


@dataclass(frozen=True, slots=True)
class Ranks:
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1


@dataclass(frozen=True, slots=True)
class Facts:
    """`run`: how often the trial has been started. `steps`: those that its latest checkpoint has behind it.
    `allocation`: "" where it does not run on the platform."""

    trial: int
    experiment: int
    task: str
    allocation: str = ""
    run: int = 0
    seed: int = 0
    steps: int = 0
    checkpoint: str | None = None
    hparams: Mapping[str, JSON] = field(default_factory=dict)
    config: Document = field(default_factory=dict)


def of_trial(env: Mapping[str, str]) -> Facts | None:
    """None outside of a trial."""
    if not env.get("DET_TRIAL_ID"):
        return None
    return Facts(
        trial=int(env["DET_TRIAL_ID"]),
        experiment=int(env["DET_EXPERIMENT_ID"]),
        task=env["DET_TASK_ID"],
        allocation=env["DET_ALLOCATION_ID"],
        run=int(env["DET_TRIAL_RUN_ID"]),
        seed=int(env["DET_TRIAL_SEED"]),
        steps=int(env["DET_STEPS_COMPLETED"]),
        checkpoint=env.get("DET_LATEST_CHECKPOINT") or None,
        hparams=raw.decode_object(env["DET_HPARAMS"]),
        config=raw.decode_object(env["DET_EXPERIMENT_CONFIG"]),
    )


def ranks(env: Mapping[str, str]) -> Ranks:
    """As the launcher (torchrun and its like) says; without one, each part of a trial is one process."""
    if env.get("RANK"):
        rank = int(env["RANK"])
        return Ranks(rank, int(env.get("LOCAL_RANK") or 0), int(env.get("WORLD_SIZE") or rank + 1))
    try:
        met = json.loads((directory(env) / "info" / "rendezvous.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return Ranks()
    return Ranks(int(met["container_rank"]), 0, len(met["container_addrs"]))


def directory(env: Mapping[str, str]) -> Path:
    """That a task has to itself."""
    return Path(env.get("DET_RUN_DIR") or "/run/determined")
