"""The ways to start a server: with this machine as its nodes, or without."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable

from muster.agent import cgroups
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.node import Agent, NodeConfig
from muster.api.objects import Object
from muster.assembly.configured import ServeSettings
from muster.assembly.machines import NodeSettings, shares
from muster.assembly.platform import Started, without_nodes
from muster.runtime.supervision import supervise
from muster.server.node_logs import Opener

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
            for name, machine in shares(node)
        }
        platform.local_logs.update({name: _opener(agent) for name, agent in agents.items()})
        announce(platform.started(list(agents)))
        await supervise({f"agent {name}": agent.run for name, agent in agents.items()}, clock=platform.clock)


async def serve(settings: ServeSettings, announce: Announce) -> None:
    """The API and the controllers; nodes join from elsewhere."""
    async with without_nodes(settings) as platform:
        announce(platform.started(()))
        await asyncio.Event().wait()


def _opener(agent: Agent) -> Opener:
    def open_logs(pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        return agent.open_logs(pod.key.namespace, pod.key.name, pod.uid, container, options)

    return open_logs


def _own_address(host: str) -> str:
    """Of nodes that share the server's machine, where it listens on all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
