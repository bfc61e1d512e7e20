import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from muster.api import core, errors
from muster.api.objects import Key, Object
from muster.runtime.clock import VirtualClock
from muster.runtime.recording import AT_ONCE, MOST_PENDING, MOST_PER_SECOND, TICK_SECONDS, EventRecorder
from muster.store.embedded import EmbeddedStore
from muster.store.journal import NoJournal, Row
from muster.store.protocol import Create, Delete, Result, Selection, Store, Write, write_one
from muster.testing.builders import a_node, a_pod
from muster.testing.virtual import on_virtual_time


@dataclass
class Counting:
    inner: EmbeddedStore
    batches: int = 0
    is_away: bool = False

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        self.batches += 1
        if self.is_away:
            raise errors.Unavailable("away")
        return await self.inner.write(writes)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


async def events(store: Store) -> list[core.Event]:
    return [found.read(core.Event) for found in (await store.list(Selection(core.EVENT))).items]


async def a_stored_pod(store: Store, name: str = "p") -> Object:
    return await write_one(store, Create(core.POD, a_pod(name).document()))


@on_virtual_time
async def test_what_is_said_again_is_counted_not_repeated(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as group:
        pod = await a_stored_pod(store)
        recorder = EventRecorder(store, clock, "scheduler")
        task = group.create_task(recorder.run(), name="recorder")
        for _ in range(3):
            recorder.record(pod, "Warning", "FailedScheduling", "no room")
            recorder.record(pod, "Warning", "FailedScheduling", "no room")
            await clock.sleep(10)
        recorder.record(pod, "Normal", "Scheduled", "on n1")
        await clock.sleep(1)
        found = {event.reason: event for event in await events(store)}
        failed = found["FailedScheduling"]
        assert (failed.count, failed.type, failed.message) == (6, "Warning", "no room")
        assert failed.first_timestamp == "2023-11-14T22:13:20Z"
        assert failed.last_timestamp == "2023-11-14T22:13:40Z"
        assert (failed.involved_object.kind, failed.involved_object.name) == ("Pod", "p")
        assert failed.involved_object.uid == pod.uid
        assert failed.source.component == "scheduler"
        assert found["Scheduled"].count == 1
        task.cancel()


@on_virtual_time
async def test_what_is_recorded_together_is_written_together(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        store = Counting(inner)
        pods = [await a_stored_pod(inner, f"p{number}") for number in range(50)]
        recorder = EventRecorder(store, clock, "scheduler")  # type: ignore[arg-type]
        for pod in pods:
            recorder.record(pod, "Normal", "Scheduled", "here")
        await recorder.flush()
        assert store.batches == 1
        assert len(await events(inner)) == 50


class CountingJournal(NoJournal):
    def __init__(self) -> None:
        self.commits = 0

    def commit(self, rows: Sequence[Row], revision: int) -> None:
        self.commits += 1


@on_virtual_time
async def test_what_components_tell_at_about_the_same_time_is_one_commit(clock: VirtualClock) -> None:
    journal = CountingJournal()
    async with EmbeddedStore(journal, clock=clock) as store, asyncio.TaskGroup() as group:
        pod = await a_stored_pod(store)
        recorders = [EventRecorder(store, clock, name) for name in ("scheduler", "quota", "jobs")]
        tasks = [group.create_task(recorder.run(), name="recorder") for recorder in recorders]
        await clock.sleep(10.01)
        before = journal.commits
        for recorder in recorders:
            recorder.record(pod, "Normal", "Told", "something")
            await clock.sleep(TICK_SECONDS / 10)
        assert journal.commits == before
        await clock.sleep(TICK_SECONDS)
        assert journal.commits == before + 1
        assert len(await events(store)) == 3
        for task in tasks:
            task.cancel()


@on_virtual_time
async def test_cancelling_flushes(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        pod = await a_stored_pod(store)
        recorder = EventRecorder(store, clock, "scheduler")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(recorder.run(), name="recorder")
            await clock.sleep(1)
            recorder.record(pod, "Normal", "Late", "just before the end")
            task.cancel()
        assert [event.reason for event in await events(store)] == ["Late"]


@on_virtual_time
async def test_a_restarted_component_counts_on(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        pod = await a_stored_pod(store)
        for _ in range(3):
            recorder = EventRecorder(store, clock, "scheduler")
            recorder.record(pod, "Warning", "FailedScheduling", "no room")
            await recorder.flush()
        assert [event.count for event in await events(store)] == [3]


@on_virtual_time
async def test_an_event_that_was_deleted_meanwhile_is_made_again(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        pod = await a_stored_pod(store)
        recorder = EventRecorder(store, clock, "scheduler")
        for _ in range(2):
            recorder.record(pod, "Normal", "Same", "thing")
            await recorder.flush()
            for event in (await store.list(Selection(core.EVENT))).items:
                await store.write([Delete(core.EVENT, event.key)])
        recorder.record(pod, "Normal", "Same", "thing")
        await recorder.flush()
        assert [event.count for event in await events(store)] == [1]


@on_virtual_time
async def test_events_wait_for_a_store_that_is_away_within_bounds(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner, asyncio.TaskGroup() as group:
        store = Counting(inner, is_away=True)
        pod = await a_stored_pod(inner)
        recorder = EventRecorder(store, clock, "scheduler")  # type: ignore[arg-type]
        task = group.create_task(recorder.run(), name="recorder")
        for number in range(MOST_PENDING + 10):
            recorder.record(pod, "Normal", "Many", str(number))
        await clock.sleep(30)
        assert recorder.dropped == 10
        assert store.batches < 20
        store.is_away = False
        await clock.sleep(30)
        assert len(await events(inner)) == MOST_PENDING
        task.cancel()


@on_virtual_time
async def test_a_burst_is_written_little_by_little_warnings_first_and_nothing_is_lost(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as group:
        pod = await a_stored_pod(store)
        recorder = EventRecorder(store, clock, "scheduler")
        for number in range(1000):
            recorder.record(pod, "Normal", "Many", str(number))
        recorder.record(pod, "Warning", "Bad", "look here")
        task = group.create_task(recorder.run(), name="recorder")
        await clock.sleep(1.5 * TICK_SECONDS)
        early = await events(store)
        assert len(early) == AT_ONCE
        assert "Bad" in {event.reason for event in early}
        await clock.sleep(1001 / MOST_PER_SECOND + 1)
        assert len(await events(store)) == 1001
        task.cancel()


@on_virtual_time
async def test_events_of_cluster_scoped_objects_go_to_the_default_namespace(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        node = await write_one(store, Create(core.NODE, a_node("n").document()))
        recorder = EventRecorder(store, clock, "nodes")
        type: Literal["Normal", "Warning"] = "Normal"
        recorder.record(node, type, "NodeReady", "back")
        await recorder.flush()
        (found,) = (await store.list(Selection(core.EVENT))).items
        assert found.key.namespace == "default"
        assert isinstance(found.key, Key)


@on_virtual_time
async def test_an_event_that_is_refused_does_not_hold_up_the_others(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        document = {"metadata": {"name": "doomed"}}
        await store.write([Create(core.NAMESPACE, document)])
        lost = await write_one(store, Create(core.POD, a_pod("p", "doomed").document()))
        pod = await a_stored_pod(store)
        await store.write([Delete(core.NAMESPACE, Key("", "doomed"))])
        recorder = EventRecorder(store, clock, "scheduler")
        recorder.record(lost, "Normal", "Lost", "refused: the namespace is going")
        recorder.record(pod, "Normal", "Kept", "written")
        await recorder.flush()
        assert [event.reason for event in await events(store)] == ["Kept"]
