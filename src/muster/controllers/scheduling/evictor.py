"""Carries evictions out, one batch after the other: first it is asked whether all of a decision's victims may go, then
they are told and go. So nobody is evicted for one that gets no room because a budget keeps another of its victims.

The budgets are counted together here, for the store looks at each eviction alone; and each is tried as a dry run, for
what is known here may be old. What changes between the two and the evictions themselves can still keep one back.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from muster.api import errors
from muster.api.errors import ApiError
from muster.controllers.scheduling.evicting import Evictions, Trial
from muster.store.protocol import Refused, Result, Store, Write

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0


class Evictor:
    """`unsettled`: which pods, by uid, may be about to get a node. Deleted before that they would be lost."""

    def __init__(self, store: Store, evictions: Evictions, unsettled: Callable[[], Collection[str]]) -> None:
        self._store = store
        self._evictions = evictions
        self._unsettled = unsettled
        self._is_paused = False
        self._has_work = asyncio.Event()

    def wake(self) -> None:
        if self._evictions.has_work:
            self._has_work.set()

    async def run(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            trials = self._evictions.take_trials()
            if trials:
                await self._try(trials)
            writes = [] if self._is_paused else self._evictions.take_writes(but=self._unsettled())
            if writes:
                self._settle(writes, await self._write(writes))

    async def _try(self, trials: Sequence[Trial]) -> None:
        results = iter(await self._write([write for trial in trials for write in trial.writes]))
        for trial in trials:
            objections = [error for _ in trial.writes if (error := _objection(next(results))) is not None]
            if not objections and trial.is_within_budgets:
                self._evictions.clear(trial)
            else:
                _log.info("victims of %s stay for now: %s", trial.waiting.key, next(iter(objections), "their budgets"))
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._try_again, trial)

    def _try_again(self, trial: Trial) -> None:
        self._evictions.try_again(trial)
        self.wake()

    async def _write(self, writes: Sequence[Write]) -> Sequence[Result]:
        try:
            return await self._store.write(writes)
        except (ApiError, OSError) as error:
            _log.warning("nobody could be evicted: %s", error)
            return [Refused(errors.Unavailable(str(error)))] * len(writes)

    def _settle(self, writes: Sequence[Write], results: Sequence[Result]) -> None:
        again = []
        for write, result in zip(writes, results, strict=True):
            if isinstance(result, Refused) and is_passing(result.error):
                again.append(write)
            else:
                self._evictions.settled(write, is_done=not isinstance(result, Refused))
        if again:
            self._evictions.put_back(again)
            self._is_paused = True
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._is_paused = False
        self.wake()


def is_passing(error: ApiError) -> bool:
    """Whether the same write may succeed later."""
    return error.retryable and not isinstance(error, errors.Conflict)


def _objection(result: Result) -> ApiError | None:
    """Why a victim may not go. Of one that is gone already, or another by now, nothing is wanted any more."""
    is_refused = isinstance(result, Refused) and not isinstance(result.error, errors.NotFound | errors.Conflict)
    return result.error if isinstance(result, Refused) and is_refused else None
