"""Kueue's visibility API, explanations and metrics, over a real engine."""

import re

import pytest
from tests.unit.controllers.quota_worlds import World, a_flavor, a_local_queue, a_queue, a_workload, a_world
from tests.unit.quota.topology_worlds import HOST, RACK, a_host

from muster.api import core, kueue
from muster.api.objects import Key
from muster.controllers.quota.visibility import Visibility
from muster.quota.gates import Gates
from muster.quota.settings import Settings
from muster.runtime.clock import VirtualClock
from muster.server import access
from muster.server.app import Lookouts
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, write_one
from muster.testing.asgi import AsgiClient
from muster.testing.servers import TOKEN, app_for
from muster.testing.virtual import on_virtual_time

GROUP = "/k8s/apis/visibility.kueue.x-k8s.io"
NODE_TOKEN = "token-of-a-node"


def client_of(world: World, token: str = TOKEN) -> AsgiClient:
    lookouts = Lookouts(visibility=Visibility(world.quota, world.clock), metrics=world.quota.metrics.pieces)
    return AsgiClient(app_for(world.store, lookouts=lookouts, tokens={NODE_TOKEN: access.a_node("n")}), token)


async def with_a_line(world: World) -> None:
    """One that runs, and three that wait, the last one before the others."""
    await world.make(a_queue(cpu="1"), a_local_queue(), a_local_queue("other"), a_workload("runs"))
    await world.clock.sleep(2)
    for name, queue, priority in (("a", "lq", 0), ("b", "other", 0), ("c", "lq", 7)):
        await world.make(a_workload(name, queue=queue, priority=priority))
        await world.clock.sleep(2)


@on_virtual_time
async def test_who_waits_in_a_cluster_queue_in_their_order(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await with_a_line(world)
        reply = await client_of(world).request("GET", f"{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads")
        assert reply.status == 200
        assert reply.json["kind"] == "PendingWorkloadsSummary"
        assert reply.json["apiVersion"] == "visibility.kueue.x-k8s.io/v1beta2"
        assert [
            (
                item["metadata"]["name"],
                item["priority"],
                item["localQueueName"],
                item["positionInClusterQueue"],
                item["positionInLocalQueue"],
            )
            for item in reply.json["items"]
        ] == [("c", 7, "lq", 0, 0), ("a", 0, "lq", 1, 1), ("b", 0, "other", 2, 0)]
        first = reply.json["items"][0]["metadata"]
        assert first["namespace"] == "default"
        assert re.fullmatch(r"\d{4}-.*Z", first["creationTimestamp"])


@on_virtual_time
async def test_pages_local_queues_and_the_older_version(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await with_a_line(world)
        client = client_of(world)
        place = f"{GROUP}/v1beta1/namespaces/default/localqueues/lq/pendingworkloads"
        local = (await client.request("GET", place)).json
        assert local["apiVersion"].endswith("/v1beta1")
        assert [item["metadata"]["name"] for item in local["items"]] == ["c", "a"]
        page = {"offset": "1", "limit": "1"}
        second = (await client.request("GET", place, query=page)).json["items"]
        assert [item["metadata"]["name"] for item in second] == ["a"]
        whole = f"{GROUP}/v1beta1/clusterqueues/cq/pendingworkloads"
        assert len((await client.request("GET", whole, query={"limit": "999999999"})).json["items"]) == 3
        assert (await client.request("GET", whole, query={"offset": "9"})).json["items"] == []
        assert (await client.request("GET", whole, query={"limit": "0"})).json["items"] == []


@on_virtual_time
async def test_owners_are_named(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="0"), a_local_queue())
        owned = a_workload()
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-1", "controller": True}
        owned["metadata"]["ownerReferences"] = [owner]
        await world.make(owned)
        await clock.sleep(2)
        [item] = (await client_of(world).request("GET", f"{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads")).json[
            "items"
        ]
        shown = [{name: value for name, value in owner.items() if name != "controller"}]
        assert item["metadata"]["ownerReferences"] == shown


@on_virtual_time
async def test_what_is_not_there_and_what_is_not_allowed(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await with_a_line(world)
        client = client_of(world)
        for path, said in (
            ("v1beta2/clusterqueues/nowhere/pendingworkloads", 'clusterqueue.visibility.kueue.x-k8s.io "nowhere" not'),
            ("v1beta2/namespaces/default/localqueues/nowhere/pendingworkloads", '"nowhere" not found'),
            ("v1beta2/namespaces/elsewhere/localqueues/lq/pendingworkloads", '"lq" not found'),
            ("v1/clusterqueues/cq/pendingworkloads", "could not find"),
            ("v1beta2/clusterqueues/cq", "could not find"),
        ):
            reply = await client.request("GET", f"{GROUP}/{path}")
            assert (reply.status, reply.json["reason"]) == (404, "NotFound"), path
            assert said in reply.json["message"]
        place = f"{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads"
        assert (await client.request("POST", place)).status == 405
        for query in ({"limit": "-1"}, {"offset": "many"}):
            assert (await client.request("GET", place, query=query)).status == 400
        assert (await client_of(world, NODE_TOKEN).request("GET", place)).status == 403
        assert (await client_of(world, "").request("GET", place)).status == 401


@on_virtual_time
async def test_the_gate_switches_it_off(clock: VirtualClock) -> None:
    gates = Gates.default().changed({"VisibilityOnDemand": False})
    async with a_world(clock, Settings(gates=gates)) as world:
        await with_a_line(world)
        reply = await client_of(world).request("GET", f"{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads")
        assert reply.status == 404


@on_virtual_time
async def test_discovery_shows_it_after_kueues_own_queues(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        client = client_of(world)
        listed = (await client.request("GET", f"{GROUP}/v1beta2")).json["resources"]
        assert {(entry["name"], entry["kind"], tuple(entry["verbs"])) for entry in listed} == {
            ("clusterqueues", "ClusterQueue", ()),
            ("clusterqueues/pendingworkloads", "PendingWorkloadsSummary", ("get",)),
            ("localqueues", "LocalQueue", ()),
            ("localqueues/pendingworkloads", "PendingWorkloadsSummary", ("get",)),
        }
        names = [group["name"] for group in (await client.request("GET", "/k8s/apis")).json["groups"]]
        assert names.index("kueue.x-k8s.io") < names.index("visibility.kueue.x-k8s.io")


def why(name: str) -> str:
    return f"/k8s/apis/visibility.muster.dev/v1/namespaces/default/workloads/{name}/explanation"


@on_virtual_time
async def test_why_one_waits_runs_or_is_unknown(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await with_a_line(world)
        client = client_of(world)
        waits = (await client.request("GET", why("a"))).json
        assert (waits["state"], waits["position"], waits["clusterQueue"]) == ("Waiting", 1, "cq")
        [lack] = waits["missing"]
        assert (lack["flavor"], lack["resource"], lack["asked"], lack["free"]) == ("f", "cpu", "1", "0")
        assert lack["holders"][0]["clusterQueue"] == "cq"
        assert "1 workload ahead in ClusterQueue cq" in waits["summary"]
        runs = (await client.request("GET", why("runs"))).json
        assert (runs["state"], runs["position"]) == ("Admitted", None)
        assert runs["summary"] == "it does not wait: ClusterQueue cq has admitted it"
        assert runs.keys() == waits.keys()
        unknown = await client.request("GET", why("nobody"))
        assert (unknown.status, unknown.json["message"]) == (404, 'workloads.kueue.x-k8s.io "nobody" not found')


@on_virtual_time
async def test_why_one_waits_for_whom_quota_would_do_but_no_rack(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        for host in (a_host("n1", cpu=2), a_host("n2", cpu=2)):
            await write_one(world.store, Create(core.NODE, host.document()))
        topology = {"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}}
        await write_one(world.store, Create(kueue.TOPOLOGY, topology))
        racked = a_flavor("racked", topologyName="racks", nodeLabels={"block": "b1"})
        await world.make(racked, a_queue(cpu="9", flavor="racked"), a_local_queue())
        large = a_workload("large", cpu="2")
        large["spec"]["podSets"][0] |= {"count": 3, "topologyRequest": {"required": RACK}}
        await world.make(large)
        await clock.sleep(3)
        found = (await client_of(world).request("GET", why("large"))).json
        assert (found["state"], found["missing"]) == ("Waiting", [])
        assert found["unplaced"] == ['pod set main: topology "racks" allows to fit only 2 out of 3 pod(s)']
        assert found["unplaced"][0] in found["summary"]
        assert found["unplaced"][0] in await world.message("Waiting", name="large")


async def test_what_the_scheduler_decided_is_for_those_who_may_know(store: EmbeddedStore) -> None:
    lookouts = Lookouts(decisions=lambda: [b'{"began":1}\n', b'{"bound":2}\n'])
    app = app_for(store, lookouts=lookouts, tokens={NODE_TOKEN: access.a_node("n")})
    place = "/k8s/apis/visibility.muster.dev/v1/schedulers/muster/decisions"
    reply = await AsgiClient(app, TOKEN).request("GET", place)
    assert (reply.body, reply.header("content-type")) == (b'{"began":1}\n{"bound":2}\n', "application/x-ndjson")
    unknown = await AsgiClient(app, TOKEN).request("GET", place.replace("/muster/", "/other/"))
    assert (unknown.status, unknown.json["message"]) == (404, 'scheduler.visibility.muster.dev "other" not found')
    assert (await AsgiClient(app, NODE_TOKEN).request("GET", place)).status == 403


@on_virtual_time
async def test_metrics_are_for_those_who_are_known(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await with_a_line(world)
        for path in ("/metrics", "/k8s/metrics"):
            reply = await client_of(world).request("GET", path)
            assert reply.header("content-type").startswith("text/plain; version=0.0.4")
            assert b'kueue_pending_workloads{cluster_queue="cq",status="inadmissible"' in reply.body
            assert (await client_of(world, "").request("GET", path)).status == 401
            assert (await client_of(world, NODE_TOKEN).request("GET", path)).status == 403


async def test_without_quota_workloads_are_explained_by_what_they_say(store: EmbeddedStore) -> None:
    await write_one(store, Create(kueue.WORKLOAD, a_workload()))
    client = AsgiClient(app_for(store), TOKEN)
    assert (await client.request("GET", why("w"))).json["summary"] == "it is about to be queued"
    assert (await client.request("GET", f"{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads")).status == 404
    assert (await store.get(kueue.WORKLOAD, Key("default", "w"))).key.name == "w"


@pytest.mark.parametrize("many", [1500])
@on_virtual_time
async def test_a_long_line_is_listed_whole(clock: VirtualClock, many: int) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="0"), a_local_queue())
        await world.make(*(a_workload(f"w{number}") for number in range(many)))
        await clock.sleep(5)
        place = f"{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads"
        client = client_of(world)
        assert len((await client.request("GET", place)).json["items"]) == 1000
        items = (await client.request("GET", place, query={"limit": "5000"})).json["items"]
        assert [item["positionInClusterQueue"] for item in items] == list(range(many))
