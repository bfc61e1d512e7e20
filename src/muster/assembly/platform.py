"""Objects and server: a platform without nodes, and what of it is there first. Where the objects are is for `embedded`
or `serving_clusters` to say."""

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from muster.api import errors, raw
from muster.assembly import addresses, configured
from muster.assembly.addresses import Place
from muster.assembly.configured import Policies, ServeSettings
from muster.assembly.controlling import Component
from muster.assembly.logging_live import LiveSettings
from muster.assembly.private_files import make_private, token, write_private
from muster.runtime.clock import Clock, SystemClock
from muster.runtime.metrics import Registry
from muster.runtime.supervision import supervise
from muster.server import tls
from muster.server.app import App
from muster.server.listening import listening
from muster.server.logs import NodeLogs
from muster.server.node_samples import NodeSamples
from muster.settings.sections import Tls
from muster.store.protocol import Store
from muster.tasks.queues import Queues
from muster.version import VERSION

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """What there is to know once a platform answers. `kubeconfig`: None where the objects are another server's.
    `password`: of `admin`, where this start has made it up; it is told now or never."""

    url: str
    kubeconfig: Path | None
    node_token: str
    nodes: Sequence[str] = ()
    password: str | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    admin: str
    node: str


@dataclass(frozen=True, slots=True)
class ForeignCluster:
    """A Kubernetes cluster with schedulers and kubelets of its own. `scheduler`: the name by which its pods ask us for
    a place. `service`: the URL by which they reach our server; empty where we are none of its Services."""

    scheduler: str
    service: str = ""


@dataclass(frozen=True, slots=True)
class Objects:
    """Where the objects are, and who knows about them. `components` must be kept running. `app` serves them, where
    nobody else does. `logs`: of pods. `samples`: what pods use; None where nobody can be asked for that."""

    store: Store
    app: App
    logs: NodeLogs
    samples: NodeSamples | None
    queues: Queues
    metrics: Registry
    components: Mapping[str, Component]
    cluster: ForeignCluster | None = None
    """Whose they are, where not ours."""


Kept_co = TypeVar("Kept_co", bound=Objects, covariant=True)


class OpenObjects(Protocol[Kept_co]):
    def __call__(
        self, settings: ServeSettings, policies: Policies, clock: Clock, tokens: Tokens, /
    ) -> contextlib.AbstractAsyncContextManager[Kept_co]: ...


@dataclass(frozen=True, slots=True)
class Core(Generic[Kept_co]):
    """The objects, those who look after them, and the server. `kubeconfig`: how others reach the objects, where they
    are ours."""

    objects: Kept_co
    clock: Clock
    place: Place
    tokens: Tokens
    kubeconfig: Path | None
    live: LiveSettings
    trusted: str
    tls: ssl.SSLContext | None


@contextlib.asynccontextmanager
async def core(settings: ServeSettings, open_objects: OpenObjects[Kept_co]) -> AsyncIterator[Core[Kept_co]]:
    """Up while the context lasts. The server answers for objects at once; requests for the rest wait until it is
    mounted."""
    clock, live = SystemClock(), LiveSettings(settings.platform)
    policies = configured.policies(settings.platform)
    secure = _tls(settings.platform.security.tls)
    addresses.check(settings.platform)
    make_private(settings.data)
    tokens = Tokens(token(settings.data / "token"), token(settings.data / "node-token"))
    async with contextlib.AsyncExitStack() as stack:
        # First of all, so that everybody can be told the address; who comes too early waits until we are ready.
        place = addresses.take(settings.platform, stack)
        live.open()
        stack.callback(live.close)
        objects = await stack.enter_async_context(open_objects(settings, policies, clock, tokens))
        objects.app.expect_more()
        await stack.enter_async_context(kept_running({**objects.components, **_renewal(secure, clock)}, clock))
        context = None if secure is None else secure.context
        proxies = settings.platform.security.trusted_proxies
        await stack.enter_async_context(_answering(objects.app, place, context, proxies))
        _log.info("Muster %s answers at %s", VERSION, place.url)
        trusted = _trusted(settings.platform.security.tls)
        kubeconfig = settings.data / "kubeconfig" if objects.cluster is None else None
        if kubeconfig is not None:
            write_private(kubeconfig, raw.to_yaml(_kubeconfig(place.url, tokens.admin, trusted)))
        yield Core(objects, clock, place, tokens, kubeconfig, live, trusted, context)


def _answering(
    application: App, place: Place, context: ssl.SSLContext | None, proxies: Sequence[str]
) -> contextlib.AbstractAsyncContextManager[str]:
    return listening(
        application, on_close=application.close, tls=context, sockets=place.sockets, trusted_proxies=proxies
    )


@contextlib.asynccontextmanager
async def kept_running(components: Mapping[str, Component], clock: Clock) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(supervise(components, clock=clock), name=f"{next(iter(components))} and others")
        try:
            yield
        finally:
            running.cancel()


@dataclass(frozen=True, slots=True)
class _Secure:
    context: ssl.SSLContext
    files: tls.Files


def _tls(wanted: Tls) -> _Secure | None:
    """Raises what is wrong with it, before anything has started."""
    if bool(wanted.cert) != bool(wanted.key):
        raise errors.BadRequest("security.tls: cert and key belong together; set both or none")
    if not wanted.is_on:
        if wanted.client_ca:
            raise errors.BadRequest("security.tls.client_ca: needs cert and key: without TLS nobody shows one")
        return None
    client_ca = Path(wanted.client_ca).expanduser() if wanted.client_ca else None
    files = tls.Files(Path(wanted.cert).expanduser(), Path(wanted.key).expanduser(), client_ca)
    return _Secure(tls.server_context(files), files)


def _renewal(secure: _Secure | None, clock: Clock) -> dict[str, Component]:
    return {} if secure is None else {"certificate": tls.Renewal(secure.context, secure.files, clock).run}


def _kubeconfig(url: str, admin_token: str, trusted: str) -> raw.Document:
    """kubectl sends no token over plain HTTP, but it does send what stands in the URL: there it stands as well."""
    server = url if urlsplit(url).scheme == "https" else url.replace("://", f"://admin:{admin_token}@", 1)
    cluster: raw.Document = {"server": f"{server}/k8s"}
    if trusted:
        cluster["certificate-authority-data"] = base64.b64encode(trusted.encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "muster",
        "clusters": [{"name": "muster", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": admin_token}}],
        "contexts": [{"name": "muster", "context": {"cluster": "muster", "user": "admin", "namespace": "default"}}],
    }


def _trusted(secure: Tls) -> str:
    """PEM of what clients should trust the server by; empty where their system knows, and without TLS."""
    if not secure.is_on:
        return ""
    if not secure.ca:
        return tls.own_authorities(Path(secure.cert).expanduser())
    try:
        return Path(secure.ca).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.BadRequest(f"security.tls.ca: cannot read {secure.ca}: {error}") from error
