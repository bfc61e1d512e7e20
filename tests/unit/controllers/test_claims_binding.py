"""Claims become directories: of the node that has the first pod, or of a file system that all share."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.agent.claims import ClaimDirectories
from muster.agent.volumes import NotMounted
from muster.api import core, errors, storage
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.controllers.claims import ClaimController
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Selection, write_one
from muster.testing.builders import PodBuilder, a_node, a_pod
from muster.testing.staging import running, stage
from muster.testing.virtual import on_virtual_time

KEY = Key("default", "c")


def using(pod: PodBuilder, claim: str = "c") -> PodBuilder:
    return pod.set([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}], "spec", "volumes")


@asynccontextmanager
async def a_platform(clock: VirtualClock, *objects: Any) -> AsyncIterator[EmbeddedStore]:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n1"), a_node("n2"), *objects)
        async with running(ClaimController(store, clock).run):
            yield store


async def make_claim(store: EmbeddedStore, clock: VirtualClock, **spec: Any) -> None:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    await write_one(
        store,
        Create(core.PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": "c", "namespace": "default"}, "spec": asked}),
    )
    await clock.sleep(1)


async def make_class(store: EmbeddedStore, name: str, provisioner: str, **fields: Any) -> None:
    await write_one(
        store, Create(storage.STORAGE_CLASS, {"metadata": {"name": name}, "provisioner": provisioner, **fields})
    )


async def claim(store: EmbeddedStore) -> core.PersistentVolumeClaim:
    return (await store.get(core.PERSISTENT_VOLUME_CLAIM, KEY)).read(core.PersistentVolumeClaim)


async def said(store: EmbeddedStore) -> list[str]:
    events = [found.read(core.Event) for found in (await store.list(Selection(core.EVENT))).items]
    return [f"{event.reason}: {event.message}" for event in events]


@on_virtual_time
async def test_a_claim_waits_for_its_first_pod_and_belongs_to_that_ones_node(clock: VirtualClock) -> None:
    async with a_platform(clock) as store:
        await make_claim(store, clock)
        assert (await claim(store)).status.phase == "Pending"
        assert "waiting for first consumer" in (await said(store))[0]
        await stage(store, using(a_pod("waiting")), using(a_pod("first")).on_node("n2"))
        await clock.sleep(1)
        bound = await claim(store)
        assert (bound.status.phase, bound.spec.volume_name) == ("Bound", f"pvc-{bound.metadata.uid}")
        assert (bound.metadata.annotations or {})["volume.kubernetes.io/selected-node"] == "n2"
        assert (bound.status.capacity, bound.status.access_modes) == ({"storage": "1Gi"}, ("ReadWriteOnce",))


@on_virtual_time
async def test_a_shared_class_binds_at_once_and_the_default_class_counts(clock: VirtualClock) -> None:
    marked = {"name": "nfs", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    async with a_platform(clock) as store:
        await make_class(store, "nfs", "muster.dev/shared", metadata=marked, parameters={"path": "/mnt/nfs/"})
        await make_claim(store, clock)
        bound = await claim(store)
        assert bound.status.phase == "Bound"
        assert (bound.metadata.annotations or {})["muster.dev/path"] == "/mnt/nfs/default/c"


@on_virtual_time
async def test_a_class_that_comes_later_is_enough(clock: VirtualClock) -> None:
    async with a_platform(clock) as store:
        await make_claim(store, clock, storageClassName="nfs")
        await clock.sleep(1)
        assert await said(store) == ['ProvisioningFailed: storageclass.storage.k8s.io "nfs" not found']
        await make_class(store, "nfs", "muster.dev/shared", parameters={"path": "/mnt"})
        await clock.sleep(1)
        assert (await claim(store)).status.phase == "Bound"


@pytest.mark.parametrize("path", ["", "relative", "/mnt/../etc"])
def test_a_shared_class_needs_a_path(path: str) -> None:
    found = storage.StorageClass(provisioner="muster.dev/shared", parameters={"path": path})
    (error,) = storage.STORAGE_CLASS.validate(found)
    assert error.path == "parameters[path]"
    assert "that all nodes share" in error.message


# On the node


class Node:
    def __init__(self, store: EmbeddedStore, clock: VirtualClock, root: Path, name: str = "n1") -> None:
        self.used: set[Key] = set()
        self._store = store
        self.claims = ClaimDirectories(name, root, store, clock, self._get, lambda: self.used)

    async def _get(self, kind: Kind, key: Key) -> Object | None:
        try:
            return await self._store.get(kind, key)
        except errors.NotFound:
            return None

    async def find(self) -> Mapping[str, Path]:
        return await self.claims.find(msgspec.convert(using(a_pod("p")).document(), core.Pod))


@on_virtual_time
async def test_a_directory_of_the_node_outlives_pods_and_goes_with_its_claim(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, using(a_pod("first")).on_node("n1")) as store:
        node = Node(store, clock, tmp_path / "claims")
        await make_claim(store, clock)
        path = (await node.find())["c"]
        (path / "kept").write_text("x")
        assert (await node.find())["c"] == path
        node.used = {KEY}
        async with running(node.claims.tidy):
            await write_one(store, Delete(core.PERSISTENT_VOLUME_CLAIM, KEY))
            await clock.sleep(10)
            assert (path / "kept").exists(), "a pod still uses it"
            with pytest.raises(NotMounted, match="is being deleted"):
                await node.find()
            node.used = set()
            while path.parent.exists():
                await clock.sleep(3)
                await asyncio.to_thread(time.sleep, 0.005)  # a thread removes it, which knows no virtual time
        with pytest.raises(NotMounted, match="not found"):
            await node.find()


@on_virtual_time
async def test_what_is_left_of_a_claim_that_vanished_stays(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock) as store:
        node = Node(store, clock, tmp_path)
        left = tmp_path / "default" / "c" / "some-uid" / "data"
        left.mkdir(parents=True)
        async with running(node.claims.tidy):
            await clock.sleep(10)
        assert left.is_dir()


@on_virtual_time
async def test_a_claim_of_another_node_is_refused_and_one_of_a_lost_node_let_go(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, using(a_pod("first")).on_node("n2")) as store:
        here, there = Node(store, clock, tmp_path / "n1"), Node(store, clock, tmp_path / "n2", "n2")
        await make_claim(store, clock)
        with pytest.raises(NotMounted, match="is a directory of node n2"):
            await here.find()
        await there.find()
        await write_one(store, Delete(core.PERSISTENT_VOLUME_CLAIM, KEY))
        await clock.sleep(1)
        assert (await store.get(core.PERSISTENT_VOLUME_CLAIM, KEY)).is_terminating
        await write_one(store, Delete(core.NODE, Key("", "n2")))
        await clock.sleep(1)
        with pytest.raises(errors.NotFound):
            await claim(store)


@on_virtual_time
async def test_a_shared_directory_needs_its_file_system(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock) as store:
        node = Node(store, clock, tmp_path / "claims")
        await make_class(store, "nfs", "muster.dev/shared", parameters={"path": str(tmp_path / "nfs")})
        await make_claim(store, clock, storageClassName="nfs")
        with pytest.raises(NotMounted, match="nfs is not there on this node; is it mounted"):
            await node.find()
        (tmp_path / "nfs").mkdir()
        assert (await node.find())["c"] == tmp_path / "nfs" / "default" / "c"


@on_virtual_time
async def test_a_pod_waits_a_while_for_its_claim_to_be_bound(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock) as store:
        node = Node(store, clock, tmp_path)
        await make_claim(store, clock)
        began = clock.monotonic()
        with pytest.raises(NotMounted, match="is not bound yet"):
            await node.find()
        assert 9 < clock.monotonic() - began < 12
