"""The admission webhooks of a controller on a cluster: listening, their certificate, and telling the API server."""

import asyncio
import contextlib
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from muster.api import core, errors
from muster.api.errors import ApiError
from muster.api.objects import Key, Object
from muster.api.ownership import Ownership
from muster.api.raw import Document
from muster.assembly import owning
from muster.deploying import definitions, kinds, names, surroundings
from muster.deploying.aggregation import Way
from muster.runtime.clock import Clock
from muster.server import tls
from muster.server.admission import certificates, configurations
from muster.server.admission.certificates import Keys
from muster.server.admission.configurations import Address
from muster.store.protocol import Apply, Create, Options, Patch, PatchType, Revision, Store, write_one

_log = logging.getLogger(__name__)
_OPTIONS: Final = Options(manager="muster-webhook")
_LOOK_SECONDS: Final = 60.0
_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """`url`: where the API server reaches us, if not by the Services of the installation. `pod`: in which we run, so
    that they find the leader."""

    host: str
    port: int
    url: str = ""
    pod: str = ""

    def way(self, namespace: str) -> Way:
        """Of what it passes on to us."""
        parts = urlsplit(self.url)
        return Way(namespace, parts.hostname or "", parts.port or 443) if self.url else Way(namespace)


class Certificate:
    """The certificate that all replicas share, in a Secret of the installation. The leader renews it, and tells the API
    server whom to believe before the others follow."""

    def __init__(self, store: Store, clock: Clock, namespace: str, settings: WebhookSettings) -> None:
        self._store = store
        self._clock = clock
        self._key = Key(namespace, names.WEBHOOK)
        self._url = settings.url
        host = urlsplit(settings.url).hostname
        services = [f"{name}.{namespace}.svc" for name in (names.WEBHOOK, names.VISIBILITY)]
        # Also of a controller outside the cluster: what is passed on to it comes in the Service's name.
        self._names = [*services, *(f"{name}.cluster.local" for name in services), *([host] if host else [])]

    def address(self, keys: Keys) -> Address:
        """Where the API server finds who has these keys."""
        return Address(keys.authorities, self._key.namespace, names.WEBHOOK, self._url)

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[ssl.SSLContext]:
        """Once there is one: follows the Secret while the block runs."""
        keys = await self._first()
        with tempfile.TemporaryDirectory(prefix="muster-webhook-") as folder:  # OpenSSL takes keys from files only
            files = tls.Files(Path(folder) / "tls.crt", Path(folder) / "tls.key")
            _put(files, keys)
            context = tls.server_context(files)
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follow(files, context, keys), name="webhooks: certificate")
                try:
                    yield context
                finally:
                    following.cancel()

    async def _first(self) -> Keys:
        """Whoever comes first makes it: a follower must serve too, and may be the first to be asked."""
        while True:
            try:
                return await self.renew()
            except (ApiError, OSError) as error:
                _log.warning("the certificate of the webhooks cannot be read or made: %s", error)
            await self._clock.sleep(_WAIT_SECONDS)

    async def _follow(self, files: tls.Files, context: ssl.SSLContext, served: Keys) -> None:
        renewal = tls.Renewal(context, files, self._clock)
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            try:
                _, found = await self._read()
            except (ApiError, OSError) as error:
                _log.warning("the certificate of the webhooks cannot be looked at: %s", error)
                continue
            if found is not None and found != served:
                served = found
                _put(files, served)
                renewal.look()

    async def renew(self) -> Keys:
        """What stands in the Secret, made or renewed where that is due. Raises Conflict or AlreadyExists where somebody
        else has just done so."""
        stored, known = await self._read()
        keys = certificates.renewed(known, self._names, self._clock.now())
        if stored is None:
            metadata = {"name": self._key.name, "namespace": self._key.namespace, "labels": dict(names.LABELS)}
            made: Document = {"metadata": metadata, "type": "kubernetes.io/tls", "data": keys.data()}
            await write_one(self._store, Create(core.SECRET, made, _OPTIONS))
        elif keys != known:
            body, based_on = {"data": keys.data()}, Revision(stored.revision)
            await write_one(self._store, Patch(core.SECRET, self._key, body, based_on=based_on, options=_OPTIONS))
            _log.warning("the certificate of the webhooks was renewed")
        return keys

    async def _read(self) -> tuple[Object | None, Keys | None]:
        """The Secret, and what could be read of it."""
        try:
            found = await self._store.get(core.SECRET, self._key)
        except errors.NotFound:
            return None, None
        return found, certificates.read(found.read(core.Secret).data or {})


class Registration:
    """The webhook configurations. Run by the leader: what somebody changes is put right within a minute."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        certificate: Certificate,
        ownership: Ownership,
        *,
        steers_pods: bool,
    ) -> None:
        """`steers_pods`: whether any pod may have to be changed."""
        self._store = store
        self._clock = clock
        self._certificate = certificate
        self._ownership = ownership
        self._steers_pods = steers_pods

    async def run(self) -> None:
        """For ever."""
        while True:
            address = self._certificate.address(await self._certificate.renew())
            mutating = configurations.mutating(address, self._ownership, steers_pods=self._steers_pods)
            validating = configurations.validating(address, self._ownership)
            owners = await owning.owners(self._store)
            for kind, webhooks in ((kinds.MUTATING_WEBHOOKS, mutating), (kinds.VALIDATING_WEBHOOKS, validating)):
                document: Document = {
                    "apiVersion": kind.api_version,
                    "kind": kind.name,
                    "metadata": {"name": names.WEBHOOK, "labels": dict(names.LABELS), "ownerReferences": [*owners]},
                    "webhooks": webhooks,
                }
                await write_one(self._store, Apply(kind, Key("", names.WEBHOOK), document, True, "", _OPTIONS))
            await self._tell_definitions(definitions.conversion(address.client(definitions.CONVERT)))
            await self._clock.sleep(_LOOK_SECONDS)

    async def _tell_definitions(self, wanted: Document) -> None:
        """Of kinds with several versions, where the definition is ours: who converts them, and whom to believe."""
        for kind in definitions.kinds():
            if not kind.conversions:
                continue
            key = Key("", kind.resource)
            try:
                found = await self._store.get(kinds.CUSTOM_RESOURCE_DEFINITION, key)
            except errors.NotFound:
                continue
            if surroundings.is_ours(found) and found.document()["spec"].get("conversion") != wanted:
                # As a whole: what was there may have named another way.
                body = [{"op": "add", "path": "/spec/conversion", "value": wanted}]
                await write_one(self._store, Patch(found.kind, key, body, PatchType.JSON, options=_OPTIONS))


def _put(files: tls.Files, keys: Keys) -> None:
    files.cert.write_bytes(keys.certificate)
    files.key.write_bytes(keys.key)
