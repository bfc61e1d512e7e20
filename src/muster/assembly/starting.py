"""The ways to start a server: with this machine as its nodes, without, or over the objects of a Kubernetes cluster."""

import asyncio
import contextlib
import importlib
import random
from collections.abc import AsyncIterator, Callable, Sequence

from muster.agent import cgroups
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.node import Agent, NodeConfig
from muster.api.objects import Object
from muster.assembly import embedded
from muster.assembly.addresses import near
from muster.assembly.configured import ServeSettings
from muster.assembly.machines import NodeSettings, shares
from muster.assembly.platform import Core, Objects, OpenObjects, Started, core, kept_running
from muster.server.node_logs import Opener

Announce = Callable[[Started], None]


async def up(settings: ServeSettings, node: NodeSettings, announce: Announce) -> None:
    """Everything in one process, with this machine as one or more nodes."""
    async with core(settings, embedded.objects) as found, contextlib.AsyncExitStack() as stack:
        objects = found.objects
        runtime = HostProcessRuntime(found.clock, groups=cgroups.find())
        stack.push_async_callback(runtime.close)
        address = near(settings.platform.host)
        agents = {
            name: Agent(
                objects.store,
                runtime=runtime,
                clock=found.clock,
                entropy=random.SystemRandom(),
                config=NodeConfig(name, settings.data / "nodes" / name, machine, node.labels, address=address),
            )
            for name, machine in shares(node)
        }
        objects.logs.update({name: _opener(agent) for name, agent in agents.items()})
        objects.samples.update({name: agent.samples for name, agent in agents.items()})
        running = {f"agent {name}": agent.run for name, agent in agents.items()}
        await stack.enter_async_context(kept_running(running, found.clock))
        await _complete(found, settings, list(agents), announce)


async def serve(
    settings: ServeSettings, announce: Announce, open_objects: OpenObjects[Objects] = embedded.objects
) -> None:
    """The API, with its controllers where the objects are its own; nodes join from elsewhere."""
    async with core(settings, open_objects) as found:
        await _complete(found, settings, (), announce)


async def _complete(found: Core[Objects], settings: ServeSettings, nodes: Sequence[str], announce: Announce) -> None:
    """Mounts the rest and keeps it. It is loaded only now, beside the work: records need a large library, and objects
    and nodes need not wait for it."""
    whole = await asyncio.to_thread(importlib.import_module, "muster.assembly.whole")
    async with whole.completed(found, settings) as platform:
        announce(platform.started(nodes))
        await asyncio.Event().wait()


def _opener(agent: Agent) -> Opener:
    def open_logs(pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        return agent.open_logs(pod.key.namespace, pod.key.name, pod.uid, container, options)

    return open_logs
