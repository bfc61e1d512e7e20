"""The server in a thread of its own, for clients that block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.testing.servers import Address, FakeNodeLogs, serving

T = TypeVar("T")


@dataclass
class Running:
    address: Address
    store: EmbeddedStore
    logs: FakeNodeLogs
    loop: asyncio.AbstractEventLoop

    def do(self, make: Callable[[EmbeddedStore], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine over the store in the server's loop."""
        return asyncio.run_coroutine_threadsafe(make(self.store), self.loop).result(30)


@dataclass
class _Starting:
    ready: threading.Event = field(default_factory=threading.Event)
    running: Running | None = None
    error: BaseException | None = None
    stop: asyncio.Event | None = None


@contextmanager
def running_server() -> Iterator[Running]:
    starting = _Starting()

    async def serve() -> None:
        starting.stop = asyncio.Event()
        async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
            logs = FakeNodeLogs()
            async with serving(store, node_logs=logs) as address:
                starting.running = Running(address, store, logs, asyncio.get_running_loop())
                starting.ready.set()
                await starting.stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            starting.error = error
        finally:
            starting.ready.set()

    thread = threading.Thread(target=run, name="server", daemon=True)
    thread.start()
    starting.ready.wait(30)
    if starting.running is None:
        raise AssertionError("the server did not start") from starting.error
    try:
        yield starting.running
    finally:
        assert starting.stop is not None
        starting.running.loop.call_soon_threadsafe(starting.stop.set)
        thread.join(30)
    assert starting.error is None, starting.error
