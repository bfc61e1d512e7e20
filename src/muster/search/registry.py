"""Makes searches from configurations, and continues them from snapshots.

What a method needs that is not always installed is loaded only when it is named.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.raw import JSON
from muster.search import config_reading, shapes, space_reading
from muster.search.brackets import Brackets
from muster.search.config import DEFAULT_DIVISOR, Grid, Halving, Optuna, Sampler, SearcherConfig, Single
from muster.search.hyperparameters import Space
from muster.search.proposing import AtRandom, OverGrid, Proposer
from muster.search.protocol import Searcher
from muster.search.searching import Search

_OPTUNA: Final = "muster.search.optuna_search"
_PACKAGES: Final[Mapping[Sampler, tuple[str, ...]]] = {
    Sampler.CMAES: ("cmaes",),
    Sampler.QMC: ("scipy",),
    Sampler.GP: ("scipy", "torch"),
}
"""What samplers need besides Optuna."""


@dataclass(frozen=True, slots=True)
class Checked:
    config: SearcherConfig
    space: Space


def checked(searcher: JSON, hyperparameters: JSON) -> Checked | list[FieldError]:
    """From the sections `searcher` and `hyperparameters` of an experiment; or all that is wrong with them."""
    config = config_reading.parse(searcher)
    space = space_reading.parse(hyperparameters, is_grid=isinstance(config, Grid))
    wrong = [*(config if isinstance(config, list) else ()), *(space if isinstance(space, list) else ())]
    if isinstance(config, list) or isinstance(space, list):
        return wrong
    if isinstance(config, Optuna) and (error := _missing(config)):
        return [error]
    return Checked(config, space)


def _missing(config: Optuna) -> FieldError | None:
    """Packages that are not installed here."""
    packages = ("optuna", *_PACKAGES.get(config.sampler, ()))
    missing = [name for name in packages if not _is_installed(name)]
    if not missing:
        return None
    install = dict.fromkeys("torch" if name == "torch" else "muster[search]" for name in missing)
    path = "searcher.name" if "optuna" in missing else "searcher.sampler"
    message = f"needs {' and '.join(missing)} where the server runs: install {' and '.join(install)}"
    return fields.forbidden(path, message)


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def created(config: SearcherConfig, hyperparameters: Space, seed: int) -> Searcher:
    """One that has not started yet."""
    return _made(config, hyperparameters, seed)


def restored(config: SearcherConfig, hyperparameters: Space, seed: int, snapshot: bytes) -> Searcher:
    """One that goes on where the other was when its snapshot was taken. Raises Invalid where that does not fit."""
    search = _made(config, hyperparameters, seed)
    search.load(snapshot)
    return search


def _made(config: SearcherConfig, space: Space, seed: int) -> Search:
    divisor = config.divisor if isinstance(config, Halving) else DEFAULT_DIVISOR
    brackets = Brackets(shapes.shapes(config, space), divisor, can_replace=not isinstance(config, Single | Grid))
    return Search(
        brackets,
        _proposer(config, space, seed),
        seed,
        max_concurrent=shapes.max_concurrent(config),
        is_maximised=not config.smaller_is_better,
    )


def _proposer(config: SearcherConfig, space: Space, seed: int) -> Proposer:
    match config:
        case Grid():
            return OverGrid(space)
        case Optuna():
            made: Proposer = importlib.import_module(_OPTUNA).Studied(config, space, seed)
            return made
        case _:
            return AtRandom(space)
