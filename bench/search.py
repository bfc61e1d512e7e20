"""Searches of a hundred thousand trials, without anything that trains: how many events a second they take in."""

import random
import time
from collections import deque

from bench.figures import Figure, Progress
from muster.api.raw import Document
from muster.search import registry
from muster.search.protocol import Create, Searcher, TrialClosed, TrialCreated, ValidationReported

_TRIALS = 100_000
_AT_ONCE = 1_000
_EVENTS_PER_SECOND = 50_000.0  # a thousand times what 1,000 GPUs report that validate twice a minute
_SPACE: Document = {
    "lr": {"type": "log", "minval": -4, "maxval": -1},
    "layers": {"type": "int", "minval": 1, "maxval": 8},
    "dropout": {"type": "double", "minval": 0, "maxval": 1},
    "optimizer": {"type": "categorical", "vals": ["sgd", "adam"]},
}
_METHODS: dict[str, Document] = {
    "random": {"name": "random"},
    "async_halving": {"name": "async_halving", "num_rungs": 5, "max_time": 256},
    "adaptive_asha": {"name": "adaptive_asha", "max_time": 256, "mode": "conservative"},
}


def run(progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    for method, config in _METHODS.items():
        progress(f"{_TRIALS:,} trials of {method}")
        searcher = _searcher(config)
        events, seconds = _lived(searcher)
        note = f"{_TRIALS:,} trials, {_AT_ONCE:,} at once, {events:,} events"
        figures.append(
            Figure(f"{method}.events_per_second", events / seconds, "events/s", _EVENTS_PER_SECOND, note=note)
        )
        started = time.process_time()
        size = len(searcher.snapshot())
        taken = time.process_time() - started
        figures.append(Figure(f"{method}.snapshot_ms", 1000 * taken, "ms", note=f"{size:,} bytes"))
    return figures


def _searcher(config: Document) -> Searcher:
    bounds = {"metric": "loss", "max_trials": _TRIALS, "max_concurrent_trials": _AT_ONCE}
    found = registry.checked({**bounds, **config}, _SPACE)
    assert isinstance(found, registry.Checked)
    return registry.created(found.config, found.space, 0)


def _lived(searcher: Searcher) -> tuple[int, float]:
    """Events, and the processor's seconds that they took. Every trial reports at each rung until it is stopped."""
    chance = random.Random(0)
    started = time.process_time()
    running = deque((action, 1) for action in searcher.start() if isinstance(action, Create))
    events = 0
    while running:
        create, length = running.popleft()
        if length == 1:
            searcher.step(TrialCreated(create.request_id))
            events += 1
        is_stopped = searcher.step(ValidationReported(create.request_id, chance.random(), length))
        events += 1
        if not is_stopped and length < 256:
            running.append((create, 4 * length))
            continue
        actions = searcher.step(TrialClosed(create.request_id))
        events += 1
        running.extend((action, 1) for action in actions if isinstance(action, Create))
    return events, time.process_time() - started
