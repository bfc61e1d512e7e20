"""Optuna's samplers and pruners, asked and told one trial at a time over a study in memory.

Samplers keep random state where it cannot be put away, and some pruners keep what they saw first. So a trial is asked
of a new sampler with a seed of its own, and pruners are told all bounds beforehand. Then all that is said follows from
what stands in the study, and that can be put away.
"""

import warnings
from collections.abc import Mapping
from math import isfinite
from typing import Final

import msgspec
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial

from muster.api.raw import JSON, Document
from muster.search.config import Optuna, Pruner, Sampler
from muster.search.hyperparameters import Axis, Choice, Constant, Integer, Logarithmic, Real, Space, flat_name
from muster.search.proposing import Learner
from muster.search.protocol import ExitReason
from muster.search.randomness import Source

_SEEDS: Final = 2**32
_WORST: Final = 1e300  # told of metrics that are not finite: pruners reckon with them, and warn of NaN and infinities
_NAME: Final = "search"  # some pruners divide trials by the study's name, so it must not be random


class _Asked(msgspec.Struct, array_like=True):
    """A trial that Optuna has proposed and not been told the end of."""

    best: float | None = None
    is_pruned: bool = False


class _Trial(msgspec.Struct, array_like=True):
    """One of the study's."""

    state: int
    value: float | None
    params: Document
    reports: dict[int, float]
    attributes: Document


class _Saved(msgspec.Struct, array_like=True):
    trials: list[_Trial]
    attributes: Document
    """Of the study."""
    asked: dict[int, _Asked]


class Studied:
    def __init__(self, config: Optuna, space: Space, seed: int) -> None:
        self._config = config
        self._space = space
        self._seed = seed if config.seed is None else config.seed
        self._axes = {flat_name(path): axis for path, axis in space.axes.items()}
        self._distributions = _distributions(self._axes)
        self._storage = InMemoryStorage()
        self._study = _study(config, self._storage)
        self._study_id = self._storage.get_study_id_from_name(_NAME)
        self._asked: dict[int, _Asked] = {}

    def propose(self, number: int, source: Source) -> Document:  # noqa: ARG002
        self._study.sampler = _sampler(self._config, self._seed, number)
        params = self._study.ask(self._distributions).params
        self._asked[number] = _Asked()
        return self._space.document([_value(axis, params.get(name)) for name, axis in self._axes.items()])

    def report(self, number: int, metric: float, length: float) -> bool:
        asked, step, is_minimised = self._asked[number], int(length), self._config.smaller_is_better
        if not isfinite(metric):
            metric = _WORST if is_minimised else -_WORST
        elif asked.best is None or (metric < asked.best) == is_minimised:
            asked.best = metric
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        if step not in self._storage.get_trial(trial_id).intermediate_values:  # Optuna's steps are whole
            self._storage.set_trial_intermediate_value(trial_id, step, metric)
            asked.is_pruned = bool(self._study.pruner.prune(self._study, self._storage.get_trial(trial_id)))
        return asked.is_pruned

    def close(self, number: int, reason: ExitReason | None) -> None:
        """A trial counts by the best that it has reported, as everywhere; one that was pruned, by its last report, as
        Optuna's samplers expect."""
        asked = self._asked.pop(number)
        if asked.best is None or reason not in (None, ExitReason.USER_REQUESTED_STOP):
            self._study.tell(number, state=TrialState.FAIL)
        elif asked.is_pruned:
            self._study.tell(number, state=TrialState.PRUNED)
        else:
            self._study.tell(number, asked.best)

    def saved(self) -> bytes:
        trials = [
            _Trial(trial.state, trial.value, trial.params, trial.intermediate_values, trial.system_attrs)
            for trial in self._study.get_trials(deepcopy=False)
        ]
        attributes = self._storage.get_study_system_attrs(self._study_id)
        return msgspec.msgpack.encode(_Saved(trials, attributes, self._asked))

    def load(self, saved: bytes) -> None:
        found = msgspec.msgpack.decode(saved, type=_Saved)
        for trial in found.trials:
            frozen = create_trial(
                state=TrialState(trial.state),
                value=trial.value,
                params=trial.params,
                distributions=self._distributions,
                intermediate_values=trial.reports,
                system_attrs=trial.attributes,
            )
            self._storage.create_new_trial(self._study_id, frozen)
        for name, value in found.attributes.items():
            self._storage.set_study_system_attr(self._study_id, name, value)
        self._asked = found.asked


_: type[Learner] = Studied


def _distributions(axes: Mapping[str, Axis]) -> dict[str, BaseDistribution]:
    found = {name: _distribution(axis) for name, axis in axes.items()}
    return {name: distribution for name, distribution in found.items() if distribution is not None}


def _distribution(axis: Axis) -> BaseDistribution | None:
    """None for what cannot vary."""
    match axis:
        case Integer():
            return IntDistribution(axis.low, axis.high)
        case Real():
            return FloatDistribution(axis.low, axis.high)
        case Logarithmic():
            return FloatDistribution(axis.exponent.low, axis.exponent.high)
        case Choice():
            return CategoricalDistribution(range(len(axis.values)))
    return None


def _value(axis: Axis, found: JSON) -> JSON:
    match axis:
        case Constant():
            return axis.value
        case Logarithmic():
            return axis.power(found)
        case Choice():
            return axis.values[found]
    return found


def _study(config: Optuna, storage: InMemoryStorage) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    direction = "minimize" if config.smaller_is_better else "maximize"
    return optuna.create_study(study_name=_NAME, storage=storage, direction=direction, pruner=_pruner(config))


def _sampler(config: Optuna, seed: int, number: int) -> optuna.samplers.BaseSampler:
    """That of trial `number`."""
    own = int(Source(seed, number).units(1)[0] * _SEEDS)
    startup: Document = {} if config.startup_trials is None else {"n_startup_trials": config.startup_trials}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # whoever names a sampler wants it as it is
        match config.sampler:
            case Sampler.TPE:
                # Trials that run count as bad ones, so that those that run at once are not all alike.
                liar = config.max_concurrent_trials != 1
                return optuna.samplers.TPESampler(seed=own, constant_liar=liar, **startup)
            case Sampler.CMAES:
                return optuna.samplers.CmaEsSampler(seed=own, warn_independent_sampling=False, **startup)
            case Sampler.GP:
                return optuna.samplers.GPSampler(seed=own, **startup)
            case Sampler.RANDOM:
                return optuna.samplers.RandomSampler(seed=own)
            case Sampler.QMC:
                # One sequence, of which each trial takes the next point; what it has no point for is drawn.
                drawn = optuna.samplers.RandomSampler(seed=own)
                return optuna.samplers.QMCSampler(
                    seed=seed % _SEEDS, scramble=True, independent_sampler=drawn, warn_independent_sampling=False
                )
            case Sampler.NSGAII:
                return optuna.samplers.NSGAIISampler(seed=own)


def _pruner(config: Optuna) -> optuna.pruners.BasePruner:
    startup: Document = {} if config.startup_trials is None else {"n_startup_trials": config.startup_trials}
    divisor: Document = {} if config.divisor is None else {"reduction_factor": config.divisor}
    longest = config.max_time or 1
    match config.pruner:
        case Pruner.NONE:
            return optuna.pruners.NopPruner()
        case Pruner.MEDIAN:
            return optuna.pruners.MedianPruner(**startup)
        case Pruner.PERCENTILE:
            percentile = 25.0 if config.percentile is None else config.percentile
            return optuna.pruners.PercentilePruner(percentile, **startup)
        case Pruner.ASHA:
            return optuna.pruners.SuccessiveHalvingPruner(min_resource=max(longest // 100, 1), **divisor)
        case Pruner.HYPERBAND:
            return optuna.pruners.HyperbandPruner(max_resource=longest, **divisor)
