"""Users of a simulated cluster: they submit, withdraw, and try until they are answered; they remember what they were
promised."""

from collections.abc import Callable
from typing import NamedTuple

from muster.api import errors, volcano
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.objects import Key
from muster.runtime.clock import Clock
from muster.sim.plans import Submit, document_of
from muster.store.protocol import Create, Delete, Patch, Store, Write, write_one

_PAUSE_SECONDS = 1.0


async def insist(store: Store, clock: Clock, write: Write) -> None:
    """Until there is an answer. One that says it has been done already is as good."""
    while True:
        try:
            await write_one(store, write)
        except (errors.AlreadyExists, errors.NotFound):
            return
        except (errors.ApiError, OSError) as error:
            if isinstance(error, errors.Invalid | errors.BadRequest):
                raise
            await clock.sleep(_PAUSE_SECONDS)
        else:
            return


class Wanted(NamedTuple):
    """What a user was promised, and when."""

    kind: Kind
    key: Key
    at: float


class Users:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._wanted: dict[str, Wanted] = {}  # by name: what was acknowledged, and not withdrawn since

    async def submit(self, event: Submit) -> tuple[Kind, Key]:
        """Returns what has been acknowledged."""
        document = document_of(event)
        kind = REGISTRY.by_document(document["apiVersion"], document["kind"])
        key = Key(document["metadata"]["namespace"], document["metadata"]["name"])
        await insist(self._store, self._clock, Create(kind, document))
        self._wanted[key.name] = Wanted(kind, key, self._clock.monotonic())
        return kind, key

    async def withdraw(self, name: str) -> None:
        found = self._wanted.pop(name, None)
        if found is not None:
            await insist(self._store, self._clock, Delete(found.kind, found.key, propagation="Background"))

    async def stop_schedules(self) -> None:
        """Cron jobs never end by themselves. What they have started does."""
        for one in [one for one in self._wanted.values() if one.kind is volcano.CRON_JOB]:
            await insist(self._store, self._clock, Patch(one.kind, one.key, {"spec": {"suspend": True}}))

    def unserved(self, has_ended: Callable[[Wanted], bool]) -> list[Wanted]:
        """Those that are not over. What is over once is not asked about again."""
        for name in [name for name, one in self._wanted.items() if one.kind is not volcano.CRON_JOB and has_ended(one)]:
            del self._wanted[name]
        return [one for one in self._wanted.values() if one.kind is not volcano.CRON_JOB or not has_ended(one)]
