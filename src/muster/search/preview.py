"""How long how many trials would train, before any does: Determined's `SearchSummary`.

Where trials are stopped early it is an estimate: as if each rung let through the share that it is meant to.
"""

from collections import Counter
from collections.abc import Iterator

from muster.api.raw import Document
from muster.search import shapes
from muster.search.brackets import Shape
from muster.search.config import Halving, SearcherConfig, document
from muster.search.hyperparameters import Space


def summary(config: SearcherConfig, space: Space) -> Document:
    brackets = shapes.shapes(config, space)
    if not isinstance(config, Halving):
        trials = [_trials(sum(shape.max_trials for shape in brackets), {"maxLength": True})]
        return {"config": document(config), "trials": trials}
    counts: Counter[int] = Counter()
    for shape in brackets:
        for length, count in _stopped(shape, config.divisor):
            counts[length] += count
    unit = config.time_metric or "batches"
    trials = [
        _trials(count, {"maxLength": False, "name": unit, "value": length}) for length, count in sorted(counts.items())
    ]
    return {"config": document(config), "trials": trials}


def _trials(count: int, unit: Document) -> Document:
    return {"count": count, "unit": unit}


def _stopped(shape: Shape, divisor: float) -> Iterator[tuple[int, int]]:
    """How many end at which length."""
    left = shape.max_trials
    for length in shape.rungs[:-1]:
        continued = max(int(left / divisor), 1)
        if left > continued:
            yield length, left - continued
        left = continued
    yield shape.rungs[-1], left
