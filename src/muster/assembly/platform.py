"""Store, controllers and server: a platform without nodes, and what of it is there first."""

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from muster.agent import tokens as node_tokens
from muster.api import errors, raw
from muster.api.everything import REGISTRY
from muster.assembly import addresses, configured
from muster.assembly.addresses import Place
from muster.assembly.configured import ServeSettings
from muster.assembly.controlling import Component, controllers
from muster.assembly.logging_live import LiveSettings
from muster.assembly.private_files import make_private, token, write_private
from muster.controllers.quota import QuotaController
from muster.controllers.quota.visibility import Visibility
from muster.controllers.scheduling import SchedulingController
from muster.runtime.clock import Clock, SystemClock
from muster.runtime.informers import Shared
from muster.runtime.metrics import Registry
from muster.runtime.supervision import supervise
from muster.server import access, app, tls
from muster.server.app import App, Lookouts
from muster.server.listening import listening
from muster.server.node_logs import LocalNodeLogs, RemoteNodeLogs
from muster.server.node_samples import NodeSamples
from muster.settings.sections import Tls
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Store
from muster.version import VERSION

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """What there is to know once a platform answers. `password`: of `admin`, where this start has made it up; it is
    told now or never."""

    url: str
    kubeconfig: Path
    node_token: str
    nodes: Sequence[str] = ()
    password: str | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    admin: str
    node: str


@dataclass(frozen=True, slots=True)
class Core:
    """The objects, those who look after them, and the server."""

    store: Store
    clock: Clock
    place: Place
    kubeconfig: Path
    tokens: Tokens
    local_logs: LocalNodeLogs
    samples: NodeSamples
    metrics: Registry
    live: LiveSettings
    trusted: str
    queues: Visibility
    app: App
    tls: ssl.SSLContext | None


@contextlib.asynccontextmanager
async def core(settings: ServeSettings) -> AsyncIterator[Core]:
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
        store = await stack.enter_async_context(
            EmbeddedStore.on_disk(settings.data / "store.db", clock=clock, take_in=policies.take_in)
        )
        local_logs = LocalNodeLogs(await stack.enter_async_context(RemoteNodeLogs(store, tokens.node)))
        samples = await stack.enter_async_context(NodeSamples(store, tokens.node))
        metrics = Registry()
        shared = Shared(store)
        scheduler = SchedulingController(shared, clock, policies.make_engine)
        quota = QuotaController(shared, clock, policies.quota, metrics)
        queues = Visibility(quota, clock)
        lookouts = Lookouts(scheduler.decisions, queues, metrics.pieces)
        application = _application(store, clock, tokens, local_logs, lookouts)
        components = {**controllers(shared, clock, scheduler, quota), **_renewal(secure, clock)}
        await stack.enter_async_context(kept_running(components, clock))
        context = None if secure is None else secure.context
        proxies = settings.platform.security.trusted_proxies
        await stack.enter_async_context(_answering(application, place, context, proxies))
        _log.info("Muster %s answers at %s", VERSION, place.url)
        kubeconfig, trusted = settings.data / "kubeconfig", _trusted(settings.platform.security.tls)
        write_private(kubeconfig, raw.to_yaml(_kubeconfig(place.url, tokens.admin, trusted)))
        yield Core(
            store=store,
            clock=clock,
            place=place,
            kubeconfig=kubeconfig,
            tokens=tokens,
            local_logs=local_logs,
            samples=samples,
            metrics=metrics,
            live=live,
            trusted=trusted,
            queues=queues,
            app=application,
            tls=context,
        )


def _answering(
    application: App, place: Place, context: ssl.SSLContext | None, proxies: Sequence[str]
) -> contextlib.AbstractAsyncContextManager[str]:
    return listening(
        application, on_close=application.close, tls=context, sockets=place.sockets, trusted_proxies=proxies
    )


def _application(store: Store, clock: Clock, tokens: Tokens, node_logs: LocalNodeLogs, lookouts: Lookouts) -> App:
    """More is mounted on it later."""
    application = app.build(
        store=store,
        registry=REGISTRY,
        clock=clock,
        authenticator=access.TokenAuthenticator(
            {tokens.admin: access.administrator(), tokens.node: access.a_node()},
            partial(node_tokens.node_of, tokens.node),
        ),
        node_logs=node_logs,
        version=VERSION,
        lookouts=lookouts,
    )
    application.expect_more()
    return application


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
