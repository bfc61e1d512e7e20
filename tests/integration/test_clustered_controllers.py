"""What runs on a cluster, over a store in memory: who leads, and whose pods are placed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from muster.api import coordination, core, errors, kueue, storage, volcano
from muster.api.everything import REGISTRY
from muster.api.kueue import names as kueue_names
from muster.api.objects import Key
from muster.api.ownership import Ownership, Unlabelled
from muster.api.registry import Registry
from muster.assembly import clustered
from muster.assembly.clustered import ControllerSettings, Running
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.journal import NoJournal
from muster.store.protocol import Create, Patch, Selection, Store, write_one
from muster.testing.builders import a_node, a_pod

LEASE = Key("muster-system", "muster-controller")


@pytest.fixture
async def store() -> AsyncIterator[EmbeddedStore]:
    kinds = Registry((*REGISTRY.kinds, storage.PERSISTENT_VOLUME))
    async with EmbeddedStore(NoJournal(), clock=SystemClock(), registry=kinds) as store:
        await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": "muster-system"}}))
        yield store


@asynccontextmanager
async def controller(store: Store, **settings: object) -> AsyncIterator[Running]:
    async with asyncio.TaskGroup() as tasks:
        up: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        chosen = ControllerSettings(lease_seconds=2, **settings)  # type: ignore[arg-type]
        running = tasks.create_task(clustered.run(store, chosen, up.set_result))
        try:
            yield await up
        finally:
            running.cancel()


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.02)


async def node_of(store: Store, name: str) -> str:
    return (await store.get(core.POD, Key("default", name))).read(core.Pod).spec.node_name or ""


async def leader(store: Store) -> str:
    try:
        found = await store.get(coordination.LEASE, LEASE)
    except errors.NotFound:
        return ""
    return found.read(coordination.Lease).spec.holder_identity or ""


def wanting(name: str, scheduler: str) -> Create:
    return Create(core.POD, a_pod(name).cpu(1).set(scheduler, "spec", "schedulerName").document())


async def test_pods_of_other_schedulers_are_left_alone_but_count(store: EmbeddedStore) -> None:
    await write_one(store, Create(core.NODE, a_node("n").cpu(3).document()))
    async with controller(store):
        await store.write(
            [wanting("theirs", "default-scheduler"), wanting("gang", "volcano"), wanting("ours", "muster")]
        )
        await until(lambda: _is_true(node_of(store, "ours")))
        await until(lambda: _is_true(node_of(store, "gang")))
        assert await node_of(store, "theirs") == ""
        bound = a_pod("bound").cpu(1).set("default-scheduler", "spec", "schedulerName").on_node("n")
        await write_one(store, Create(core.POD, bound.document()))
        await write_one(store, wanting("late", "muster"))

        async def is_told() -> bool:
            pod = (await store.get(core.POD, Key("default", "late"))).read(core.Pod)
            return any("Insufficient cpu" in (condition.message or "") for condition in pod.status.conditions)

        await until(is_told)


async def test_where_volcano_is_there_its_pods_are_its_own(store: EmbeddedStore) -> None:
    await write_one(store, Create(core.NODE, a_node("n").cpu(8).document()))
    async with controller(store, ownership=Ownership(Unlabelled.THEIRS)):
        await store.write([wanting("theirs", "volcano"), wanting("ours", "muster")])
        await until(lambda: _is_true(node_of(store, "ours")))
        assert await node_of(store, "theirs") == ""
        assert not (await store.list(Selection(volcano.POD_GROUP))).items


async def test_a_second_replica_takes_over_when_the_first_goes(store: EmbeddedStore) -> None:
    await write_one(store, Create(core.NODE, a_node("n").cpu(8).document()))
    async with controller(store) as first:
        await until(lambda: _is_true(leader(store)))
        assert await leader(store) == first.identity
        async with controller(store) as second:
            assert await leader(store) == first.identity
            # Somebody takes the lease away: the leader must stop, whatever it believes.
            other = {"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 1}}
            await write_one(store, Patch(coordination.LEASE, LEASE, other))

            async def is_led_again() -> bool:
                return await leader(store) in (second.identity, first.identity)

            await until(is_led_again)
            await write_one(store, wanting("p", "muster"))
            await until(lambda: _is_true(node_of(store, "p")))


async def test_quota_admits_a_pod_by_taking_its_gate_away(store: EmbeddedStore) -> None:
    await write_one(store, Create(core.NODE, a_node("n").cpu(8).document()))
    flavor = {"metadata": {"name": "plain"}}
    quota = {"name": "cpu", "nominalQuota": "4"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "plain", "resources": [quota]}]}]
    queue = {"metadata": {"name": "all"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}}
    local = {"metadata": {"name": "research", "namespace": "default"}, "spec": {"clusterQueue": "all"}}
    pod = a_pod("p").cpu(1).label(kueue_names.QUEUE_LABEL, "research").label(kueue_names.MANAGED, "true")
    pod = pod.set("muster", "spec", "schedulerName").gated(kueue_names.ADMISSION_GATE)
    async with controller(store) as running:
        await store.write(
            [
                Create(kueue.RESOURCE_FLAVOR, flavor),
                Create(kueue.CLUSTER_QUEUE, queue),
                Create(kueue.LOCAL_QUEUE, local),
                Create(core.POD, pod.document()),
            ]
        )
        await until(lambda: _is_true(node_of(store, "p")))
        async with aiohttp.ClientSession() as session:
            for path, says in (("/healthz", "ok"), ("/readyz", "ok"), ("/metrics", "kueue_admitted_workloads_total")):
                async with session.get(f"{running.probes}{path}") as response:
                    assert response.status == 200
                    assert says in await response.text()


async def _is_true(found: Awaitable[str]) -> bool:
    return bool(await found)


async def test_a_claim_that_waits_for_a_node_is_told_which_and_its_pod_is_bound_after_it(store: EmbeddedStore) -> None:
    disk = {"metadata": {"name": "disk"}, "provisioner": "disks.dev", "volumeBindingMode": "WaitForFirstConsumer"}
    spec = {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "data", "namespace": "default"}, "spec": spec}
    await store.write([Create(storage.STORAGE_CLASS, disk), Create(core.PERSISTENT_VOLUME_CLAIM, claim)])
    await write_one(store, Create(core.NODE, a_node("n").cpu(8).document()))
    key = Key("default", "data")

    async def chosen() -> str:
        annotations = (await store.get(core.PERSISTENT_VOLUME_CLAIM, key)).meta.annotations or {}
        return annotations.get("volume.kubernetes.io/selected-node", "")

    async def give_up() -> None:
        body = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": None}}}
        await write_one(store, Patch(core.PERSISTENT_VOLUME_CLAIM, key, body))

    async with controller(store):
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        pod = a_pod("p").cpu(1).set("muster", "spec", "schedulerName").set(volumes, "spec", "volumes")
        await write_one(store, Create(core.POD, pod.document()))
        await until(lambda: _is_true(chosen()))
        await asyncio.sleep(0.3)
        assert await node_of(store, "p") == ""
        await give_up()  # as a provisioner does that cannot make a volume there
        await until(lambda: _is_true(chosen()))
        await write_one(store, Create(storage.PERSISTENT_VOLUME, {"metadata": {"name": "v"}, "spec": {}}))
        await write_one(store, Patch(core.PERSISTENT_VOLUME_CLAIM, key, {"spec": {"volumeName": "v"}}))
        bound = {"status": {"phase": "Bound"}}
        await write_one(store, Patch(core.PERSISTENT_VOLUME_CLAIM, key, bound, subresource="status"))
        await until(lambda: _is_true(node_of(store, "p")))
