"""From the section `searcher` of an experiment to its typed form, or to all that is wrong with it."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.raw import JSON, Document
from muster.api.sections import Section
from muster.search.config import DEFAULT_CONCURRENCY, DEFAULT_DIVISOR, Mode, Pruner, Sampler, SearcherConfig

MAX_TRIALS: Final = 1_000_000
_MOST_RUNGS: Final = 64
_LONGEST: Final = 2**53
_UNITS: Final = ("batches", "records", "epochs")
_INSTEAD: Final[Mapping[str, str]] = {
    "adaptive": "use adaptive_asha",
    "adaptive_simple": "use adaptive_asha",
    "sync_halving": "use async_halving",
    "pbt": "use adaptive_asha, or optuna",
    "custom": "use optuna, or decide in a program of your own and report its trials as unmanaged experiments",
}
"""What Determined once had."""


def parse(document: JSON) -> SearcherConfig | list[FieldError]:
    errors: list[FieldError] = []
    section = Section(document, "searcher", errors)
    if errors:
        return errors
    name = section.required_text("name")
    if name not in _READERS:
        if name:
            errors.append(_unknown(section.at("name"), name))
        return errors
    values: Document = {"name": name, **_common(section), **_READERS[name](section)}
    section.finish()
    if errors:
        return errors
    found: SearcherConfig = msgspec.convert(values, SearcherConfig)
    return found


def _unknown(path: str, name: str) -> FieldError:
    if name in _INSTEAD:
        return fields.forbidden(path, f"{name} is not supported: {_INSTEAD[name]}")
    hint = fields.nearest(name, _READERS) or f"; there are {', '.join(_READERS)}"
    return fields.invalid(path, name, f"no such method{hint}")


def _common(section: Section) -> Document:
    return {
        "metric": section.required_text("metric"),
        "smaller_is_better": section.flag("smaller_is_better", default=True),
        "source_trial_id": section.number("source_trial_id", least=1) or None,
        "source_checkpoint_uuid": section.text("source_checkpoint_uuid") or None,
        "max_length": _max_length(section),
    }


def _single(_section: Section) -> Document:
    return {}


def _random(section: Section) -> Document:
    return {"max_trials": _required_number(section, "max_trials", MAX_TRIALS), **_grid(section)}


def _grid(section: Section) -> Document:
    return {"max_concurrent_trials": section.number("max_concurrent_trials", DEFAULT_CONCURRENCY, most=MAX_TRIALS)}


def _timed(section: Section) -> Document:
    """`max_length` says what `max_time` and `time_metric` do not."""
    max_time = section.number("max_time", least=1, most=_LONGEST) or None
    time_metric = section.text("time_metric") or None
    length = section.take("max_length")
    if max_time is None and isinstance(length, Mapping) and len(length) == 1:
        [(unit, max_time)] = length.items()
        time_metric = time_metric or unit
    elif max_time is None:
        max_time = length
    return {**_random(section), "max_time": max_time, "time_metric": time_metric}


def _halving(section: Section) -> Document:
    values = _timed(section)
    if values["max_time"] is None:
        message = "Required value: trials are compared at parts of it"
        section.errors.append(fields.required(section.at("max_time"), message))
    stop_once = section.flag("stop_once")
    return {
        **values,
        "divisor": _divisor(section),
        "stop_once": stop_once if section.has("stop_once") else None,
    }


def _async_halving(section: Section) -> Document:
    return {**_halving(section), "num_rungs": _required_number(section, "num_rungs", _MOST_RUNGS)}


def _adaptive_asha(section: Section) -> Document:
    return {
        **_halving(section),
        "mode": _word(section, "mode", Mode, Mode.STANDARD),
        "max_rungs": section.number("max_rungs", 5, least=1, most=_MOST_RUNGS),
        "bracket_rungs": _bracket_rungs(section),
    }


def _optuna(section: Section) -> Document:
    sampler = _word(section, "sampler", Sampler, Sampler.TPE)
    pruner = _word(section, "pruner", Pruner, Pruner.NONE)
    for name, users in _OPTUNA_OPTIONS.items():
        if section.has(name) and sampler not in users and pruner not in users:
            message = f"has no effect with the sampler {sampler} and the pruner {pruner}; it is for {', '.join(users)}"
            section.errors.append(fields.forbidden(section.at(name), message))
    values = _timed(section)
    if pruner in (Pruner.ASHA, Pruner.HYPERBAND) and values["max_time"] is None:
        message = f"Required value: the pruner {pruner} compares trials at parts of it"
        section.errors.append(fields.required(section.at("max_time"), message))
    return {
        **values,
        "sampler": sampler,
        "pruner": pruner,
        "seed": _number_or_none(section, "seed", 0),
        "startup_trials": _number_or_none(section, "startup_trials", 0),
        "percentile": _percentile(section),
        "divisor": _number_or_none(section, "divisor", 2),
    }


_READERS: Final[Mapping[str, Callable[[Section], Document]]] = {
    "single": _single,
    "random": _random,
    "grid": _grid,
    "async_halving": _async_halving,
    "adaptive_asha": _adaptive_asha,
    "optuna": _optuna,
}
_OPTUNA_OPTIONS: Final[Mapping[str, tuple[StrEnum, ...]]] = {
    "startup_trials": (Sampler.TPE, Sampler.CMAES, Sampler.GP, Pruner.MEDIAN, Pruner.PERCENTILE),
    "percentile": (Pruner.PERCENTILE,),
    "divisor": (Pruner.ASHA, Pruner.HYPERBAND),
}
"""By whom each is used."""


def _required_number(section: Section, name: str, most: int) -> int:
    if not section.has(name):
        section.errors.append(fields.required(section.at(name)))
    return section.number(name, 1, least=1, most=most)


def _number_or_none(section: Section, name: str, least: int) -> int | None:
    found = section.number(name, least, least=least)
    return found if section.has(name) else None


def _divisor(section: Section) -> float:
    found = section.fraction("divisor", DEFAULT_DIVISOR)
    if found <= 1:
        section.errors.append(fields.invalid(section.at("divisor"), found, "must be above 1"))
    return found


def _percentile(section: Section) -> float | None:
    found = section.fraction("percentile")
    if not 0 <= found <= 100:
        section.errors.append(fields.invalid(section.at("percentile"), found, "must be from 0 to 100"))
    return found if section.has("percentile") else None


def _word(section: Section, name: str, words: type[StrEnum], default: StrEnum) -> StrEnum:
    found = section.text(name) or default
    if found not in tuple(words):
        hint = fields.nearest(found, words) or f"; there are {', '.join(words)}"
        section.errors.append(fields.invalid(section.at(name), found, f"no such {name}{hint}"))
        return default
    return words(found)


def _bracket_rungs(section: Section) -> list[int]:
    listed = section.take("bracket_rungs")
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(_is_whole(rungs, _MOST_RUNGS) for rungs in listed):
        message = f"must be a list of whole numbers from 1 to {_MOST_RUNGS}"
        section.errors.append(fields.invalid(section.at("bracket_rungs"), listed, message))
        return []
    return listed


def _max_length(section: Section) -> JSON:
    length = section.take("max_length")
    if length is None or _is_whole(length, _LONGEST):
        return length
    if isinstance(length, Mapping) and len(length) == 1:
        [(unit, units)] = length.items()
        if unit in _UNITS and _is_whole(units, _LONGEST):
            return length
    message = (
        f"must be a whole number from 1 on, or one with its unit as {{batches: 100}}; units are {', '.join(_UNITS)}"
    )
    section.errors.append(fields.invalid(section.at("max_length"), length, message))
    return None


def _is_whole(value: JSON, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
