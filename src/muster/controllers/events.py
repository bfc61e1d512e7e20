"""Forgets events: they tell what happened lately, and would otherwise fill the store."""

from muster.api import core, timestamps
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.runtime.clock import Clock
from muster.store.protocol import Delete, Options, Revision, Selection, Store, Write

_OPTIONS = Options(manager="muster-events")
_PAGE = 500
_LONGEST_PAUSE_SECONDS = 600.0  # the wall clock may be set


class EventCleaner:
    """Deletes events that were last told of more than `keep_seconds` ago. Kubernetes keeps them for an hour, too."""

    def __init__(
        self, store: Store, clock: Clock, *, keep_seconds: float = 3600.0, period_seconds: float = 60.0
    ) -> None:
        self._store = store
        self._clock = clock
        self._keep_seconds = keep_seconds
        self._period_seconds = period_seconds

    async def run(self) -> None:
        while True:
            left = await self.clean()
            await self._clock.sleep(max(self._period_seconds, min(left, _LONGEST_PAUSE_SECONDS)))

    async def clean(self) -> float:
        """Seconds until more may be due: what comes meanwhile is kept for longer than that."""
        token, left, due = "", self._keep_seconds, list[Write]()
        while True:
            page = await self._store.list(Selection(core.EVENT), limit=_PAGE, token=token)
            oldest = Instant(self._clock.now() - self._keep_seconds)
            for found in page.items:
                told = _last_told(found)
                if told < oldest:
                    # Based on the revision seen: an event that is told again meanwhile stays.
                    due.append(Delete(found.kind, found.key, based_on=Revision(found.revision), options=_OPTIONS))
                else:
                    left = min(left, told - oldest)
            token = page.token
            if not token:
                break
        # Not page by page: a store that has changed since the first page has to work out what the next one was.
        for start in range(0, len(due), _PAGE):
            await self._store.write(due[start : start + _PAGE])
        return left


def _last_told(event: Object) -> Instant:
    view = event.read(core.Event)
    series = view.series.last_observed_time if view.series is not None else None
    times = [text for text in (view.last_timestamp, series, view.event_time, event.meta.creation_timestamp) if text]
    for text in times:
        try:
            return timestamps.parse(text)
        except timestamps.BadTimestamp:
            continue
    return Instant(0.0)
