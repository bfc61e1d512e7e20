"""The store alone: durable writes, watchers, a large list."""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import uvloop

from bench.figures import Figure, Progress
from muster.api import core
from muster.api.objects import Key
from muster.api.raw import Document
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Event, Patch, Selection, Written
from muster.testing.builders import a_pod
from muster.testing.servers import serving

_WRITERS = 32
_WRITES = 16_000
_WATCHERS = 1_000
_ASKED_EVENTS = 1_000
_EVENTS_PER_SECOND = 1_100  # above what is asked: a pace can be kept or missed, never beaten
_WATCH_SECONDS = 5
_PODS = 10_000


def run(progress: Progress) -> list[Figure]:
    figures = []
    for what, measure in (
        (f"{_WRITES} durable writes from {_WRITERS} writers", _writes),
        (f"{_WATCHERS} watchers at {_EVENTS_PER_SECOND} events/s", _watchers),
        (f"{_WATCHERS} watchers at {_EVENTS_PER_SECOND} events/s over HTTP", _served_watchers),
        (f"list of {_PODS} pods", _list),
    ):
        progress(what)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as `muster up` does
            figures += runner.run(measure())
    return figures


async def _writes() -> list[Figure]:
    async def write_some(store: EmbeddedStore, writer: int) -> None:
        for number in range(_WRITES // _WRITERS):
            document = {"metadata": {"name": f"w{writer}-{number}", "namespace": "default"}, "data": {"k": "v"}}
            (result,) = await store.write([Create(core.CONFIG_MAP, document)])
            assert isinstance(result, Written)

    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedStore.on_disk(Path(folder) / "store.db", clock=SystemClock()) as store:
            started = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                for writer in range(_WRITERS):
                    tasks.create_task(write_some(store, writer))
            seconds = time.perf_counter() - started
    note = "SQLite, one fsync a commit, each writer waits for its acknowledgement"
    return [Figure("durable_writes", _WRITES / seconds, "writes/s", 5_000, note=note)]


async def _watchers() -> list[Figure]:
    """Events are written at the asked rate; what counts is when the last watcher has seen the last one."""
    expected = _EVENTS_PER_SECOND * _WATCH_SECONDS
    delays: list[float] = []

    async def follow(watch: AsyncIterator[Sequence[Event]]) -> None:
        seen = 0
        async for batch in watch:
            seen += len(batch)
            if seen >= expected:
                delays.append(time.perf_counter())
                return

    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        name = Key("default", "ticker")
        await store.write([Create(core.CONFIG_MAP, {"metadata": {"name": "ticker", "namespace": "default"}})])
        selection = Selection(core.CONFIG_MAP)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_WATCHERS):
                tasks.create_task(follow(store.watch(selection)))
            started = time.perf_counter()
            for number in range(expected):
                await store.write([Patch(core.CONFIG_MAP, name, {"data": {"n": str(number)}})])
                ahead = number / _EVENTS_PER_SECOND - (time.perf_counter() - started)
                if ahead > 0:
                    await asyncio.sleep(ahead)
            written = time.perf_counter()
    rate = expected / (max(delays) - started)
    lag = (max(delays) - written) * 1000
    return [
        Figure(
            "watched_events",
            rate,
            "events/s",
            _ASKED_EVENTS,
            note=f"to each of {_WATCHERS} watchers, paced",
        ),
        Figure("watch_lag", lag, "ms", note="last watcher behind the last write"),
    ]


async def _served_watchers() -> list[Figure]:
    """The same over HTTP: the watchers are another process, so that theirs is not counted as ours."""
    expected = _EVENTS_PER_SECOND * _WATCH_SECONDS
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store, serving(store) as (url, token):
        await store.write([Create(core.CONFIG_MAP, {"metadata": {"name": "ticker", "namespace": "default"}})])
        command = (sys.executable, "-m", "bench.watching", url, token, str(_WATCHERS), str(expected))
        crowd = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert crowd.stdout is not None
        await crowd.stdout.readline()  # all are connected
        started = time.perf_counter()
        for number in range(expected):
            await store.write([Patch(core.CONFIG_MAP, Key("default", "ticker"), {"data": {"n": str(number)}})])
            ahead = number / _EVENTS_PER_SECOND - (time.perf_counter() - started)
            if ahead > 0:
                await asyncio.sleep(ahead)
        await crowd.stdout.readline()  # the last has seen the last event
        seconds = time.perf_counter() - started
        await crowd.wait()
    note = f"to each of {_WATCHERS} connections, watchers and server on the same two cores"
    return [Figure("watched_events_http", expected / seconds, "events/s", _ASKED_EVENTS, note=note)]


def _pod(number: int) -> Document:
    return a_pod(f"p{number:05}").cpu("1").memory("1Gi").gpus(1).document()


async def _list() -> list[Figure]:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        await store.write([Create(core.POD, _pod(number)) for number in range(_PODS)])
        async with serving(store) as (url, token), aiohttp.ClientSession() as client:
            best = float("inf")
            for _ in range(3):
                started = time.perf_counter()
                headers = {"Authorization": f"Bearer {token}"}
                async with client.get(f"{url}/k8s/api/v1/pods", headers=headers) as response:
                    body = await response.read()
                assert response.status == 200, body[:200]
                best = min(best, time.perf_counter() - started)
    note = f"over HTTP, {len(body) / 1e6:.0f} MB of JSON, client included"
    return [Figure("list_10000_pods", best * 1000, "ms", 300, at_most=True, note=note)]
