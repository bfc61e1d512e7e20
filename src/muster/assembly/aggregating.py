"""The aggregated API of a controller on a cluster: whom to believe about callers, and telling the API server.

An APIService that nobody answers for does harm: while there is one, no namespace of the cluster can be deleted, and
kubectl complains. So it stands only while we answer, and the leader takes it away when it stops, or when the API server
does not get through to it.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import core, errors, selectors
from muster.api.errors import ApiError
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.assembly import owning
from muster.assembly.admission import Certificate
from muster.deploying import aggregation, kinds, names
from muster.deploying.aggregation import Way
from muster.runtime.clock import Clock
from muster.server.aggregation import front_proxy
from muster.server.aggregation.front_proxy import FrontProxy
from muster.store.protocol import Apply, Delete, Options, Patch, Selection, Store, write_one

_log = logging.getLogger(__name__)
_OPTIONS: Final = Options(manager="muster-visibility")
_LOOK_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 30.0
"""So long the API server may take to get through."""
_PAUSE_SECONDS: Final = 600.0
"""After it did not."""
_LEAVE_SECONDS: Final = 2.0


class Trust:
    """Whom the cluster says to believe about callers. The webhooks are served whether or not that can be read."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.current: FrontProxy | None = None

    @contextlib.asynccontextmanager
    async def followed(self, context: ssl.SSLContext) -> AsyncIterator[None]:
        """Connections of those who are believed are accepted while the block runs, as are those without a
        certificate."""
        await self._look(context)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow(context), name="front proxies")
            try:
                yield
            finally:
                following.cancel()

    async def _follow(self, context: ssl.SSLContext) -> None:
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            await self._look(context)

    async def _look(self, context: ssl.SSLContext) -> None:
        try:
            found = await self._store.get(core.CONFIG_MAP, front_proxy.CONFIGURATION)
            believed = front_proxy.read(found.read(core.ConfigMap).data or {})
        except (ApiError, OSError) as error:
            _log.warning("which API servers to believe cannot be read: %s", error)
            return
        known = self.current
        self.current = believed
        if believed is not None and (known is None or known.authorities != believed.authorities):
            context.load_verify_locations(cadata=believed.authorities)
            # As in Go: whoever is listed is believed, also where somebody else has signed it.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_mode = ssl.CERT_OPTIONAL


@dataclass(frozen=True, slots=True)
class Here:
    """What this process answers, and where it is. `pod`: empty for one that runs elsewhere, to which `way` leads by
    address."""

    versions: Sequence[tuple[str, str]]
    way: Way
    pod: str


class Registration:
    """The APIServices. Run by the leader."""

    def __init__(self, store: Store, clock: Clock, certificate: Certificate, trust: Trust, here: Here) -> None:
        self._store = store
        self._clock = clock
        self._certificate = certificate
        self._trust = trust
        self._here = here
        self._said = ""

    async def run(self) -> None:
        """For ever."""
        try:
            while True:
                await self._clock.sleep(await self._look())
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._withdraw()
            raise

    async def _look(self) -> float:
        """Puts everything right; how long it can be left alone then."""
        if self._trust.current is None:
            self._tell(
                "nothing is passed on to us: the API server does not say by whom (--requestheader-client-ca-file)"
            )
            return _LOOK_SECONDS
        try:
            await self._lead_here()
            await self._register()
            trouble = await self._trouble()
        except (ApiError, OSError) as error:
            self._tell(f"the API server cannot be told what to pass on to us: {error}")
            return _AGAIN_SECONDS
        if trouble:
            self._tell(f"the API server does not get through to us, and is told to pass nothing on: {trouble}")
            await self._withdraw()
            return _PAUSE_SECONDS
        self._said = ""
        return _LOOK_SECONDS

    def _tell(self, trouble: str) -> None:
        """Once, for as long as it lasts."""
        if trouble != self._said:
            _log.warning("%s", trouble)
            self._said = trouble

    async def _lead_here(self) -> None:
        space, pod = self._here.way.namespace, self._here.pod
        service = Apply(core.SERVICE, Key(space, names.VISIBILITY), self._here.way.service(), True, "", _OPTIONS)
        await write_one(self._store, service)
        marked = selectors.parse_labels(names.LEADER)
        for found in (await self._store.list(Selection(core.POD, space, marked))).items:
            if found.key.name != pod:
                with contextlib.suppress(errors.NotFound):  # the one before may be on its way out
                    await write_one(self._store, _marking(found.key, None))
        if pod:
            await write_one(self._store, _marking(Key(space, pod), "true"))

    async def _register(self) -> None:
        owners = await owning.owners(self._store)
        keys = await self._certificate.renew()
        for document in self._here.way.api_services(self._here.versions, keys.authorities, owners):
            key = Key("", document["metadata"]["name"])
            found = await self._find(key)
            if found is None or aggregation.is_ours(found):
                await write_one(self._store, Apply(kinds.API_SERVICE, key, document, True, "", _OPTIONS))

    async def _trouble(self) -> str:
        """Why the API server does not get through; empty once it does."""
        deadline = self._clock.monotonic() + _PATIENCE_SECONDS
        while True:
            told = [aggregation.trouble(found) for found in await self._ours()]
            if not any(told) or self._clock.monotonic() > deadline:
                return "; ".join(sorted({each for each in told if each}))
            await self._clock.sleep(0.5)

    async def _withdraw(self) -> None:
        try:
            for found in await self._ours():
                await write_one(self._store, Delete(kinds.API_SERVICE, found.key, options=_OPTIONS))
        except (ApiError, OSError) as error:
            _log.warning("what the API server passes on to us could not be taken away: %s", error)

    async def _ours(self) -> list[Object]:
        found = [await self._find(Key("", name)) for name in names.API_SERVICES]
        return [each for each in found if each is not None and aggregation.is_ours(each)]

    async def _find(self, key: Key) -> Object | None:
        try:
            return await self._store.get(kinds.API_SERVICE, key)
        except errors.NotFound:
            return None


def _marking(pod: Key, value: str | None) -> Patch:
    body: Document = {"metadata": {"labels": {names.LEADER: value}}}
    return Patch(core.POD, pod, body, options=_OPTIONS)
