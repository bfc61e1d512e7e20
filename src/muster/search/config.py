"""The section `searcher` of an experiment, by method: every key typed, with Determined's names and defaults.

Encoded, each is that section again with all defaults filled in (`document`). `config_reading` makes them.
"""

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from muster.api import raw
from muster.api.raw import JSON, Document

DEFAULT_CONCURRENCY: Final = 16
DEFAULT_DIVISOR: Final = 4.0


class Mode(StrEnum):
    """How many brackets an adaptive search has: from all lengths to only that which stops most."""

    AGGRESSIVE = "aggressive"
    STANDARD = "standard"
    CONSERVATIVE = "conservative"


class Sampler(StrEnum):
    TPE = "tpe"
    CMAES = "cmaes"
    GP = "gp"
    RANDOM = "random"
    QMC = "qmc"
    NSGAII = "nsgaii"


class Pruner(StrEnum):
    NONE = "none"
    MEDIAN = "median"
    PERCENTILE = "percentile"
    ASHA = "asha"
    HYPERBAND = "hyperband"


class _Common(msgspec.Struct, frozen=True, kw_only=True, tag_field="name"):
    metric: str
    smaller_is_better: bool = True
    source_trial_id: int | None = None
    source_checkpoint_uuid: str | None = None
    max_length: JSON = None
    """Of old: a number, or one with its unit as `{batches: 100}`. Training code may read it."""


class Single(_Common, frozen=True, kw_only=True, tag="single"):
    pass


class Random(_Common, frozen=True, kw_only=True, tag="random"):
    max_trials: int
    max_concurrent_trials: int = DEFAULT_CONCURRENCY
    """0 for no bound; so below."""


class Grid(_Common, frozen=True, kw_only=True, tag="grid"):
    max_concurrent_trials: int = DEFAULT_CONCURRENCY


class Timed(_Common, frozen=True, kw_only=True):
    """A search that minds how long its trials have trained."""

    max_trials: int
    max_concurrent_trials: int = DEFAULT_CONCURRENCY
    max_time: int | None = None
    time_metric: str | None = None
    """The reported metric that `max_time` is about; None for the steps that came with the report."""


class Halving(Timed, frozen=True, kw_only=True):
    max_time: int
    divisor: float = DEFAULT_DIVISOR
    stop_once: bool | None = None
    """Accepted, and without effect: there is only the variant that stops."""


class AsyncHalving(Halving, frozen=True, kw_only=True, tag="async_halving"):
    num_rungs: int


class AdaptiveAsha(Halving, frozen=True, kw_only=True, tag="adaptive_asha"):
    mode: Mode = Mode.STANDARD
    max_rungs: int = 5
    bracket_rungs: tuple[int, ...] = ()


class Optuna(Timed, frozen=True, kw_only=True, tag="optuna"):
    sampler: Sampler = Sampler.TPE
    pruner: Pruner = Pruner.NONE
    seed: int | None = None
    """None for the experiment's. Of what follows, None stands for Optuna's own defaults."""
    startup_trials: int | None = None
    """How many trials come before the sampler learns from them, and the pruner compares with them."""
    percentile: float | None = None
    divisor: int | None = None


SearcherConfig: TypeAlias = Single | Random | Grid | AsyncHalving | AdaptiveAsha | Optuna


def document(config: SearcherConfig) -> Document:
    return raw.as_object(raw.copy(config))
