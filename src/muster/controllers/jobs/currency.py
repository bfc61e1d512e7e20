"""Read your writes: whether a controller's copies of a job and its pods show all that it has itself written.

Decisions on a copy that lacks them would do the same again. A write whose answer was lost may have happened or may not:
then the store is asked.
"""

import contextlib
from collections.abc import Callable, Sequence

from muster.api import core, errors
from muster.api.objects import Key, Object
from muster.runtime.informers import Informer
from muster.store.protocol import Refused, Result, Selection, Store, Write

_BATCH = 256  # writes at a time: others want to write meanwhile
_SOON_SECONDS = 0.005


class Currency:
    """`job_of` says whose a pod is. `others`: copies of what else is written for a job and decides about it."""

    def __init__(
        self,
        store: Store,
        jobs: Informer,
        pods: Informer,
        job_of: Callable[[Object], Key | None],
        others: Sequence[Informer] = (),
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._copies = (jobs, pods, *others)
        self._job_of = job_of
        self._awaited: dict[Key, list[int]] = {}
        """By job: the revision that each of the copies must have reached."""
        self._doubted: set[Key] = set()

    async def write(self, key: Key, writes: Sequence[Write]) -> Sequence[Result]:
        """Writes for this job, in order; what comes of them is waited for."""
        results: list[Result] = []
        was_doubted = key in self._doubted
        self._doubted.add(key)  # until there is an answer
        for start in range(0, len(writes), _BATCH):
            results += await self._store.write(writes[start : start + _BATCH])
        if not was_doubted and not any(map(_is_doubtful, results)):
            self._doubted.discard(key)
        for result in results:
            if not isinstance(result, Refused):
                self._note(key, result.object)
        return results

    async def wait_for(self, key: Key) -> float:
        """Seconds after which to ask again; 0 where the copies can be trusted."""
        if key in self._doubted:
            await self._ask(key)
        awaited = self._awaited.get(key)
        if awaited is None:
            return 0.0
        if any(wanted > copy.revision for wanted, copy in zip(awaited, self._copies, strict=True)):
            return _SOON_SECONDS
        del self._awaited[key]
        return 0.0

    def forget(self, key: Key) -> None:
        self._awaited.pop(key, None)
        self._doubted.discard(key)

    def _note(self, key: Key, written: Object) -> None:
        """What no copy shows is not waited for."""
        for number, copy in enumerate(self._copies):
            if copy.selection.kind is written.kind:
                awaited = self._awaited.setdefault(key, [0] * len(self._copies))
                awaited[number] = max(awaited[number], written.revision)

    async def _ask(self, key: Key) -> None:
        """What is there now must be seen before anything is decided. What has gone since does no harm: until the copy
        shows that, too few pods are made rather than too many."""
        with contextlib.suppress(errors.NotFound):
            self._note(key, await self._store.get(self._jobs.selection.kind, key))
        for pod in (await self._store.list(Selection(core.POD, key.namespace))).items:
            if self._job_of(pod) == key:
                self._note(key, pod)
        self._doubted.discard(key)


def _is_doubtful(result: Result) -> bool:
    """Refused for want of an answer, which may have been lost after the write was done; or because what should be made
    is there already, which the copies did not show."""
    return isinstance(result, Refused) and isinstance(
        result.error, errors.Unavailable | errors.Timeout | errors.InternalError | errors.AlreadyExists
    )
