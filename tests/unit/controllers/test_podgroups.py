import pytest

from muster.api import core, raw, volcano
from muster.api.objects import Key, Object, decode_view
from muster.controllers.podgroups import PodGroupController, status_of
from muster.controllers.scheduling import SchedulingController
from muster.placement.engine import default_engine
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Delete, Patch, Selection, Store
from muster.testing.builders import PodBuilder, PodGroupBuilder, a_node, a_pod, a_pod_group
from muster.testing.staging import running, stage
from muster.testing.virtual import on_virtual_time

NOW = "2026-01-01T00:00:00Z"


def stored(group: PodGroupBuilder) -> Object:
    return Object(volcano.POD_GROUP, raw.encode(group.set("uid-g", "metadata", "uid").document()))


def view(pod: PodBuilder) -> core.Pod:
    found = decode_view(core.POD, raw.encode(pod.document()))
    assert isinstance(found, core.Pod)
    return found


def status(*pods: PodBuilder, minimum: int = 2, before: dict[str, object] | None = None) -> raw.Document:
    group = a_pod_group("g").min_member(minimum).set(before or {}, "status")
    return status_of(stored(group), [view(pod) for pod in pods], NOW)


def runs(name: str, phase: str = "Running") -> PodBuilder:
    return a_pod(name).on_node("n").phase(phase)


def refused(name: str, message: str = "0/1 nodes are available: 1 Insufficient cpu.") -> PodBuilder:
    return a_pod(name).set([{"type": "PodScheduled", "status": "False", "message": message}], "status", "conditions")


@pytest.mark.parametrize(
    ("pods", "before", "phase"),
    [
        pytest.param([], "Pending", "Inqueue", id="a new group may go on at once"),
        pytest.param([a_pod("a"), a_pod("b")], "Inqueue", "Inqueue", id="pods that wait for nodes"),
        pytest.param([a_pod("a").on_node("n"), a_pod("b").on_node("n")], "Inqueue", "Running", id="bound is enough"),
        pytest.param([runs("a"), a_pod("b")], "Inqueue", "Inqueue", id="too few are bound"),
        pytest.param([runs("a"), runs("b", "Succeeded")], "Running", "Running", id="one is still running"),
        pytest.param([runs("a", "Failed"), runs("b", "Succeeded")], "Running", "Completed", id="all have ended"),
        pytest.param([], "Completed", "Completed", id="cleaned up after the end"),
        pytest.param([], "Running", "Inqueue", id="all pods deleted, to be made again"),
        pytest.param([runs("a"), refused("b")], "Running", "Unknown", id="part runs and the rest cannot"),
    ],
)
def test_phases(pods: list[PodBuilder], before: str, phase: str) -> None:
    assert status(*pods, before={"phase": before})["phase"] == phase


def test_the_group_of_a_job_that_waits_for_quota_is_pending_whatever_its_pods_do() -> None:
    held = a_pod_group("g").min_member(2).set({"muster.dev/held": "true"}, "metadata", "annotations")
    for pods in ([], [runs("a"), runs("b")], [runs("a"), refused("b")]):
        found = status_of(stored(held), [view(pod) for pod in pods], NOW)
        assert found["phase"] == "Pending"
        assert "conditions" not in found


def test_counts() -> None:
    found = status(runs("a"), runs("b"), runs("c", "Failed"), runs("d", "Succeeded"), a_pod("e"))
    assert (found["running"], found["failed"], found["succeeded"]) == (2, 1, 1)


def test_a_gang_that_cannot_be_placed_is_unschedulable_and_later_scheduled() -> None:
    waiting = status(refused("a"), refused("b"))
    (condition,) = waiting["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Unschedulable", "True", "NotEnoughResources",
    )  # fmt: skip
    assert condition["message"] == (
        "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; "
        "0/1 nodes are available: 1 Insufficient cpu."
    )
    bound = status(runs("a"), runs("b"), before=waiting)
    assert {c["type"]: c["status"] for c in bound["conditions"]} == {"Unschedulable": "False", "Scheduled": "True"}


def test_a_gang_without_enough_pods_says_so() -> None:
    (condition,) = status(refused("a", "waits for pods"), minimum=3)["conditions"]
    assert condition["reason"] == "NotEnoughTasks"


def test_what_is_already_so_stays_word_for_word() -> None:
    for pods in ([refused("a"), refused("b")], [runs("a"), runs("b")], []):
        first = status(*pods)
        group = stored(a_pod_group("g").min_member(2).set(first, "status"))
        assert status_of(group, [view(pod) for pod in pods], "2030-01-01T00:00:00Z") == first


async def read_group(store: Store) -> volcano.PodGroupStatus:
    return (await store.get(volcano.POD_GROUP, Key("default", "g"))).read(volcano.PodGroup).status


@on_virtual_time
async def test_a_groups_status_follows_its_pods_through_their_life(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n").cpu(1))
        scheduler = SchedulingController(store, clock, default_engine, uses_threads=False)
        async with running(scheduler.run, PodGroupController(store, clock).run):
            await stage(store, a_pod_group("g").min_member(2))
            await stage(store, a_pod("a").cpu(1).in_group("g"), a_pod("b").cpu(1).in_group("g"))
            await clock.sleep(10)
            found = await read_group(store)
            assert (found.phase, found.conditions[0].type) == ("Inqueue", "Unschedulable")
            events = [event.read(core.Event) for event in (await store.list(Selection(core.EVENT))).items]
            assert [event.count for event in events if event.involved_object.kind == "PodGroup"] == [1]

            await stage(store, a_node("m").cpu(1))
            await clock.sleep(1)
            assert (await read_group(store)).phase == "Running"

            for name in "ab":
                patch = {"status": {"phase": "Succeeded"}}
                await store.write([Patch(core.POD, Key("default", name), patch, subresource="status")])
            await clock.sleep(1)
            found = await read_group(store)
            assert (found.phase, found.succeeded, found.running) == ("Completed", 2, 0)

            revision = store.revision
            await clock.sleep(600)
            assert store.revision == revision, "nothing is written when nothing changes"
            await store.write([Delete(volcano.POD_GROUP, Key("default", "g"))])
            await clock.sleep(1)
            assert not (await store.list(Selection(volcano.POD_GROUP))).items
