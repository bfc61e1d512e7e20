"""Garbage collection over a store in memory. ConfigMaps stand for anything: ownership does not look at kinds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.controllers.garbage import GarbageCollector
from muster.runtime.clock import VirtualClock, run_virtual
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Delete, Patch, Propagation, Selection, Store, write_one
from muster.testing.builders import Builder, a_node, a_pod
from muster.testing.staging import running, stage
from muster.testing.virtual import on_virtual_time


def a_map(name: str, namespace: str = "default") -> Builder:
    metadata = {"name": name, "namespace": namespace}
    return Builder({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


async def make(store: Store, name: str, *owners: Object, blocking: bool = False, namespace: str = "default") -> Object:
    wanted = a_map(name, namespace)
    for owner in owners:
        wanted = wanted.owned_by(owner.document(), blocking=blocking)
    (made,) = await stage(store, wanted)
    return made


async def delete(store: Store, found: Object, propagation: Propagation | None = None) -> None:
    await write_one(store, Delete(found.kind, found.key, propagation))


async def names(store: Store, kind: Kind = core.CONFIG_MAP) -> set[str]:
    return {found.key.name for found in (await store.list(Selection(kind))).items}


@asynccontextmanager
async def collecting(clock: VirtualClock) -> AsyncIterator[EmbeddedStore]:
    async with EmbeddedStore.in_memory(clock=clock) as store, running(GarbageCollector(store, clock).run):
        yield store


@on_virtual_time
async def test_dependents_go_with_their_owner_and_theirs_with_them(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        owner = await make(store, "owner")
        child = await make(store, "child", owner)
        await make(store, "grandchild", child)
        await make(store, "unrelated")
        await clock.sleep(1)
        await delete(store, owner)
        await clock.sleep(1)
        assert await names(store) == {"unrelated"}


@on_virtual_time
async def test_one_living_owner_is_enough_and_the_dead_are_struck_out(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        first, second = await make(store, "first"), await make(store, "second")
        await make(store, "shared", first, second)
        await delete(store, first)
        await clock.sleep(1)
        shared = await store.get(core.CONFIG_MAP, Key("default", "shared"))
        assert [owner.name for owner in shared.meta.owner_references] == ["second"]
        await delete(store, second)
        await clock.sleep(1)
        assert await names(store) == set()


@on_virtual_time
async def test_an_owner_deleted_in_the_foreground_goes_last(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        owner = await make(store, "owner")
        (child,) = await stage(store, a_map("child").owned_by(owner.document(), blocking=True).finalizer("test/hold"))
        await make(store, "not-blocking", owner)
        await delete(store, owner, "Foreground")
        await clock.sleep(5)
        assert await names(store) == {"owner", "child"}
        assert (await store.get(core.CONFIG_MAP, child.key)).is_terminating
        await write_one(store, Patch(core.CONFIG_MAP, child.key, {"metadata": {"finalizers": None}}))
        await clock.sleep(1)
        assert await names(store) == set()


@on_virtual_time
async def test_foreground_deletion_reaches_down_the_tree(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        owner = await make(store, "owner")
        child = await make(store, "child", owner, blocking=True)
        (leaf,) = await stage(store, a_map("leaf").owned_by(child.document(), blocking=True).finalizer("test/hold"))
        await delete(store, owner, "Foreground")
        await clock.sleep(5)
        assert await names(store) == {"owner", "child", "leaf"}
        await write_one(store, Patch(core.CONFIG_MAP, leaf.key, {"metadata": {"finalizers": None}}))
        await clock.sleep(1)
        assert await names(store) == set()


@on_virtual_time
async def test_a_circle_of_owners_can_be_deleted(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        a = await make(store, "a")
        b = await make(store, "b", a, blocking=True)
        c = await make(store, "c", b, blocking=True)
        circle = a_map("a").owned_by(c.document(), blocking=True).document()["metadata"]["ownerReferences"]
        await write_one(store, Patch(core.CONFIG_MAP, a.key, {"metadata": {"ownerReferences": circle}}))
        await clock.sleep(1)
        await delete(store, a, "Foreground")
        await clock.sleep(5)
        assert await names(store) == set()


@on_virtual_time
async def test_orphans_stay_and_forget_their_owner(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        owner = await make(store, "owner")
        await make(store, "child", owner)
        await clock.sleep(1)
        await delete(store, owner, "Orphan")
        await clock.sleep(5)
        assert await names(store) == {"child"}
        child = await store.get(core.CONFIG_MAP, Key("default", "child"))
        assert child.meta.owner_references == ()


@on_virtual_time
async def test_a_dependent_made_after_its_owner_has_gone_is_collected(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        owner = await make(store, "owner")
        await delete(store, owner)
        async with running(GarbageCollector(store, clock).run):
            await make(store, "late", owner)
            await clock.sleep(1)
            assert await names(store) == set()


@on_virtual_time
async def test_what_was_made_again_under_the_owners_name_is_not_the_owner(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        owner = await make(store, "owner")
        await make(store, "child", owner)
        await delete(store, owner)
        await make(store, "owner")
        await clock.sleep(1)
        assert await names(store) == {"owner"}


@on_virtual_time
async def test_an_owner_in_another_namespace_is_ignored_and_told(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        foreign = await make(store, "foreign", namespace="kube-public")
        await make(store, "child", foreign)
        (node,) = await stage(store, a_node("n").owned_by((await make(store, "small")).document()))
        await clock.sleep(1)
        assert await names(store) == {"foreign", "child", "small"}
        assert await names(store, core.NODE) == {"n"}
        events = [event.read(core.Event) for event in (await store.list(Selection(core.EVENT))).items]
        told = {event.involved_object.name for event in events if event.reason == "OwnerRefInvalidNamespace"}
        assert told == {"child", "n"}
        assert node.meta.owner_references


@on_virtual_time
async def test_a_namespaced_object_may_belong_to_a_cluster_scoped_one(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        (node,) = await stage(store, a_node("n"))
        await make(store, "lease-like", node)
        await clock.sleep(1)
        assert await names(store) == {"lease-like"}
        await delete(store, node)
        await clock.sleep(1)
        assert await names(store) == set()


@on_virtual_time
async def test_an_owner_of_an_unknown_kind_keeps_its_dependents(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        stranger = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "uid": "1-2-3"}}
        await stage(store, a_map("child").owned_by(stranger))
        await clock.sleep(600)
        assert await names(store) == {"child"}


@on_virtual_time
async def test_a_running_pod_gets_its_grace(clock: VirtualClock) -> None:
    async with collecting(clock) as store:
        owner = await make(store, "owner")
        await stage(store, a_pod("p").on_node("n").phase("Running").owned_by(owner.document()))
        await delete(store, owner)
        await clock.sleep(1)
        (pod,) = (await store.list(Selection(core.POD))).items
        assert pod.is_terminating
        assert pod.meta.deletion_grace_period_seconds == 30


@on_virtual_time
async def test_it_takes_up_where_an_earlier_run_stopped(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        kept, gone, held = await make(store, "kept"), await make(store, "gone"), await make(store, "held")
        await make(store, "stays", kept)
        await make(store, "goes", gone)
        await make(store, "blocks", held, blocking=True)
        await delete(store, gone)
        await delete(store, held, "Foreground")
        async with running(GarbageCollector(store, clock).run):
            await clock.sleep(1)
            assert await names(store) == {"kept", "stays"}


@settings(max_examples=40, deadline=None)
@given(
    parents=st.lists(st.sets(st.integers(0, 9), max_size=3), min_size=1, max_size=10),
    removed=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([None, "Background", "Foreground", "Orphan"])), max_size=5
    ),
)
def test_what_remains_has_a_living_owner_or_never_had_one(
    parents: list[set[int]], removed: list[tuple[int, Propagation | None]]
) -> None:
    """A random forest, objects deleted in every way. Afterwards no reference points at what is gone, and nothing
    hangs in deletion."""

    async def main(clock: VirtualClock) -> None:
        async with collecting(clock) as store:
            made: list[Object] = []
            for index, owners in enumerate(parents):
                chosen = [made[owner] for owner in sorted(owners) if owner < index]
                made.append(await make(store, f"m{index}", *chosen, blocking=index % 2 == 0))
            for index, propagation in removed:
                if index < len(made) and made[index].key.name in await names(store):
                    await delete(store, made[index], propagation)
                    await clock.sleep(0.001)
            await clock.sleep(120)
            left = {found.uid: found for found in (await store.list(Selection(core.CONFIG_MAP))).items}
            for found in left.values():
                assert not found.is_terminating
                assert all(owner.uid in left for owner in found.meta.owner_references)

    run_virtual(main)
