"""Searches driven through histories: trials that report, fail, repeat themselves and close in a random order."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from muster.api.raw import Document
from muster.search import registry
from muster.search.protocol import (
    Action,
    Create,
    Event,
    ExitReason,
    RequestId,
    Searcher,
    Shutdown,
    Stop,
    TrialClosed,
    TrialCreated,
    TrialExited,
    TrialProgress,
    ValidationReported,
)

SPACE: Document = {
    "lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10, "count": 3},
    "model": {"layers": {"type": "int", "minval": 1, "maxval": 4, "count": 2}, "bias": True},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5, "count": 2},
    "optimizer": {"type": "categorical", "vals": ["sgd", {"name": "adam"}]},
}


def checked(searcher: Document, space: Document | None = None) -> registry.Checked:
    found = registry.checked({"metric": "loss", **searcher}, SPACE if space is None else space)
    assert isinstance(found, registry.Checked), found
    return found


def created(searcher: Document, seed: int = 0, space: Document | None = None) -> Searcher:
    found = checked(searcher, space)
    return registry.created(found.config, found.space, seed)


@dataclass
class Life:
    """A trial that runs, as its own world sees it."""

    length: int = 0
    is_stopping: bool = False
    has_exited: bool = False


@dataclass
class World:
    """Makes one event after the other. `max_time`: how long trials train by themselves. `rough`: the share of trials
    that fail or give up, and of events that are repeated or late."""

    seed: int
    max_time: int = 64
    rough: float = 0.0
    reasons: tuple[ExitReason, ...] = tuple(ExitReason)
    lives: dict[RequestId, Life] = field(default_factory=dict)
    closed: list[RequestId] = field(default_factory=list)
    creates: list[Create] = field(default_factory=list)
    most_running: int = 0
    end: Shutdown | None = None
    _waiting: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def take(self, actions: list[Action]) -> None:
        assert self.end is None or not actions, "the end is the last action"
        for action in actions:
            match action:
                case Create():
                    assert action.request_id not in self.lives
                    self.creates.append(action)
                    self.lives[action.request_id] = Life()
                    self._waiting.append(TrialCreated(action.request_id))
                case Stop():
                    assert not self.lives[action.request_id].is_stopping, "a trial is told to stop once"
                    self.lives[action.request_id].is_stopping = True
                case Shutdown():
                    assert not self.lives, "everything is closed"
                    self.end = action
        self.most_running = max(self.most_running, len(self.lives))

    def events(self) -> Iterator[Event]:
        """Until the search has ended."""
        while self.end is None:
            if self._waiting:
                yield self._waiting.pop(0)
            else:
                yield self._next()
            if self.closed and self._chance.random() < self.rough / 4:
                yield ValidationReported(self._chance.choice(self.closed), 0.0, 1.0)

    def _next(self) -> Event:
        chance = self._chance
        request_id = chance.choice(list(self.lives))
        life = self.lives[request_id]
        if life.has_exited or life.length >= self.max_time or (life.is_stopping and chance.random() < 0.7):
            del self.lives[request_id]
            self.closed.append(request_id)
            return TrialClosed(request_id)
        if chance.random() < self.rough / 10:
            life.has_exited = True
            return TrialExited(request_id, chance.choice(self.reasons))
        if chance.random() < 0.1:
            return TrialProgress(request_id, life.length / self.max_time)
        life.length = min(life.length + chance.choice((1, 2, 5, 20)), self.max_time)
        event = ValidationReported(request_id, self._metric(), float(life.length))
        if chance.random() < self.rough:
            self._waiting.append(event)
        return event

    def _metric(self) -> float:
        """Some are equal, some are none."""
        if self._chance.random() < self.rough / 4:
            return float("nan")
        return round(self._chance.random(), 2)


def live(searcher: Searcher, world: World, *, most_events: int = 100_000) -> list[tuple[Event, list[Action]]]:
    """The whole history of a search."""
    story: list[tuple[Event, list[Action]]] = []
    world.take(searcher.start())
    for event in world.events():
        actions = searcher.step(event)
        world.take(actions)
        story.append((event, actions))
        assert len(story) < most_events, "the search does not end"
    return story
