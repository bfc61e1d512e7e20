"""The composition root: the one module that names concrete classes and puts a platform together.

`up` is everything in one process; `serve` is the same without a node; `agent` is a node alone, against a
server's address. Each runs until it is cancelled, and leaves the pods that it started running.
"""

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from muster.agent import cgroups, devices, endpoint
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.node import Agent, NodeConfig
from muster.api import errors, managing, raw
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.managing import Find, TakeIn
from muster.api.objects import Object
from muster.api.volcano import resource_groups, taking_in
from muster.controllers.allocations import AllocationController
from muster.controllers.configured import SchedulerConfiguration, read_quota
from muster.controllers.events import EventCleaner
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.batch import BatchJobController
from muster.controllers.jobs.cron import CronJobController
from muster.controllers.jobs.flow import JobFlowController
from muster.controllers.jobs.metrics import JobMetrics
from muster.controllers.jobs.pytorch import PyTorchJobController
from muster.controllers.jobs.queues import QueueController
from muster.controllers.jobs.volcano import VolcanoJobController
from muster.controllers.namespaces import NamespaceController
from muster.controllers.nodes import NodeController
from muster.controllers.podgroups import PodGroupController
from muster.controllers.quota import QuotaController
from muster.controllers.quota.default_queue import DefaultQueueController
from muster.controllers.quota.failures import FailuresController
from muster.controllers.quota.jobs import JobsController
from muster.controllers.quota.lifecycle import LifecycleController
from muster.controllers.quota.pods import PodsController
from muster.controllers.quota.priorities import PriorityController
from muster.controllers.quota.protection import ProtectionController
from muster.controllers.quota.retention import RetentionController
from muster.controllers.quota.statuses import StatusController
from muster.controllers.quota.ungating import UngatingController
from muster.controllers.quota.visibility import Visibility
from muster.controllers.quota.volcano_queues import VolcanoQuotaController
from muster.controllers.scheduling import MakeEngine, SchedulingController
from muster.controllers.taints import TaintEvictionController
from muster.placement.engine import default_engine
from muster.quota.settings import Settings
from muster.runtime.clock import Clock, SystemClock
from muster.runtime.metrics import Registry
from muster.runtime.supervision import supervise
from muster.server import access, app
from muster.server.app import Lookouts
from muster.server.listening import listening
from muster.server.node_logs import LocalNodeLogs, Opener, RemoteNodeLogs
from muster.store.embedded import EmbeddedStore
from muster.store.http import HttpStore
from muster.store.protocol import Store
from muster.version import VERSION

_log = logging.getLogger(__name__)
DEFAULT_PORT = 7077


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """An API server with its controllers. `port` 0 takes any free one."""

    data: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    scheduler_config: Path | None = None
    """A KubeSchedulerConfiguration."""
    quota_config: Path | None = None
    """Kueue's Configuration."""
    admission_config: Path | None = None
    """The configuration of Volcano's admission: resource groups."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What one machine gives. `nodes` shares it out among so many nodes."""

    nodes: int = 1
    fake_gpus: int = 0
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """A node of a platform elsewhere. `port` 0 takes any free one for its log endpoint."""

    server: str
    token: str
    data: Path
    node: NodeSettings = NodeSettings()
    host: str = "127.0.0.1"
    port: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """What there is to know once a platform answers."""

    url: str
    kubeconfig: Path
    node_token: str
    nodes: Sequence[str] = ()


Announce = Callable[[Started], None]


async def up(settings: ServeSettings, node: NodeSettings, announce: Announce) -> None:
    """Everything in one process, with this machine as one or more nodes."""
    async with without_nodes(settings) as platform, contextlib.AsyncExitStack() as stack:
        runtime = HostProcessRuntime(platform.clock, groups=cgroups.find())
        stack.push_async_callback(runtime.close)
        agents = {
            name: Agent(
                platform.store,
                runtime=runtime,
                clock=platform.clock,
                entropy=random.SystemRandom(),
                config=NodeConfig(
                    name, settings.data / "nodes" / name, machine, node.labels, address=_reachable(settings.host)
                ),
            )
            for name, machine in _shares(node)
        }
        platform.local_logs.update({name: _opener(agent) for name, agent in agents.items()})
        announce(platform.started(list(agents)))
        await supervise({f"agent {name}": agent.run for name, agent in agents.items()}, clock=platform.clock)


async def serve(settings: ServeSettings, announce: Announce) -> None:
    """The API and the controllers; nodes join from elsewhere."""
    async with without_nodes(settings) as platform:
        announce(platform.started(()))
        await asyncio.Event().wait()


async def agent(settings: AgentSettings, announce: Callable[[str], None]) -> None:
    """A node of a platform elsewhere, with an endpoint that the server reads logs from."""
    clock = SystemClock()
    _make_private(settings.data)
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(HttpStore(settings.server, settings.token))
        logs = _Late()
        served = endpoint.application(logs, token=settings.token, clock=clock)
        url = await stack.enter_async_context(listening(served, settings.host, settings.port))
        [(name, machine)] = _shares(settings.node)
        config = NodeConfig(
            name,
            settings.data / "nodes" / name,
            machine,
            settings.node.labels,
            address=settings.host,
            port=urlsplit(url).port or 0,
        )
        runtime = HostProcessRuntime(clock, groups=cgroups.find())
        stack.push_async_callback(runtime.close)
        logs.agent = Agent(store, runtime=runtime, clock=clock, entropy=random.SystemRandom(), config=config)
        announce(name)
        await supervise({f"agent {name}": logs.agent.run}, clock=clock)


class _Late:
    """The endpoint must listen before the agent is made, which tells the server the port; nobody asks in between."""

    agent: Agent

    def open_logs(
        self, namespace: str, name: str, uid: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        return self.agent.open_logs(namespace, name, uid, container, options)


@dataclass(frozen=True, slots=True)
class Platform:
    """What runs, for those who add nodes of their own to it."""

    store: Store
    clock: Clock
    url: str
    kubeconfig: Path
    node_token: str
    local_logs: LocalNodeLogs

    def started(self, nodes: Sequence[str]) -> Started:
        return Started(self.url, self.kubeconfig, self.node_token, nodes)


@contextlib.asynccontextmanager
async def without_nodes(settings: ServeSettings) -> AsyncIterator[Platform]:
    """Store, controllers and server, up while the context lasts."""
    clock = SystemClock()
    make_engine, quota_settings = _make_engine(settings.scheduler_config), _quota_settings(settings.quota_config)
    take_in = _take_in(settings.admission_config, quota_settings)
    _make_private(settings.data)
    admin_token, node_token = _token(settings.data / "token"), _token(settings.data / "node-token")
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            EmbeddedStore.on_disk(settings.data / "store.db", clock=clock, take_in=take_in)
        )
        local_logs = LocalNodeLogs(await stack.enter_async_context(RemoteNodeLogs(store, node_token)))
        scheduler = SchedulingController(store, clock, make_engine)
        metrics = Registry()
        quota = QuotaController(store, clock, quota_settings, metrics)
        application = app.build(
            store=store,
            registry=REGISTRY,
            clock=clock,
            authenticator=access.TokenAuthenticator({admin_token: access.administrator(), node_token: access.a_node()}),
            node_logs=local_logs,
            version=VERSION,
            lookouts=Lookouts(scheduler.decisions, Visibility(quota, clock), metrics.pieces),
        )
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        controllers = _controllers(store, clock, scheduler, quota)
        running = tasks.create_task(supervise(controllers, clock=clock), name="controllers")
        stack.callback(running.cancel)
        url = await stack.enter_async_context(
            listening(application, settings.host, settings.port, on_close=application.close)
        )
        url = url.replace(f"//{settings.host}:", f"//{_reachable(settings.host)}:", 1)
        kubeconfig = settings.data / "kubeconfig"
        _write_private(kubeconfig, raw.to_yaml(_kubeconfig(url, admin_token)))
        yield Platform(store, clock, url, kubeconfig, node_token, local_logs)


def _make_engine(path: Path | None) -> MakeEngine:
    """Raises what is wrong with the configuration, before anything has started."""
    if path is None:
        return default_engine
    configuration = SchedulerConfiguration.read(path)
    for warning in configuration.warnings:
        _log.warning("%s: %s", path, warning)
    return configuration.make_engine


def _quota_settings(path: Path | None) -> Settings:
    """As `_make_engine`."""
    if path is None:
        return Settings()
    configuration = read_quota(path)
    for warning in configuration.warnings:
        _log.warning("%s: %s", path, warning)
    return configuration.settings


def _take_in(path: Path | None, quota: Settings) -> TakeIn:
    """What is filled in for new objects, whoever makes them. Raises as `_make_engine` does."""
    documents = raw.decode_yaml(_read(path)) if path is not None else []
    groups = resource_groups.read(documents[0]) if documents else ()

    def take_in(kind: Kind, document: raw.Document, find: Find) -> None:
        taking_in.take_in(kind, document, find, groups)
        managing.take_in(kind, document, find, quota.managed_namespaces)

    return take_in


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise errors.BadRequest(f"cannot read {path}: {error.strerror}") from error


def _controllers(
    store: Store, clock: Clock, scheduler: SchedulingController, quota: QuotaController
) -> Mapping[str, Callable[[], Awaitable[None]]]:
    settings = quota.engine.settings
    chosen = {"retention": RetentionController(store, clock, settings).run} if settings.retention.is_limited else {}
    return chosen | {
        "scheduler": scheduler.run,
        "pod groups": PodGroupController(store, clock).run,
        "allocations": AllocationController(store, clock).run,
        "batch jobs": BatchJobController(store, clock).run,
        "volcano jobs": VolcanoJobController(store, clock).run,
        "pytorch jobs": PyTorchJobController(store, clock).run,
        "volcano queues": QueueController(store, clock).run,
        "volcano quota": VolcanoQuotaController(store, clock).run,
        "cron jobs": CronJobController(store, clock).run,
        "job flows": JobFlowController(store, clock).run,
        "quota": quota.run,
        "workloads": LifecycleController(store, clock, settings).run,
        "queue statuses": StatusController(store, clock, quota).run,
        "protection": ProtectionController(store, clock).run,
        "workload priorities": PriorityController(store, clock).run,
        "jobs in queues": JobsController(store, clock, settings=settings, metrics=quota.counted).run,
        "pods in queues": PodsController(store, clock, settings, quota.counted).run,
        "ungating": UngatingController(store, clock, quota.counted).run,
        "failed nodes": FailuresController(store, clock, settings).run,
        "job metrics": JobMetrics(store, clock, quota.metrics, lambda: quota.engine).run,
        "default queue": DefaultQueueController(store, clock).run,
        "nodes": NodeController(store, clock).run,
        "taints": TaintEvictionController(store, clock).run,
        "garbage": GarbageCollector(store, clock).run,
        "namespaces": NamespaceController(store, clock).run,
        "events": EventCleaner(store, clock).run,
    }


def _opener(agent: Agent) -> Opener:
    def open_logs(pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        return agent.open_logs(pod.key.namespace, pod.key.name, pod.uid, container, options)

    return open_logs


def _shares(node: NodeSettings) -> list[tuple[str, devices.Machine]]:
    """The nodes that this machine is, by name, and what each offers."""
    machine = devices.discover(node.fake_gpus * node.nodes or None, os.environ.get("CUDA_VISIBLE_DEVICES"))
    name = node.name or socket.gethostname().lower().partition(".")[0]
    if node.nodes == 1:
        return [(name, machine)]
    return [(f"{name}-{index}", devices.share(machine, index, node.nodes)) for index in range(node.nodes)]


def _reachable(host: str) -> str:
    """An address that clients on this machine can use where the server listens on all of them."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _kubeconfig(url: str, token: str) -> raw.Document:
    """The token stands twice: kubectl sends none over plain HTTP, but it does send what stands in the URL."""
    server = url.replace("://", f"://admin:{token}@", 1)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "muster",
        "clusters": [{"name": "muster", "cluster": {"server": f"{server}/k8s"}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "muster", "context": {"cluster": "muster", "user": "admin", "namespace": "default"}}],
    }


def _token(path: Path) -> str:
    """The secret in the file, made on first use."""
    with contextlib.suppress(FileNotFoundError):
        found = path.read_text().strip()
        if found:
            return found
    made = secrets.token_urlsafe(32)
    _write_private(path, made + "\n")
    return made


def _make_private(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)  # tokens, and the secrets of everybody's jobs


def _write_private(path: Path, text: str) -> None:
    """Replaces the file in one step, never readable by others in between."""
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)
