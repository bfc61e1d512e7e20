from muster.api import core
from muster.controllers.events import EventCleaner
from muster.runtime.clock import VirtualClock
from muster.runtime.recording import EventRecorder
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Selection
from muster.testing.builders import a_pod
from muster.testing.staging import running, stage
from muster.testing.virtual import on_virtual_time


@on_virtual_time
async def test_events_are_kept_for_an_hour_after_they_were_last_told(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, running(EventCleaner(store, clock).run):
        (pod,) = await stage(store, a_pod("p"))
        recorder = EventRecorder(store, clock, "test")
        for number in range(700):
            recorder.record(pod, "Normal", "Once", str(number))
        recorder.record(pod, "Normal", "Often", "again")
        await recorder.flush()
        await clock.sleep(1800)
        recorder.record(pod, "Normal", "Often", "again")
        await recorder.flush()
        assert len((await store.list(Selection(core.EVENT))).items) == 701
        await clock.sleep(1900)
        (left,) = (await store.list(Selection(core.EVENT))).items
        assert left.read(core.Event).reason == "Often"
        await clock.sleep(1800)
        assert not (await store.list(Selection(core.EVENT))).items


@on_virtual_time
async def test_an_event_without_times_is_judged_by_its_creation(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, running(EventCleaner(store, clock).run):
        involved = {"kind": "Pod", "name": "p", "namespace": "default"}
        await stage(
            store,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "bare", "namespace": "default"},
                "involvedObject": involved,
            },
        )
        await clock.sleep(3000)
        assert len((await store.list(Selection(core.EVENT))).items) == 1
        await clock.sleep(700)
        assert not (await store.list(Selection(core.EVENT))).items
