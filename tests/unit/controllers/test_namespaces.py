from muster.api import core, errors, volcano
from muster.api.objects import Key
from muster.controllers.namespaces import NamespaceController
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, Refused, Selection, Store
from muster.testing.builders import Builder, a_pod, a_pod_group
from muster.testing.staging import running, stage
from muster.testing.virtual import on_virtual_time


def a_namespace(name: str) -> Builder:
    return Builder({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def exists(store: Store, name: str) -> bool:
    try:
        await store.get(core.NAMESPACE, Key("", name))
    except errors.NotFound:
        return False
    return True


@on_virtual_time
async def test_a_namespace_goes_with_everything_in_it(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, running(NamespaceController(store, clock).run):
        await stage(store, a_namespace("team"), a_namespace("other"))
        await stage(store, a_pod("p", "team"), a_pod_group("g", "team"), a_pod("kept", "other"))
        await store.write([Delete(core.NAMESPACE, Key("", "team"))])
        await clock.sleep(1)
        assert not await exists(store, "team")
        assert [pod.key.name for pod in (await store.list(Selection(core.POD))).items] == ["kept"]
        await stage(store, a_namespace("team"))
        await clock.sleep(5)
        assert await exists(store, "team")


@on_virtual_time
async def test_it_waits_for_what_is_held(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, running(NamespaceController(store, clock).run):
        await stage(store, a_namespace("team"))
        await stage(store, a_pod_group("g", "team").finalizer("test/hold"))
        await stage(store, a_pod("p", "team").on_node("n").phase("Running"))
        await store.write([Delete(core.NAMESPACE, Key("", "team"))])
        await clock.sleep(60)
        assert await exists(store, "team")
        (pod,) = (await store.list(Selection(core.POD))).items
        assert pod.is_terminating
        await store.write([Delete(core.POD, Key("team", "p"), grace_seconds=0)])
        await clock.sleep(5)
        assert await exists(store, "team")
        (held,) = (await store.list(Selection(volcano.POD_GROUP, namespace="team"))).items
        await store.write([Patch(held.kind, held.key, {"metadata": {"finalizers": None}})])
        await clock.sleep(1)
        assert not await exists(store, "team")


@on_virtual_time
async def test_nothing_new_is_let_in_meanwhile(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, running(NamespaceController(store, clock).run):
        await stage(store, a_namespace("team"))
        await stage(store, a_pod_group("g", "team").finalizer("test/hold"))
        await store.write([Delete(core.NAMESPACE, Key("", "team"))])
        (result,) = await store.write([Create(core.POD, a_pod("late", "team").document())])
        assert isinstance(result, Refused)
        assert isinstance(result.error, errors.Forbidden)


@on_virtual_time
async def test_a_restarted_controller_finishes_what_was_begun(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_namespace("team"), a_pod("p", "team"))
        await store.write([Delete(core.NAMESPACE, Key("", "team"))])
        assert await exists(store, "team")
        async with running(NamespaceController(store, clock).run):
            await clock.sleep(1)
            assert not await exists(store, "team")
