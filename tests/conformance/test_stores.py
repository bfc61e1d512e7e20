"""One suite over every store there is."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.access import kubeconfig
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.http import HttpStore
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Store
from muster.testing.servers import serving, write_kubeconfig
from muster.testing.stores import StoreSuite


@pytest.fixture(params=["memory", "sqlite", "http", "kubernetes"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    clock = SystemClock()
    if request.param == "memory":
        async with EmbeddedStore.in_memory(clock=clock, remembered=100) as memory:
            yield memory
    elif request.param == "sqlite":
        async with EmbeddedStore.on_disk(tmp_path / "store.db", clock=clock, remembered=100) as sqlite:
            yield sqlite
    else:
        async with EmbeddedStore.in_memory(clock=clock, remembered=100) as behind, serving(behind) as address:
            write_kubeconfig(tmp_path / "config", address)
            remote = HttpStore(*address) if request.param == "http" else _kubernetes(tmp_path / "config")
            async with remote:
                yield remote


def _kubernetes(path: Path) -> KubernetesStore:
    """As if our server were any cluster's. `tests/kubernetes` asks a real one."""
    return KubernetesStore(kubeconfig.read(path))


class TestStores(StoreSuite):
    pass
