"""The store's conformance suite over a real API server, and what only such a server has."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.access import kubeconfig
from muster.access.kubeconfig import Cluster
from muster.api import core, errors, policy, raw
from muster.api.kinds import Kind
from muster.api.meta import Resource
from muster.api.objects import Key
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import (
    Bind,
    Change,
    Create,
    Delete,
    Patch,
    PatchType,
    Refused,
    Revision,
    Selection,
    Written,
    write_one,
)
from muster.testing.stores import StoreSuite, config_map, pod

NOT_APPLICABLE = {
    "test_fields_we_do_not_model_are_kept": "Kubernetes drops fields that its schemas do not know",
    "test_a_field_of_the_wrong_type_is_named": "Kubernetes answers 400, and the field is in a sentence only",
    "test_a_watch_from_before_memory_is_told_to_list": "Kubernetes remembers minutes, however many changes they hold",
}


class TestKubernetesStore(StoreSuite):
    @pytest.fixture(autouse=True)
    async def set_up(
        self, request: pytest.FixtureRequest, store: KubernetesStore, namespace: str
    ) -> AsyncIterator[None]:
        reason = NOT_APPLICABLE.get(request.node.name)
        if reason is not None:
            pytest.skip(reason)
        self.namespace = namespace
        yield
        await store.write([Delete(core.NODE, Key("", "n"))])


async def test_a_watch_from_now_on_shows_what_comes(store, namespace):
    await write_one(store, Create(core.CONFIG_MAP, config_map("before", namespace=namespace)))
    watch = store.watch(Selection(core.CONFIG_MAP, namespace))
    first = asyncio.ensure_future(anext(watch))
    for number in range(100):
        await write_one(store, Create(core.CONFIG_MAP, config_map(f"after-{number}", namespace=namespace)))
        if first.done():
            break
    events = await asyncio.wait_for(first, 5)
    await watch.aclose()
    assert events[0].change is Change.ADDED
    assert events[0].object.key.name.startswith("after")


async def test_what_is_listed_in_pages_is_what_is_listed_at_once(cluster, store, namespace):
    results = await store.write(
        [Create(core.CONFIG_MAP, config_map(f"c{n:03}", namespace=namespace)) for n in range(250)]
    )
    assert all(isinstance(result, Written) for result in results)
    selection = Selection(core.CONFIG_MAP, namespace)
    whole = await store.list(selection)
    async with KubernetesStore(cluster, page=20) as paging:
        paged = await paging.list(selection)
    assert [found.raw for found in paged.items] == [found.raw for found in whole.items]
    assert len(whole.items) == 251  # the cluster's own authority is one of them
    assert paged.revision == whole.revision


async def test_a_bind_carries_annotations_and_is_for_one_pod_only(store, namespace):
    made = await write_one(store, Create(core.POD, pod("p", namespace=namespace)))
    other = Bind(core.POD, made.key, "node-1", uid="ffffffff-0000-0000-0000-000000000000")
    (refused,) = await store.write([other])
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, errors.Conflict)
    bound = await write_one(store, Bind(core.POD, made.key, "node-1", made.uid, {"muster.dev/devices": "0,1"}))
    found = await store.get(core.POD, made.key)
    assert (bound.key, bound.uid) == (found.key, found.uid)
    assert found.read(core.Pod).spec.node_name == bound.read(core.Pod).spec.node_name == "node-1"
    assert (found.meta.annotations or {})["muster.dev/devices"] == "0,1"


async def test_an_eviction_keeps_to_budgets(store, namespace):
    """Of a pod that counts: one that is bound and ready."""
    budget = {
        "metadata": {"name": "b", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    await write_one(store, Create(policy.POD_DISRUPTION_BUDGET, budget))
    made = await write_one(store, Create(core.POD, pod("p", namespace=namespace, labels={"app": "x"})))
    await write_one(store, Bind(core.POD, made.key, "node-1", made.uid))
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await write_one(store, Patch(core.POD, made.key, ready, PatchType.STRATEGIC, "status"))
    evict = Delete(core.POD, made.key, uid=made.uid, within_budgets=True)
    (refused,) = await store.write([evict])
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, errors.TooManyRequests)
    await write_one(store, Delete(policy.POD_DISRUPTION_BUDGET, Key(namespace, "b")))
    evicted = await write_one(store, evict)
    assert evicted.key == made.key
    assert (await store.get(core.POD, made.key)).is_terminating


async def test_a_kind_that_the_cluster_does_not_have_is_named(store):
    unknown = Kind("nowhere.example", "v1", "Thing", "things", Resource)
    with pytest.raises(errors.NotFound, match=f"does not serve {unknown.resource}"):
        await store.list(Selection(unknown))
    with pytest.raises(errors.NotFound, match=f"does not serve {unknown.resource}"):
        await anext(store.watch(Selection(unknown), since=Revision(5)))


async def test_who_may_not_is_told_what_and_who_is_nobody_is_refused(configuration, tmp_path):
    content = raw.decode_yaml(configuration.read_bytes())[0]
    for user in content["users"]:
        user["user"] |= {"as": "somebody", "as-groups": ["some", "group"]}
    async with KubernetesStore(_written(tmp_path, content)) as store:
        message = 'User "somebody" cannot list resource "pods" in API group "" at the cluster scope'
        with pytest.raises(errors.Forbidden, match=message):
            await store.list(Selection(core.POD))
        with pytest.raises(errors.Forbidden, match='cannot watch resource "pods"'):
            await anext(store.watch(Selection(core.POD), since=Revision(5)))
        (refused,) = await store.write([Create(core.POD, pod("p"))])
        assert isinstance(refused, Refused)
        assert 'cannot create resource "pods" in API group "" in the namespace "default"' in refused.error.message
    for user in content["users"]:
        user["user"] = {"token": "wrong"}
    async with KubernetesStore(_written(tmp_path, content)) as store:
        with pytest.raises(errors.Unauthorized):
            await store.list(Selection(core.POD))


def _written(folder: Path, content: raw.Document) -> Cluster:
    path = folder / "config"
    path.write_text(raw.to_yaml(content))
    return kubeconfig.read(path)
