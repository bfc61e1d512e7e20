"""A node alone, against a server's address."""

import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from muster.agent import certificates, cgroups, endpoint, tokens
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.node import Agent, NodeConfig
from muster.agent.sampling import Samples
from muster.api import core, errors
from muster.api.objects import Key
from muster.assembly.machines import NodeSettings, shares
from muster.assembly.private_files import make_private
from muster.runtime.clock import SystemClock
from muster.runtime.supervision import supervise
from muster.server.listening import listening
from muster.store.http import HttpStore
from muster.store.protocol import Store


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """A node of a platform elsewhere. `token`: the cluster's for nodes, or this node's own. `port` 0 takes any free one
    for its log endpoint. `tls`: which servers to believe; None for all that this system trusts."""

    server: str
    token: str
    data: Path
    node: NodeSettings = field(default_factory=NodeSettings)
    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None


async def agent(settings: AgentSettings, announce: Callable[[str], None]) -> None:
    """A node of a platform elsewhere, with an endpoint that the server reads logs from."""
    clock = SystemClock()
    make_private(settings.data)
    async with contextlib.AsyncExitStack() as stack:
        [(name, machine)] = shares(settings.node)
        own = tokens.own(settings.token, name)
        store = await stack.enter_async_context(HttpStore(settings.server, own, tls=settings.tls))
        await _ask_to_join(store, name)
        late = LateAgent()
        served = endpoint.application(late, token=tokens.for_logs(own), clock=clock)
        certificate = certificates.make(name, settings.data, clock.now())
        listener = listening(served, settings.host, settings.port, tls=certificate.context)
        url = await stack.enter_async_context(listener)
        config = NodeConfig(
            name,
            settings.data / "nodes" / name,
            machine,
            settings.node.labels,
            address=settings.host,
            port=urlsplit(url).port or 0,
            fingerprint=certificate.fingerprint,
        )
        runtime = HostProcessRuntime(clock, groups=cgroups.find())
        stack.push_async_callback(runtime.close)
        late.agent = Agent(store, runtime=runtime, clock=clock, entropy=random.SystemRandom(), config=config)
        announce(name)
        await supervise({f"agent {name}": late.agent.run}, clock=clock)


async def _ask_to_join(store: Store, name: str) -> None:
    """Raises Unauthorized where nobody there knows our token. A server that does not answer is not up yet: the agent
    goes on asking."""
    try:
        await store.get(core.NODE, Key("", name))
    except errors.Unauthorized as error:
        advice = "give the one in the file node-token of its data directory, or what `muster agent --print-token` says"
        raise errors.Unauthorized(f"the server does not take this token for node {name}: {advice}") from error
    except (errors.NotFound, errors.Unavailable, errors.Timeout):
        return


class LateAgent:
    """The endpoint must listen before the agent is made, which tells the server the port; nobody asks in between."""

    agent: Agent

    def open_logs(
        self, namespace: str, name: str, uid: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        return self.agent.open_logs(namespace, name, uid, container, options)

    def uid_of(self, namespace: str, name: str) -> str:
        return self.agent.uid_of(namespace, name)

    async def samples(self) -> Samples:
        return await self.agent.samples()
