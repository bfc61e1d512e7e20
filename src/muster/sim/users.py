"""Users of a simulated cluster: they submit, withdraw, and try until they are answered; they remember what they were
promised."""

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


class Users:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._acknowledged: dict[str, tuple[Kind, Key]] = {}  # by name
        self._withdrawn: set[str] = set()

    async def submit(self, event: Submit) -> tuple[Kind, Key]:
        """Returns what has been acknowledged."""
        document = document_of(event)
        kind = REGISTRY.by_document(document["apiVersion"], document["kind"])
        key = Key(document["metadata"]["namespace"], document["metadata"]["name"])
        await insist(self._store, self._clock, Create(kind, document))
        self._acknowledged[key.name] = (kind, key)
        return kind, key

    async def withdraw(self, name: str) -> None:
        found = self._acknowledged.get(name)
        if found is not None:
            self._withdrawn.add(name)
            await insist(self._store, self._clock, Delete(*found, propagation="Background"))

    async def stop_schedules(self) -> None:
        """Cron jobs never end by themselves. What they have started does."""
        for kind, key in [found for found in self.wanted() if found[0] is volcano.CRON_JOB]:
            await insist(self._store, self._clock, Patch(kind, key, {"spec": {"suspend": True}}))

    def wanted(self) -> list[tuple[Kind, Key]]:
        """What was acknowledged, and not withdrawn since."""
        return [found for name, found in self._acknowledged.items() if name not in self._withdrawn]
