"""A search that runs: keeps its trials within their bounds, stops those that brackets or learners give up, and ends.

A trial is running from when it is asked for until it is closed: one that was told to stop still holds its place, so
there are never more at once than allowed.
"""

from math import inf
from typing import Final

import msgspec

from muster.api import errors
from muster.search.brackets import Brackets
from muster.search.brackets import State as BracketsState
from muster.search.proposing import Learner, Proposer
from muster.search.protocol import (
    Action,
    BudgetSpent,
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
from muster.search.randomness import Source

_FAILURES: Final = (ExitReason.ERRORED, ExitReason.INVALID_HP)


class Running(msgspec.Struct):
    """A trial that is not closed."""

    number: int
    longest: float = -1.0
    """How far its reports have come."""
    progress: float = 0.0
    is_stopping: bool = False
    reason: ExitReason | None = None


class State(msgspec.Struct):
    running: dict[RequestId, Running] = {}
    made: int = 0
    failed: int = 0
    canceled: int = 0
    is_spent: bool = False
    is_over: bool = False


class _Saved(msgspec.Struct):
    search: State
    brackets: BracketsState
    learned: bytes


class Search:
    """`max_concurrent`: over all brackets; None for no bound."""

    def __init__(
        self, brackets: Brackets, proposer: Proposer, seed: int, *, max_concurrent: int | None, is_maximised: bool
    ) -> None:
        self._brackets = brackets
        self._proposer = proposer
        self._learner = proposer if isinstance(proposer, Learner) else None
        self._seed = seed
        self._max_concurrent = max_concurrent
        self._sign = -1.0 if is_maximised else 1.0
        self._state = State()

    def start(self) -> list[Action]:
        return self._continued()

    def step(self, event: Event) -> list[Action]:
        if isinstance(event, BudgetSpent):
            return self._spent()
        trial = self._state.running.get(event.request_id)
        if trial is None:
            return []  # closed, and heard of late
        match event:
            case ValidationReported():
                return self._reported(event, trial)
            case TrialProgress():
                if 0.0 <= event.progress <= 1.0:
                    trial.progress = event.progress
            case TrialExited():
                return self._exited(event, trial)
            case TrialClosed():
                return self._closed(event.request_id, trial)
            case TrialCreated():
                pass  # whoever makes trials knows which there are
        return []

    def progress(self) -> float:
        if self._state.is_over:
            return 1.0
        counted, running = self._brackets.made, self._state.running.values()
        planned = max(counted, 1) if self._state.is_spent else self._brackets.max_trials
        done = counted - len(running) + sum(trial.progress for trial in running)
        return min(max(done / planned, 0.0), 1.0)

    def snapshot(self) -> bytes:
        learned = self._learner.saved() if self._learner is not None else b""
        return msgspec.msgpack.encode(_Saved(self._state, self._brackets.state, learned))

    def load(self, snapshot: bytes) -> None:
        """Into one that has not started yet. Raises Invalid where the snapshot is of another search."""
        try:
            saved = msgspec.msgpack.decode(snapshot, type=_Saved)
            if self._learner is not None:
                self._learner.load(saved.learned)
        except ValueError as error:  # as msgspec's errors are
            raise errors.Invalid(f"this is no snapshot of such a search: {error}") from error
        self._brackets.load(saved.brackets)
        self._state = saved.search

    def _reported(self, event: ValidationReported, trial: Running) -> list[Action]:
        """What is not beyond earlier reports was told twice, comes late, or is trained again after a restart."""
        is_new = trial.longest < event.length < inf
        if not is_new or trial.is_stopping or trial.reason is not None:
            return []
        trial.longest = event.length
        is_given_up = self._brackets.report(trial.number, self._sign * event.metric, event.length)
        if self._learner is not None:
            is_given_up |= self._learner.report(trial.number, event.metric, event.length)
        return self._stop(event.request_id, trial) if is_given_up else []

    def _exited(self, event: TrialExited, trial: Running) -> list[Action]:
        """How a trial ends that was told to stop says nothing about it."""
        if trial.is_stopping or trial.reason is not None:
            return []
        trial.reason = event.reason
        self._brackets.exit(trial.number, event.reason)
        if event.reason is not ExitReason.INVALID_HP:
            return []
        # It says so, and may still run. Another is made for it at once if there is room beside it.
        return self._stop(event.request_id, trial) + self._continued()

    def _closed(self, request_id: RequestId, trial: Running) -> list[Action]:
        state = self._state
        del state.running[request_id]
        state.failed += trial.reason in _FAILURES
        state.canceled += trial.reason is ExitReason.USER_CANCELED
        self._brackets.close(trial.number)
        if self._learner is not None:
            self._learner.close(trial.number, trial.reason)
        return self._continued()

    def _spent(self) -> list[Action]:
        self._state.is_spent = True
        stops: list[Action] = []
        for request_id, trial in self._state.running.items():
            if not trial.is_stopping:
                stops += self._stop(request_id, trial)
        return stops + self._continued()

    def _stop(self, request_id: RequestId, trial: Running) -> list[Action]:
        trial.is_stopping = True
        return [Stop(request_id)]

    def _continued(self) -> list[Action]:
        """New trials where there is room for them; or the end, where none runs and none will."""
        state = self._state
        actions: list[Action] = []
        while not state.is_spent and (self._max_concurrent is None or len(state.running) < self._max_concurrent):
            bracket = self._brackets.next_bracket()
            if bracket is None:
                break
            actions.append(self._create(bracket))
        if not state.running and not state.is_over:
            state.is_over = True
            has_result = state.failed + state.canceled < state.made
            is_cancel = 0 < state.canceled == state.made
            actions.append(Shutdown(is_failure=not has_result and state.failed > 0, is_cancel=is_cancel))
        return actions

    def _create(self, bracket: int) -> Create:
        number = self._state.made
        source = Source(self._seed, number)
        hparams = self._proposer.propose(number, source)
        self._brackets.add(number, bracket)
        self._state.running[source.request_id] = Running(number)
        self._state.made += 1
        return Create(source.request_id, hparams, source.trial_seed)


_: type[Searcher] = Search
