"""Commands to jobs (`vcctl job suspend`, `resume`): each is deleted before it is carried out, so at most once."""

from collections.abc import Callable

from muster.api import errors, volcano
from muster.api.objects import Key
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.reconciling import Reconciler
from muster.store.protocol import Change, Delete, Event, Options, Selection, Store, write_one

_WORKERS = 2


class Commands:
    """`carry_out` gets the job's key, the uid it was meant for (empty: any) and the action. Run both parts."""

    def __init__(
        self, store: Store, clock: Clock, options: Options, carry_out: Callable[[Key, str, str], None]
    ) -> None:
        self._store = store
        self._options = options
        self._carry_out = carry_out
        self.informer = Informer(store, Selection(volcano.COMMAND), clock=clock)
        self.reconciler = Reconciler("volcano commands", self._take, clock=clock, workers=_WORKERS)
        self.informer.on_event(self._heard)

    def _heard(self, event: Event) -> None:
        if event.object is not None and event.change is Change.ADDED:
            self.reconciler.queue.add(event.object.key)

    async def _take(self, key: Key) -> None:
        found = self.informer.get(key)
        if found is None:
            return
        command = found.read(volcano.Command)
        target = command.target
        if target is None or (target.api_version, target.kind) != (volcano.JOB.api_version, volcano.JOB.name):
            return
        try:
            await write_one(self._store, Delete(volcano.COMMAND, key, uid=found.uid, options=self._options))
        except errors.NotFound:
            return  # somebody else has taken it
        self._carry_out(Key(key.namespace, target.name), target.uid, command.action or "")
