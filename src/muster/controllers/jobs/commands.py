"""Commands to jobs (`vcctl job suspend`, `resume`): each is deleted when it has been carried out, so at least once.

Whoever is told twice, because of a crash in between, finds the job as it should be.
"""

import contextlib
from collections.abc import Callable

from muster.api import errors, volcano
from muster.api.objects import Key
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.reconciling import Reconciler
from muster.store.protocol import Change, Delete, Event, Options, Selection, Store, write_one

_WORKERS = 2


class Commands:
    """`carry_out` gets the job's key, the uid it was meant for (empty: any), the action and the command's key. False:
    there is no such job. Otherwise it is told on when it is `finished`. Run both parts."""

    def __init__(
        self, store: Store, clock: Clock, options: Options, carry_out: Callable[[Key, str, str, Key], bool]
    ) -> None:
        self._store = store
        self._options = options
        self._carry_out = carry_out
        self._taken: dict[Key, str] = {}
        """The uids of those that are being carried out."""
        self._finished: set[str] = set()
        """Uids."""
        self.informer = Informer(store, Selection(volcano.COMMAND), clock=clock)
        self.reconciler = Reconciler("volcano commands", self._take, clock=clock, workers=_WORKERS)
        self.informer.on_event(self._heard)

    def finished(self, key: Key) -> None:
        uid = self._taken.pop(key, None)
        if uid is not None:
            self._finished.add(uid)
            self.reconciler.queue.add(key)

    def _heard(self, event: Event) -> None:
        found = event.object
        assert found is not None
        if event.change is Change.ADDED:
            self.reconciler.queue.add(found.key)
        elif event.change is Change.DELETED:
            self._finished.discard(found.uid)
            self._taken.pop(found.key, None)

    async def _take(self, key: Key) -> None:
        found = self.informer.get(key)
        if found is None or self._taken.get(key) == found.uid:
            return
        command = found.read(volcano.Command)
        target = command.target
        if target is None or (target.api_version, target.kind) != (volcano.JOB.api_version, volcano.JOB.name):
            return
        if found.uid not in self._finished:
            self._taken[key] = found.uid
            if self._carry_out(Key(key.namespace, target.name), target.uid, command.action or "", key):
                return
            del self._taken[key]
            self._finished.add(found.uid)
        with contextlib.suppress(errors.NotFound):  # somebody else has withdrawn it
            await write_one(self._store, Delete(volcano.COMMAND, key, uid=found.uid, options=self._options))
