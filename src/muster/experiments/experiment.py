"""The lifecycle of an experiment: what happens to it and its trials is told its search, and what that decides is done.

Pure, but not a value: `Machine` has one owner, who makes what `taken` returns durable before anything is done about the
effects, and who builds it anew from the records where that fails. It knows only trials that have not ended.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from muster.experiments import trial
from muster.experiments.states import ENDED, ExperimentState, TrialState
from muster.search import protocol as search
from muster.search.protocol import RequestId, Searcher
from muster.tasks.allocation_states import Ended

_E: Final = ExperimentState
FINAL: Final[Mapping[ExperimentState, ExperimentState]] = {
    _E.STOPPING_COMPLETED: _E.COMPLETED,
    _E.STOPPING_CANCELED: _E.CANCELED,
    _E.STOPPING_ERROR: _E.ERROR,
    _E.STOPPING_KILLED: _E.CANCELED,
}
_SEVERITY: Final = {state: number for number, state in enumerate(FINAL)}
"""It only ever grows."""


def _changes() -> Mapping[tuple[ExperimentState, ExperimentState], str]:
    asked: Mapping[ExperimentState, str] = {
        _E.STOPPING_COMPLETED: "its search is done",
        _E.STOPPING_CANCELED: "its user cancels it: trials may save what they have",
        _E.STOPPING_ERROR: "its search has failed",
        _E.STOPPING_KILLED: "its user kills it",
    }
    found = {
        (_E.ACTIVE, _E.PAUSED): "its user pauses it",
        (_E.PAUSED, _E.ACTIVE): "its user lets it go on",
    }
    for before in (_E.ACTIVE, _E.PAUSED):
        found |= {(before, after): why for after, why in asked.items()}
    for before in asked:
        found |= {(before, after): why for after, why in asked.items() if _SEVERITY[before] < _SEVERITY[after]}
    for before, after in FINAL.items():
        found[before, after] = "all of its trials have ended"
    for before in sorted(ENDED):
        found[before, _E.ACTIVE] = "its user continues it"
        found[before, _E.DELETING] = "its user deletes it"
    found[_E.DELETING, _E.DELETE_FAILED] = "something of it could not be removed"
    found[_E.DELETE_FAILED, _E.DELETING] = "its user deletes it again"
    return found


CHANGES: Final[Mapping[tuple[ExperimentState, ExperimentState], str]] = _changes()


# What happens


class _Event(msgspec.Struct, frozen=True, tag=True):
    pass


class Begun(_Event, frozen=True):
    """Once, before all others."""


class Validated(_Event, frozen=True):
    request_id: RequestId
    metric: float
    length: float


class Progressed(_Event, frozen=True):
    request_id: RequestId
    progress: float


class OfTrial(_Event, frozen=True):
    """What concerns one trial alone."""

    request_id: RequestId
    event: trial.Event


class RunEnded(_Event, frozen=True):
    """`slot_seconds`: what it has used."""

    request_id: RequestId
    run: int
    ended: Ended
    slot_seconds: float = 0.0


class Paused(_Event, frozen=True):
    pass


class Activated(_Event, frozen=True):
    pass


class StopAsked(_Event, frozen=True):
    """`to`: how it is to end, as the state in which it stops."""

    to: ExperimentState
    reason: str


class BudgetSpent(_Event, frozen=True):
    note: str


class LimitChanged(_Event, frozen=True):
    """How many trials may run at once; None for as many as the search wants."""

    most: int | None


Event: TypeAlias = (
    Begun | Validated | Progressed | OfTrial | RunEnded | Paused | Activated | StopAsked | BudgetSpent | LimitChanged
)


# What is to be done about it


@dataclass(frozen=True, slots=True)
class Do:
    request_id: RequestId
    effect: trial.Effect


@dataclass(slots=True)
class Outcome:
    """What some events have led to: all of it is written at once. `created` also has those that were there before, and
    go on; `changed` is of all trials that are not as they were."""

    created: list[search.Create] = field(default_factory=list)
    changed: dict[RequestId, trial.State] = field(default_factory=dict)
    effects: list[Do] = field(default_factory=list)
    slot_seconds: float = 0.0
    note: str = ""
    """For its user."""


@dataclass(frozen=True, slots=True)
class Before:
    """A trial of an experiment that was continued, as it had ended. `is_done`: it stays so."""

    is_done: bool
    run: int


class Machine:
    """`trials`: those that have not ended. `most`: how many of them may run at once. `before`: trials that had ended
    when the experiment was continued. `is_spent`: it has cost what it may."""

    def __init__(
        self,
        searcher: Searcher,
        state: ExperimentState = ExperimentState.ACTIVE,
        trials: Mapping[RequestId, trial.State] | None = None,
        *,
        max_restarts: int = 0,
        most: int | None = None,
        before: Mapping[RequestId, Before] | None = None,
        is_spent: bool = False,
    ) -> None:
        self.searcher = searcher
        self.state = state
        self.error = ""
        self.is_spent = is_spent
        self.trials: dict[RequestId, trial.State] = {}
        self._max_restarts = max_restarts
        self._most = most
        self._before = before or {}
        self._live = 0
        self._waiting: dict[RequestId, None] = {}
        self._outcome = Outcome()
        self._untold: deque[search.Event | None] = deque()
        for request_id, found in (trials or {}).items():
            self._put(request_id, found)
        self._outcome = Outcome()

    def take(self, event: Event) -> None:
        if self.state in ENDED:
            return
        self._happened(event)
        self._decide()
        self._admit()
        if self.state in FINAL and not self.trials:
            self._to(FINAL[self.state])

    def taken(self) -> Outcome:
        """Since the last time."""
        found, self._outcome = self._outcome, Outcome()
        return found

    def resume(self) -> list[Do]:
        """What must be done after a restart, whether or not it was done before."""
        return [Do(id, effect) for id, state in self.trials.items() for effect in trial.resume(state)]

    @property
    def is_searching(self) -> bool:
        """Its search has still a say."""
        return self.state in (ExperimentState.ACTIVE, ExperimentState.PAUSED)

    # What happens

    def _happened(self, event: Event) -> None:
        match event:
            case Begun():
                self._untold.append(None)
            case Validated(request_id, metric, length):
                self._untold.append(search.ValidationReported(request_id, metric, length))
            case Progressed(request_id, progress):
                self._untold.append(search.TrialProgress(request_id, progress))
            case OfTrial():
                self._step(event.request_id, event.event)
            case RunEnded():
                self._run_ended(event)
            case Paused() | Activated():
                self._turn(event)
            case StopAsked():
                self._stop(event.to, event.reason)
            case BudgetSpent() if not self.is_spent:
                self.is_spent, self._outcome.note = True, event.note
                self._untold.append(search.BudgetSpent())
            case LimitChanged():
                self._most = event.most

    def _run_ended(self, event: RunEnded) -> None:
        found = self.trials.get(event.request_id)
        if found is not None and found.is_live and found.run == event.run:
            self._outcome.slot_seconds += event.slot_seconds
        self._step(event.request_id, trial.Exited(event.run, event.ended))

    def _turn(self, event: Paused | Activated) -> None:
        wanted = ExperimentState.PAUSED if isinstance(event, Paused) else ExperimentState.ACTIVE
        if not self.is_searching or self.state is wanted:
            return
        self._to(wanted)
        for request_id in list(self.trials):
            self._step(request_id, trial.Paused() if isinstance(event, Paused) else trial.Activated())

    def _stop(self, to: ExperimentState, reason: str) -> None:
        if self.state in _SEVERITY and _SEVERITY[to] < _SEVERITY[self.state]:
            return
        if self.state is not to:
            self._to(to)
        if to is ExperimentState.STOPPING_ERROR:
            self.error = reason
        for request_id in list(self.trials):
            self._step(request_id, trial.StopAsked(TrialState(to.value), reason))

    # The search

    def _decide(self) -> None:
        """Tells the search all that it does not know yet, and does what it says."""
        while self._untold and self.is_searching:
            event = self._untold.popleft()
            try:
                actions = self.searcher.start() if event is None else self.searcher.step(event)
            except Exception as error:  # a method may be anybody's: its experiment fails, and no other
                self._stop(ExperimentState.STOPPING_ERROR, f"the search failed: {type(error).__name__}: {error}")
                return
            for action in actions:
                self._act(action)

    def _act(self, action: search.Action) -> None:
        match action:
            case search.Create():
                self._create(action)
            case search.Stop(request_id):
                reason = "the search has no more use for it"
                self._step(request_id, trial.StopAsked(TrialState.STOPPING_COMPLETED, reason))
            case search.Shutdown():
                self._shut_down(action)

    def _create(self, action: search.Create) -> None:
        id = action.request_id
        self._untold.append(search.TrialCreated(id))
        if id in self.trials:
            return
        before = self._before.get(id)
        if before is not None and before.is_done:
            self._untold.append(search.TrialClosed(id))
            return
        phase = TrialState.PAUSED if self.state is ExperimentState.PAUSED else TrialState.ACTIVE
        run = 0 if before is None else before.run
        self._outcome.created.append(action)
        self._put(id, trial.State(phase=phase, max_restarts=self._max_restarts, run=run))

    def _shut_down(self, action: search.Shutdown) -> None:
        if action.is_cancel:
            self._stop(ExperimentState.STOPPING_CANCELED, "its search was cancelled")
        elif action.is_failure:
            self._stop(ExperimentState.STOPPING_ERROR, "too many of its trials have failed")
        else:
            self._stop(ExperimentState.STOPPING_COMPLETED, "its search is done")

    # Trials

    def _step(self, request_id: RequestId, event: trial.Event) -> None:
        found = self.trials.get(request_id)
        if found is None:
            return  # it has ended: late messages are normal
        after, effects = trial.step(found, event)
        self._outcome.effects += [Do(request_id, effect) for effect in effects]
        if after == found:
            return
        self._put(request_id, after)
        if after.is_over:
            if after.exit is not None:
                self._untold.append(search.TrialExited(request_id, after.exit))
            self._untold.append(search.TrialClosed(request_id))

    def _put(self, request_id: RequestId, state: trial.State) -> None:
        before = self.trials.pop(request_id, None) if state.is_over else self.trials.get(request_id)
        self._live += state.is_live - (before is not None and before.is_live)
        if state.is_waiting:
            self._waiting[request_id] = None
        else:
            self._waiting.pop(request_id, None)
        if not state.is_over:
            self.trials[request_id] = state
        self._outcome.changed[request_id] = state

    def _admit(self) -> None:
        """The oldest first, as many as may run."""
        while self._waiting and (self._most is None or self._live < self._most):
            self._step(next(iter(self._waiting)), trial.Admitted())

    def _to(self, state: ExperimentState) -> None:
        if (self.state, state) not in CHANGES:
            raise trial.InvalidTransition(f"from {self.state} to {state}")
        self.state = state
