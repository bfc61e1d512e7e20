"""Pods that do not ship their lines: what they said is fetched from their agents, once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.agent.logs import LogOptions
from muster.api import core, timestamps
from muster.api.muster.names import ALLOCATION_LABEL, RANK_LABEL, TASK_LABEL
from muster.api.objects import Object
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Patch
from muster.tasks.log_collecting import COLLECTED, LogCollector
from muster.tasks.log_filters import Filter
from muster.tasks.log_lines import Origin
from muster.tasks.logs import Query
from muster.testing.builders import PodBuilder, a_pod
from muster.testing.servers import FakeNodeLogs
from muster.testing.task_logs import Logged, logged


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Logged]:
    async with logged(tmp_path) as found:
        await found.task()
        yield found


def _pod(name: str) -> PodBuilder:
    return (
        a_pod(name).on_node("node-1").label(TASK_LABEL, "task").label(ALLOCATION_LABEL, "task.1").label(RANK_LABEL, "3")
    )


async def _until(at: Logged, texts: list[str]) -> None:
    async with asyncio.timeout(10):
        while await at.texts(Query("task")) != texts:
            await asyncio.sleep(0.02)


async def test_the_last_words_of_a_pod_that_shipped_nothing(at: Logged) -> None:
    chunk = [b"2026-01-02T03:04:05.123456789Z sh: 1: python3: not found\n2026-01-02T03:04:06.1Z second\n"]
    node_logs = FakeNodeLogs({("silent", "main"): chunk, ("spoke", "main"): chunk, ("runs", "main"): chunk})
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store, asyncio.TaskGroup() as group:
        await at.write("task", "shipped", origin=Origin("task.1", "spoke"))
        for name, phase in (("silent", "Failed"), ("spoke", "Failed"), ("runs", "Running"), ("never", "Failed")):
            await store.write([Create(core.POD, _pod(name).document())])
            await store.write([Patch(core.POD, _pod(name).key, {"status": {"phase": phase}}, subresource="status")])
        collector = LogCollector(store, SystemClock(), at.database, at.logs, node_logs)
        running = group.create_task(collector.run())
        await _until(at, ["shipped", "sh: 1: python3: not found\n", "second\n"])
        chosen = Filter(
            allocations=frozenset({"task.1"}), containers=frozenset({"silent"}), agents=frozenset({"node-1"}),
            sources=frozenset({"agent"}), ranks=frozenset({3}),
        )  # fmt: skip
        assert len(await at.texts(Query("task", chosen))) == 2
        await store.write([Patch(core.POD, _pod("silent").key, {"metadata": {"annotations": {"x": "y"}}})])
        await asyncio.sleep(0.1)
        assert len(await at.texts(Query("task"))) == 3
        running.cancel()


async def test_a_pod_that_is_marked_is_looked_at_while_it_runs(at: Logged) -> None:
    said = [b"2026-01-02T03:04:05Z first\n"]
    node_logs = FakeNodeLogs({("marked", "main"): said})
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store, asyncio.TaskGroup() as group:
        await store.write([Create(core.POD, _pod("marked").annotation(COLLECTED, "true").document())])
        collector = LogCollector(store, SystemClock(), at.database, at.logs, node_logs)
        running = group.create_task(collector.run())
        await _until(at, ["first\n"])
        said.append(b"2026-01-02T03:04:06Z later\n")
        await _until(at, ["first\n", "later\n"])
        assert node_logs.asked[-1].since is not None
        running.cancel()


async def test_each_container_is_followed_by_itself_also_over_a_restart(at: Logged) -> None:
    quick, slow = [b"2026-01-02T03:04:09Z quick\n"], [b"2026-01-02T03:04:05Z slow\n"]
    node_logs = FakeNodeLogs({("two", "main"): quick, ("two", "side"): slow})
    document = _pod("two").annotation(COLLECTED, "true").document()
    document["spec"]["containers"] = [{"name": "main", "image": "host"}, {"name": "side", "image": "host"}]
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        await store.write([Create(core.POD, document)])
        for said, texts in ((b"", ["quick\n", "slow\n"]), (b"late", ["quick\n", "slow\n", "late\n"])):
            if said:
                slow.append(b"2026-01-02T03:04:06Z " + said + b"\n")
            async with asyncio.TaskGroup() as group:
                running = group.create_task(LogCollector(store, SystemClock(), at.database, at.logs, node_logs).run())
                await _until(at, texts)
                running.cancel()


async def test_much_is_fetched_in_parts_of_whole_lines(at: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.tasks.log_collecting._MOST_BYTES", 60)
    monkeypatch.setattr("muster.tasks.log_collecting._AGAIN_SECONDS", 0.01)
    lines = [b"2026-01-02T03:04:%02dZ line %d\n" % (number, number) for number in range(10)]

    class Limited(FakeNodeLogs):
        async def open(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
            since = "" if options.since is None else timestamps.to_text(options.since)
            assert options.limit_bytes is not None
            yield b"".join(line for line in lines if line.decode() >= since)[: options.limit_bytes]

    async with EmbeddedStore.in_memory(clock=SystemClock()) as store, asyncio.TaskGroup() as group:
        await store.write([Create(core.POD, _pod("loud").annotation(COLLECTED, "true").document())])
        running = group.create_task(LogCollector(store, SystemClock(), at.database, at.logs, Limited()).run())
        await _until(at, [f"line {number}\n" for number in range(10)])
        running.cancel()
