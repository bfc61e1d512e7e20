"""Task logs: lines taken in durably over HTTP, read, searched, and followed by a thousand.

Senders and followers are processes of their own (`python -m bench.logs ROLE …`), so that theirs is not counted as ours.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import psutil
import uvloop

from bench.figures import Figure, Progress
from muster.accounts.callers import Caller
from muster.runtime.clock import SystemClock
from muster.server.determined import logs as routes
from muster.server.determined.router import Router
from muster.server.listening import listening
from muster.store.embedded import EmbeddedStore
from muster.tasks.log_filters import Filter
from muster.tasks.log_retention import Retention
from muster.tasks.logs import Query
from muster.testing.accounts import ADMIN
from muster.testing.servers import app_for
from muster.testing.task_logs import Logged, logged

_ASKED_LINES = 20_000
_SENDERS = 16
_REQUESTS = 20
_BATCH = 1000
_FOLLOWERS = 1000
_RATE = 50  # lines a second to each follower
_SECONDS = 6
_TEXT = "step {} of 100000: loss {:.5f}, accuracy {:.4f}, 0.213 s a batch, 301 samples a second\n"


def run(progress: Progress) -> list[Figure]:
    figures = []
    for what, measure in (
        (f"{_SENDERS} senders, {_SENDERS * _REQUESTS * _BATCH} lines", _sent),
        ("many small senders", _sent_small),
        (f"{_FOLLOWERS} followers", _followed),
    ):
        progress(what)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as `muster up` does
            figures += runner.run(measure())
    return figures


@asynccontextmanager
async def _serving() -> AsyncIterator[tuple[Logged, str]]:
    async def authenticate(_headers: Mapping[str, str]) -> Caller | None:
        return ADMIN.caller

    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        async with logged(Path(folder)) as at, EmbeddedStore.in_memory(clock=clock) as store:
            authorizer = at.ground.services.authorizer
            made = routes.routes(at.logs, Retention(at.database, clock), authorizer, clock)
            app = app_for(store)
            app.mount(Router(made, authenticate, authorizer))
            async with listening(app, on_close=app.close) as url:
                yield at, url


async def _sent() -> list[Figure]:
    async with _serving() as (at, url):
        for number in range(_SENDERS):
            await at.task(f"task-{number}")
        seconds = await _send(url, _SENDERS, _REQUESTS, _BATCH)
        lines = _SENDERS * _REQUESTS * _BATCH
        size = await at.database.read(
            lambda c: c.exec_driver_sql("SELECT sum(length(body)) FROM task_log_chunks").scalar() or 0
        )
        started = time.perf_counter()
        found = 0
        async for sent in at.logs.read(Query("task-0"), routes.encode):
            found += sent.count(b"\n")
        read = found / (time.perf_counter() - started)
        started = time.perf_counter()
        async for _ in at.logs.read(
            Query("task-1", Filter(text=r"loss 0\.99[0-9]+, never", is_regex=True)), routes.encode
        ):
            pass
        searched = _REQUESTS * _BATCH / (time.perf_counter() - started)
    return [
        Figure(
            "lines_taken_in", lines / seconds, "lines/s", _ASKED_LINES,
            note=f"{_SENDERS} senders over HTTP, {_BATCH} lines a request, each on disk before it is acknowledged; "
            "senders on the same two cores",
        ),
        Figure("bytes_kept", size / lines, "bytes/line", note=f"of lines of {len(_TEXT)} characters and their fields"),
        Figure("lines_read", read, "lines/s", note="encoded for the client"),
        Figure("lines_searched", searched, "lines/s", note="with a regular expression that matches none"),
    ]  # fmt: skip


async def _sent_small() -> list[Figure]:
    """As many tasks as run on a large cluster, each with a line now and then."""
    async with _serving() as (at, url):
        for number in range(200):
            await at.task(f"task-{number}")
        seconds = await _send(url, 200, 20, 1)
    return [Figure("requests_taken_in", 4000 / seconds, "requests/s", note="200 senders, one line a request")]


async def _followed() -> list[Figure]:
    expected = _RATE * _SECONDS
    async with _serving() as (at, url):
        await at.task("task")
        before = psutil.Process().memory_info().rss
        crowd = await _process("follow", url, str(_FOLLOWERS), str(expected))
        assert crowd.stdout is not None
        await crowd.stdout.readline()  # all are connected
        used = time.process_time()
        started = time.perf_counter()
        async with aiohttp.ClientSession() as client:
            for number in range(expected // 10):
                ahead = number * 10 / _RATE - (time.perf_counter() - started)
                if ahead > 0:
                    await asyncio.sleep(ahead)
                await _post(client, url, _lines("task", number * 10, 10))
            written = time.perf_counter()
            await crowd.stdout.readline()  # the last has seen the last line
            lag = time.perf_counter() - written
            used = (time.process_time() - used) / (time.perf_counter() - started)
            grown = psutil.Process().memory_info().rss - before
        await at.end("task")
        await crowd.wait()
    return [
        Figure("followers", _FOLLOWERS, "followers", 1000, note=f"{_RATE} lines/s to each, {crowd.returncode} failed"),
        Figure("follow_lag", lag * 1000, "ms", 1000, at_most=True, note="the last follower behind the last line"),
        Figure("follow_cpu", used * 100, "%", note="of one core, by the server"),
        Figure("follow_memory", grown / 2**20, "MiB", note="more than before, for all followers"),
    ]


async def _send(url: str, senders: int, requests: int, batch: int) -> float:
    process = await _process("send", url, str(senders), str(requests), str(batch))
    assert process.stdout is not None
    return float(await process.stdout.readline())


async def _process(*arguments: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "bench.logs", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


# What the others do


def _lines(task: str, start: int, count: int) -> bytes:
    lines = [
        {
            "timestamp": f"{datetime.fromtimestamp(1_800_000_000 + number, UTC).isoformat()}",
            "task_id": task, "allocation_id": f"{task}.1", "container_id": "3f1c0b52-7c1e", "agent_id": "node-1",
            "source": "task", "stdtype": "stdout", "level": "LOG_LEVEL_INFO", "rank_id": 0,
            "log": _TEXT.format(number, 1 / (1 + number), number % 977 / 977),
        }
        for number in range(start, start + count)
    ]  # fmt: skip
    return json.dumps({"logs": lines}).encode()


async def _post(client: aiohttp.ClientSession, url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    async with client.post(f"{url}/api/v1/task/logs", data=body, headers=headers) as reply:
        assert reply.status == 200, await reply.text()


async def _send_all(url: str, senders: int, requests: int, batch: int) -> None:
    bodies = [[_lines(f"task-{s}", r * batch, batch) for r in range(requests)] for s in range(senders)]

    async def send(mine: list[bytes]) -> None:
        for body in mine:
            await _post(client, url, body)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for mine in bodies:
                tasks.create_task(send(mine))
        print(time.perf_counter() - started, flush=True)


async def _follow_all(url: str, followers: int, expected: int) -> None:
    parts = urlsplit(url)
    connected, seen = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def follow() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20)
        writer.write(b"GET /api/v1/tasks/task/logs?follow=true HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        connected.release()
        lines, is_told = 0, False
        while chunk := await reader.read(1 << 16):
            lines += chunk.count(b'{"result"')
            if lines == expected and not is_told:
                is_told = True
                seen.release()
        assert lines == expected, f"{lines} of {expected} lines"
        writer.close()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(followers):
            tasks.create_task(follow())
        for _ in range(followers):
            await connected.acquire()
        print("connected", flush=True)
        for _ in range(followers):
            await seen.acquire()
        print("seen", flush=True)


if __name__ == "__main__":
    role, where, *numbers = sys.argv[1:]
    if role == "send":
        uvloop.run(_send_all(where, int(numbers[0]), int(numbers[1]), int(numbers[2])))
    else:
        uvloop.run(_follow_all(where, int(numbers[0]), int(numbers[1])))
