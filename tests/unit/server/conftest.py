from collections.abc import AsyncIterator

import pytest

from muster.runtime.clock import SystemClock
from muster.server import access
from muster.store.embedded import EmbeddedStore
from muster.testing.asgi import AsgiClient
from muster.testing.servers import TOKEN, FakeNodeLogs, app_for

NODE_TOKEN = "token-of-node-a"


@pytest.fixture
async def store() -> AsyncIterator[EmbeddedStore]:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as opened:
        yield opened


@pytest.fixture
def node_logs() -> FakeNodeLogs:
    return FakeNodeLogs()


@pytest.fixture
def app(store, node_logs):
    return app_for(store, node_logs=node_logs, tokens={NODE_TOKEN: access.a_node("node-a")})


@pytest.fixture
def client(app) -> AsgiClient:
    """As the administrator."""
    return AsgiClient(app, TOKEN)


@pytest.fixture
def node_client(app) -> AsgiClient:
    """As the agent of node-a."""
    return AsgiClient(app, NODE_TOKEN)


def a_pod(name: str = "p", **spec) -> dict:
    container = {"name": "main", "image": "host", "command": ["true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


@pytest.fixture
def make_pod():
    return a_pod
