"""From the configuration of an experiment, and what is kept of its course, to the machine that goes on. Pure."""

from muster.api import errors, raw
from muster.api.raw import Document
from muster.experiments.course_records import Course
from muster.experiments.experiment import Machine
from muster.search import registry
from muster.search.protocol import Action, Event, Searcher
from muster.search.registry import Checked


def machine(course: Course) -> Machine:
    """Where what is kept cannot be read any more, the search fails as soon as it is asked."""
    return Machine(
        _restored(course.config, course.kept.snapshot),
        course.state,
        {id: found.state for id, found in course.trials.items()},
        max_restarts=_number(course.config, "max_restarts"),
        most=most_at_once(course.max_slots, course.slots_per_trial),
        before={id: before for id, (_, before) in course.before.items()},
        is_spent=course.kept.is_spent,
    )


def _restored(config: Document, snapshot: bytes) -> Searcher:
    try:
        return searcher(config, snapshot)
    except errors.Invalid as error:
        return _Unreadable(error, snapshot)


class _Unreadable:
    def __init__(self, error: errors.Invalid, snapshot: bytes) -> None:
        self._error = error
        self._snapshot = snapshot

    def start(self) -> list[Action]:
        raise self._error

    def step(self, _event: Event) -> list[Action]:
        raise self._error

    def progress(self) -> float:
        return 0.0

    def snapshot(self) -> bytes:
        return self._snapshot


def searcher(config: Document, snapshot: bytes = b"") -> Searcher:
    """`config`: with all defaults. `snapshot`: empty for a search that begins. Raises Invalid."""
    checked, seed = _checked(config), _number(config, "reproducibility", "experiment_seed")
    if not snapshot:
        return registry.created(checked.config, checked.space, seed)
    return registry.restored(checked.config, checked.space, seed, snapshot)


def most_at_once(max_slots: int | None, slots_per_trial: int) -> int | None:
    """How many trials may run at the same time; None for any number."""
    return None if max_slots is None or not slots_per_trial else max_slots // slots_per_trial


def _checked(config: Document) -> Checked:
    found = registry.checked(config.get("searcher"), config.get("hyperparameters") or {})
    if isinstance(found, list):
        raise errors.invalid("Experiment", "", found)
    return found


def _number(config: Document, *path: str) -> int:
    found = raw.dig(config, *path)
    return found if isinstance(found, int) else 0
