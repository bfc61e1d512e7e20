"""The real server on a loopback port, inside the running loop, for tests that speak HTTP."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from muster.agent.logs import LogOptions
from muster.api import errors, raw
from muster.api.everything import REGISTRY
from muster.api.objects import Object
from muster.api.registry import Registry
from muster.runtime.clock import Clock, SystemClock
from muster.server import access
from muster.server.access import Identity, TokenAuthenticator
from muster.server.app import NO_LOOKOUTS, App, Lookouts, build
from muster.server.listening import listening
from muster.server.logs import NodeLogs
from muster.store.protocol import Store

TOKEN = "a-token-for-tests"  # noqa: S105


@dataclass(slots=True)
class FakeNodeLogs:
    """Logs from a mapping of (pod, container) to chunks. What it was asked for is in `asked`."""

    chunks: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    asked: list[LogOptions] = field(default_factory=list)

    async def open(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        self.asked.append(options)
        if (pod.key.name, container) not in self.chunks:
            raise errors.BadRequest(f'container "{container}" is waiting to start: it has written no log yet')
        for chunk in self.chunks[pod.key.name, container]:
            yield chunk


class Address(NamedTuple):
    url: str
    """Of the server's root. The Kubernetes API is below `/k8s`."""
    token: str


def app_for(
    store: Store,
    *,
    registry: Registry = REGISTRY,
    clock: Clock | None = None,
    node_logs: NodeLogs | None = None,
    tokens: Mapping[str, Identity] | None = None,
    lookouts: Lookouts = NO_LOOKOUTS,
) -> App:
    return build(
        store=store,
        registry=registry,
        clock=clock or SystemClock(),
        authenticator=TokenAuthenticator({TOKEN: access.administrator(), **(tokens or {})}),
        node_logs=node_logs or FakeNodeLogs(),
        version="test",
        lookouts=lookouts,
    )


@asynccontextmanager
async def serving(
    store: Store,
    *,
    registry: Registry = REGISTRY,
    clock: Clock | None = None,
    node_logs: NodeLogs | None = None,
    tokens: Mapping[str, Identity] | None = None,
) -> AsyncIterator[Address]:
    """Serves `store` while the block runs."""
    app = app_for(store, registry=registry, clock=clock, node_logs=node_logs, tokens=tokens)
    async with listening(app, on_close=app.close) as url:
        yield Address(url, TOKEN)


def write_kubeconfig(path: Path, address: Address) -> None:
    """What kubectl and the Python clients read to find the server. The token stands twice: most clients send it as
    Bearer; kubectl leaves that out over plain HTTP and sends what stands in the URL instead."""
    server = address.url.replace("://", f"://admin:{address.token}@", 1)
    path.write_text(
        raw.to_yaml(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "muster",
                "clusters": [{"name": "muster", "cluster": {"server": f"{server}/k8s"}}],
                "users": [{"name": "admin", "user": {"token": address.token}}],
                "contexts": [{"name": "muster", "context": {"cluster": "muster", "user": "admin"}}],
            }
        )
    )
    path.chmod(0o600)
