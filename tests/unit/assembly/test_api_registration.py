"""APIServices stand only while somebody answers, and lead to whoever leads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import trustme
from tests.unit.deploying.clusters import a_cluster, put

from muster.api import core, visibility
from muster.api.objects import Key
from muster.assembly.admission import Certificate, WebhookSettings
from muster.assembly.aggregating import Here, Registration, Trust
from muster.deploying import kinds, names
from muster.runtime.clock import VirtualClock
from muster.server.aggregation import front_proxy
from muster.store.protocol import Create, Delete, Patch, Selection, Store, write_one
from muster.testing.virtual import on_virtual_time

SPACE = "muster-system"
OURS = "v1.visibility.muster.dev"
THEIRS = "v1beta2.visibility.kueue.x-k8s.io"
EVERYTHING = {OURS, THEIRS, "v1beta1.visibility.kueue.x-k8s.io"}


async def prepare(store: Store) -> None:
    await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": SPACE}}))
    key = front_proxy.CONFIGURATION
    data = {
        "requestheader-client-ca-file": trustme.CA().cert_pem.bytes().decode(),
        "requestheader-username-headers": '["X-Remote-User"]',
    }
    metadata = {"name": key.name, "namespace": key.namespace}
    await write_one(store, Create(core.CONFIG_MAP, {"metadata": metadata, "data": data}))


async def judge(store: Store, status: str = "True") -> None:
    """As an API server does, of each that comes."""
    async for events in store.watch(Selection(kinds.API_SERVICE)):
        for event in events:
            if event.object is not None and event.change == "ADDED":
                condition = {
                    "type": "Available",
                    "status": status,
                    "reason": "FailedDiscoveryCheck",
                    "message": "no way",
                }
                change = {"status": {"conditions": [condition]}}
                await write_one(store, Patch(kinds.API_SERVICE, event.object.key, change, subresource="status"))


@contextlib.asynccontextmanager
async def leading(
    store: Store, clock: VirtualClock, settings: WebhookSettings, available: str = "True"
) -> AsyncIterator[None]:
    certificate, trust = Certificate(store, clock, SPACE, settings), Trust(store, clock)
    here = Here(visibility.VERSIONS, settings.way(SPACE), settings.pod)
    async with certificate.served() as context, trust.followed(context), asyncio.TaskGroup() as tasks:
        run = Registration(store, clock, certificate, trust, here).run
        running = [tasks.create_task(judge(store, available)), tasks.create_task(run())]
        await clock.sleep(5)
        yield
        for task in reversed(running):
            task.cancel()
            await asyncio.wait([task])


async def registered(store: Store) -> dict[str, Any]:
    return {each.key.name: each.document() for each in (await store.list(Selection(kinds.API_SERVICE))).items}


async def service(store: Store) -> Any:
    return (await store.get(core.SERVICE, Key(SPACE, names.VISIBILITY))).document()["spec"]


AT_HAND = WebhookSettings("127.0.0.1", 9443, "https://10.0.0.5:9443")


@on_virtual_time
async def test_a_controller_outside_is_named_by_its_address_and_takes_all_away_when_it_stops(
    clock: VirtualClock,
) -> None:
    async with a_cluster(clock) as store:
        await prepare(store)
        async with leading(store, clock, AT_HAND):
            found = await registered(store)
            assert found.keys() == EVERYTHING
            target = {"namespace": SPACE, "name": names.VISIBILITY, "port": 9443}
            assert {str(each["spec"]["service"]) for each in found.values()} == {str(target)}
            assert (await service(store))["externalName"] == "10.0.0.5"
        assert await registered(store) == {}


@on_virtual_time
async def test_what_somebody_takes_away_comes_back_and_what_is_somebody_elses_stays(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await prepare(store)
        theirs = {"metadata": {"name": THEIRS}, "spec": {"service": {"name": "kueue-visibility-server"}}}
        await put(store, kinds.API_SERVICE, theirs)
        async with leading(store, clock, AT_HAND):
            await write_one(store, Delete(kinds.API_SERVICE, Key("", OURS)))
            await clock.sleep(100)
            found = await registered(store)
            assert found.keys() == EVERYTHING
            assert found[THEIRS]["spec"] == theirs["spec"]
        assert (await registered(store)).keys() == {THEIRS}


@on_virtual_time
async def test_who_is_not_reached_is_out_of_the_way_and_tries_again_later(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await prepare(store)
        async with leading(store, clock, AT_HAND, available="False"):
            assert (await registered(store)).keys() == EVERYTHING, "it may take its time"
            await clock.sleep(60)
            assert await registered(store) == {}
            await clock.sleep(590)
            assert (await registered(store)).keys() == EVERYTHING


@on_virtual_time
async def test_a_cluster_that_passes_nothing_on_is_told_nothing(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await prepare(store)
        await write_one(store, Delete(core.CONFIG_MAP, front_proxy.CONFIGURATION))
        async with leading(store, clock, AT_HAND):
            await clock.sleep(200)
            assert await registered(store) == {}


@on_virtual_time
async def test_the_service_follows_the_label_which_follows_the_leader(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await prepare(store)
        for name in ("a", "b"):
            spec = {"containers": [{"name": "c", "image": "i"}]}
            await write_one(store, Create(core.POD, {"metadata": {"name": name, "namespace": SPACE}, "spec": spec}))
        for pod in ("a", "b"):
            async with leading(store, clock, WebhookSettings("0.0.0.0", 9443, pod=pod)):
                chosen = (await service(store))["selector"]
                pods = (await store.list(Selection(core.POD, SPACE))).items
                labelled = [each.key.name for each in pods if each.meta.labels and names.LEADER in each.meta.labels]
                assert (labelled, chosen[names.LEADER]) == ([pod], "true")
        async with leading(store, clock, AT_HAND):
            assert (await service(store))["type"] == "ExternalName"
        async with leading(store, clock, WebhookSettings("0.0.0.0", 9443, pod="a")):
            assert "externalName" not in await service(store)


@on_virtual_time
async def test_what_is_registered_belongs_to_the_role_of_the_installation(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await prepare(store)
        metadata = {"name": names.CONTROLLER, "labels": dict(names.LABELS)}
        role = await write_one(store, Create(kinds.CLUSTER_ROLE, {"metadata": metadata}))
        async with leading(store, clock, AT_HAND):
            [owner] = (await registered(store))[OURS]["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == ("ClusterRole", role.uid)


@on_virtual_time
async def test_replicas_at_different_addresses_do_not_take_the_certificate_from_each_other(
    clock: VirtualClock,
) -> None:
    async with a_cluster(clock) as store:
        await prepare(store)
        one, two = (
            Certificate(store, clock, SPACE, WebhookSettings("127.0.0.1", 9443, f"https://10.0.0.{number}:9443"))
            for number in (1, 2)
        )
        await one.renew()
        shared = await two.renew()
        assert await one.renew() == await two.renew() == shared
