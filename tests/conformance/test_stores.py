"""One suite over every store there is."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.http import HttpStore
from muster.store.protocol import Store
from muster.testing.servers import serving
from muster.testing.stores import StoreSuite


@pytest.fixture(params=["memory", "sqlite", "http"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    clock = SystemClock()
    if request.param == "memory":
        async with EmbeddedStore.in_memory(clock=clock, remembered=100) as memory:
            yield memory
    elif request.param == "sqlite":
        async with EmbeddedStore.on_disk(tmp_path / "store.db", clock=clock, remembered=100) as sqlite:
            yield sqlite
    else:
        async with (
            EmbeddedStore.in_memory(clock=clock, remembered=100) as behind,
            serving(behind) as (url, token),
            HttpStore(url, token) as remote,
        ):
            yield remote


class TestStores(StoreSuite):
    pass
