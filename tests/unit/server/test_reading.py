import asyncio
import gzip

import pytest

from muster.api import core
from muster.api.raw import Document
from muster.store.protocol import Create

PODS = "/k8s/api/v1/namespaces/default/pods"
MAPS = "/k8s/api/v1/namespaces/default/configmaps"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
METADATA = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}


def config_map(name: str, size: int = 1, **labels: str) -> Document:
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}, "data": {"k": "v" * size}}


@pytest.fixture
async def maps(store):
    await store.write([Create(core.CONFIG_MAP, config_map(f"m{n}", odd=str(n % 2))) for n in range(5)])


async def test_an_object_is_served_as_it_is_stored(client, store, maps):
    reply = await client.request("GET", f"{MAPS}/m1")
    assert reply.status == 200
    assert reply.body == (await store.get(core.CONFIG_MAP, ("default", "m1"))).raw


async def test_a_missing_object_is_told_in_kubernetes_words(client):
    reply = await client.request("GET", f"{MAPS}/nobody")
    assert reply.status == 404
    assert reply.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "NotFound",
        "code": 404,
        "message": 'configmaps "nobody" not found',
        "details": {"name": "nobody", "kind": "configmaps"},
    }


async def test_a_list_names_its_kind_and_revision(client, store, maps):
    listed = (await client.request("GET", MAPS)).json
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert listed["metadata"] == {"resourceVersion": str(store.revision)}
    assert [item["metadata"]["name"] for item in listed["items"]] == ["m0", "m1", "m2", "m3", "m4"]


async def test_lists_are_selected_by_labels_and_fields(client, maps):
    odd = (await client.request("GET", "/k8s/api/v1/configmaps", query={"labelSelector": "odd=1"})).json
    assert [item["metadata"]["name"] for item in odd["items"]] == ["m1", "m3"]
    one = (await client.request("GET", MAPS, query={"fieldSelector": "metadata.name=m2"})).json
    assert [item["metadata"]["name"] for item in one["items"]] == ["m2"]


async def test_pages_continue_where_they_stopped(client, maps):
    names, token = [], ""
    for expected in (3, 1, None):
        page = (await client.request("GET", MAPS, query={"limit": "2", "continue": token})).json
        names += [item["metadata"]["name"] for item in page["items"]]
        assert page["metadata"].get("remainingItemCount") == expected
        token = page["metadata"].get("continue", "")
    assert (names, token) == (["m0", "m1", "m2", "m3", "m4"], "")


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ({"labelSelector": "a in ("}, 400, "selector"),
        ({"fieldSelector": "spec.nothing=1"}, 400, "field label not supported"),
        ({"limit": "many"}, 400, "limit"),
        ({"limit": "9" * 30}, 400, "limit"),
        ({"continue": "nonsense"}, 400, "continue"),
        ({"continue": "x", "resourceVersion": "3"}, 400, "continue"),
        ({"resourceVersion": "abc"}, 400, "resourceVersion"),
        ({"resourceVersion": "999999"}, 504, "Too large resource version"),
        ({"resourceVersionMatch": "Exact"}, 400, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "1"}, 410, "list again"),
        ({"resourceVersionMatch": "Sometimes", "resourceVersion": "1"}, 400, "NotOlderThan"),
        ({"watch": "maybe"}, 400, "watch"),
    ],
)
async def test_bad_parameters_are_named(client, maps, query, status, says):
    reply = await client.request("GET", MAPS, query=query)
    assert reply.status == status
    assert says in reply.json["message"]


async def test_tables_carry_columns_cells_and_metadata(client, maps):
    table = (await client.request("GET", MAPS, headers=TABLE)).json
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["m0", 1]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = (await client.request("GET", f"{MAPS}/m0", headers=TABLE, query={"includeObject": "Object"})).json
    assert whole["rows"][0]["object"]["data"] == {"k": "v"}


async def test_metadata_alone_can_be_asked_for(client, maps):
    listed = (await client.request("GET", MAPS, headers=METADATA)).json
    assert listed["kind"] == "PartialObjectMetadataList"
    assert listed["items"][0].keys() == {"kind", "apiVersion", "metadata"}


async def test_a_version_that_is_not_stored_is_converted(client):
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "hello",
        "reason": "Testing",
        "type": "Normal",
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": "test.dev/x",
        "reportingInstance": "x-1",
        "action": "Test",
    }
    new = "/k8s/apis/events.k8s.io/v1/namespaces/default/events"
    made = await client.request("POST", new, json=event)
    assert made.status == 201, made.json
    assert (made.json["apiVersion"], made.json["note"]) == ("events.k8s.io/v1", "hello")
    old = (await client.request("GET", "/k8s/api/v1/namespaces/default/events/e")).json
    assert (old["apiVersion"], old["message"], old["involvedObject"]["name"]) == ("v1", "hello", "p")
    listed = (await client.request("GET", new, query={"fieldSelector": "regarding.name=p"})).json
    assert (listed["kind"], listed["apiVersion"], len(listed["items"])) == ("EventList", "events.k8s.io/v1", 1)
    patched = await client.request(
        "PATCH", f"{new}/e", body=b'{"note":"changed"}', headers={"content-type": "application/merge-patch+json"}
    )
    assert patched.json["note"] == "changed"


async def test_large_lists_are_compressed_for_those_who_ask(client, store):
    await store.write([Create(core.CONFIG_MAP, config_map(f"big{n}", 50_000)) for n in range(5)])
    plain = await client.request("GET", MAPS)
    packed = await client.request("GET", MAPS, headers={"accept-encoding": "gzip, deflate"})
    assert packed.header("content-encoding") == "gzip"
    assert len(packed.body) < len(plain.body) / 10
    assert gzip.decompress(packed.body) == plain.body
    small = await client.request("GET", f"{MAPS}/nobody", headers={"accept-encoding": "gzip"})
    assert small.header("content-encoding") == ""


async def test_what_cannot_be_served_as_json_is_not_acceptable(client):
    reply = await client.request("GET", PODS, headers={"accept": "application/vnd.kubernetes.protobuf"})
    assert (reply.status, reply.json["reason"]) == (406, "NotAcceptable")


async def test_others_are_served_while_a_large_table_is_made(client, store):
    await store.write([Create(core.CONFIG_MAP, config_map(f"c{n}")) for n in range(1000)])
    turns = 0

    async def another() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    waiting = asyncio.ensure_future(another())
    table = await client.request("GET", MAPS, headers=TABLE)
    waiting.cancel()
    assert len(table.json["rows"]) == 1000
    assert turns >= 4
