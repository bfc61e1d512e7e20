"""The ways to start: everything, a server, a node."""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

from muster.agent import cgroups, devices, endpoint
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.node import Agent, NodeConfig
from muster.api.objects import Object
from muster.assembly.configured import AgentSettings, NodeSettings, ServeSettings
from muster.assembly.platform import Started, without_nodes
from muster.assembly.private_files import make_private
from muster.runtime.clock import SystemClock
from muster.runtime.supervision import supervise
from muster.server.listening import listening
from muster.server.node_logs import Opener
from muster.store.http import HttpStore

Announce = Callable[[Started], None]


async def up(settings: ServeSettings, node: NodeSettings, announce: Announce) -> None:
    """Everything in one process, with this machine as one or more nodes."""
    async with without_nodes(settings) as platform, contextlib.AsyncExitStack() as stack:
        runtime = HostProcessRuntime(platform.clock, groups=cgroups.find())
        stack.push_async_callback(runtime.close)
        address = _own_address(settings.platform.host)
        agents = {
            name: Agent(
                platform.store,
                runtime=runtime,
                clock=platform.clock,
                entropy=random.SystemRandom(),
                config=NodeConfig(name, settings.data / "nodes" / name, machine, node.labels, address=address),
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
    make_private(settings.data)
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(HttpStore(settings.server, settings.token, tls=settings.tls))
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


def _own_address(host: str) -> str:
    """Of nodes that share the server's machine, where it listens on all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
