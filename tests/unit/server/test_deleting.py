import asyncio

import pytest

from muster.api import core
from muster.api.objects import Key
from muster.store.protocol import Bind, Create, Patch

PODS = "/k8s/api/v1/namespaces/default/pods"
MAPS = "/k8s/api/v1/namespaces/default/configmaps"
BUDGETS = "/k8s/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
async def maps(store):
    documents = [{"metadata": {"name": n, "namespace": "default", "labels": {"n": n}}} for n in ("a", "b", "c")]
    await store.write([Create(core.CONFIG_MAP, document) for document in documents])


async def test_what_is_gone_at_once_is_answered_with_a_status(client, maps):
    reply = await client.request("DELETE", f"{MAPS}/a")
    assert (reply.status, reply.json["status"]) == (200, "Success")
    assert reply.json["details"]["name"] == "a"
    assert (await client.request("DELETE", f"{MAPS}/a")).status == 404


async def test_what_stays_a_while_is_answered_with_itself(client, store, maps):
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
    reply = await client.request("DELETE", f"{MAPS}/a", json=options)
    assert reply.json["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert reply.json["metadata"]["deletionTimestamp"]


async def test_options_may_stand_in_the_query(client, store, make_pod):
    await client.request("POST", PODS, json=make_pod())
    await store.write([Bind(core.POD, Key("default", "p"), "n1")])
    reply = await client.request("DELETE", f"{PODS}/p", query={"gracePeriodSeconds": "7"})
    assert reply.json["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_preconditions_are_kept(client, maps):
    options = {"preconditions": {"uid": "somebody-else"}}
    assert (await client.request("DELETE", f"{MAPS}/a", json=options)).status == 409
    options = {"preconditions": {"resourceVersion": "1"}}
    assert (await client.request("DELETE", f"{MAPS}/a", json=options)).status == 409


async def test_a_dry_run_deletes_nothing(client, maps):
    assert (await client.request("DELETE", f"{MAPS}/a", json={"dryRun": ["All"]})).status == 200
    assert (await client.request("DELETE", f"{MAPS}/a", query={"dryRun": "All"})).status == 200
    assert (await client.request("GET", f"{MAPS}/a")).status == 200


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        ({"propagationPolicy": "Everything"}, 422, "propagationPolicy"),
        ({"gracePeriodSeconds": "soon"}, 400, "gracePeriodSeconds"),
        ({"dryRun": ["Some"]}, 400, "dryRun"),
        ({"kind": "Pod"}, 400, "DeleteOptions"),
        ({"preconditions": {"resourceVersion": "x"}}, 400, "resourceVersion"),
        ([], 400, "object"),
    ],
)
async def test_bad_options_are_named(client, maps, options, status, says):
    reply = await client.request("DELETE", f"{MAPS}/a", json=options)
    assert reply.status == status
    assert says in reply.json["message"]


async def test_a_collection_is_deleted_as_selected(client, maps):
    reply = await client.request("DELETE", MAPS, query={"labelSelector": "n in (a,b)"})
    assert [item["metadata"]["name"] for item in reply.json["items"]] == ["a", "b"]
    left = (await client.request("GET", MAPS)).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]


# Eviction


@pytest.fixture
async def guarded(client, store, make_pod):
    """Three ready pods, of which two must stay."""
    for name in ("p1", "p2", "p3"):
        pod = make_pod(name)
        pod["metadata"]["labels"] = {"app": "x"}
        await client.request("POST", PODS, json=pod)
        key = Key("default", name)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await store.write([Bind(core.POD, key, "n1"), Patch(core.POD, key, {"status": status}, subresource="status")])
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "x"}}}
    made = await client.request("POST", BUDGETS, json={"metadata": {"name": "guard"}, "spec": spec})
    assert made.status == 201, made.json


async def evict(client, name: str, **options):
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **options}
    return await client.request("POST", f"{PODS}/{name}/eviction", json=eviction)


async def test_evictions_stop_where_the_budget_does(client, guarded):
    first = await evict(client, "p1")
    assert (first.status, first.json["status"]) == (201, "Success")
    assert (await client.request("GET", f"{PODS}/p1")).json["metadata"]["deletionTimestamp"]
    second = await evict(client, "p2")
    assert (second.status, second.json["reason"]) == (429, "TooManyRequests")
    assert second.json["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    cause = second.json["details"]["causes"][0]["message"]
    assert cause == "The disruption budget guard needs 2 healthy pods and has 2 currently"
    assert second.header("retry-after") == "10"


async def test_evictions_at_the_same_time_do_not_both_take_the_last_chance(client, guarded):
    replies = await asyncio.gather(*(evict(client, name) for name in ("p1", "p2", "p3")))
    assert sorted(reply.status for reply in replies) == [201, 429, 429]


async def test_a_finished_pod_can_always_go(client, store, guarded):
    await evict(client, "p1")
    await store.write([Patch(core.POD, Key("default", "p2"), {"status": {"phase": "Failed"}}, subresource="status")])
    assert (await evict(client, "p2")).status == 201


async def test_percentages_are_rounded_for_safety(client, store, guarded):
    patch = {"spec": {"minAvailable": "50%"}}
    await client.request(
        "PATCH", f"{BUDGETS}/guard", json=patch, headers={"content-type": "application/merge-patch+json"}
    )
    assert (await evict(client, "p1")).status == 201
    assert (await evict(client, "p2")).status == 429


async def test_pods_without_a_budget_go_with_the_options_given(client, store, make_pod):
    await client.request("POST", PODS, json=make_pod("free"))
    await store.write([Bind(core.POD, Key("default", "free"), "n1")])
    await evict(client, "free", deleteOptions={"gracePeriodSeconds": 3})
    assert (await client.request("GET", f"{PODS}/free")).json["metadata"]["deletionGracePeriodSeconds"] == 3
    assert (await evict(client, "nobody")).status == 404
    reply = await client.request("POST", f"{PODS}/free/eviction", json={"metadata": {"name": "other"}})
    assert reply.status == 400
