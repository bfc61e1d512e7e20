import pytest

from muster.api import core, raw
from muster.api.objects import Key
from muster.store.protocol import Create

PODS = "/k8s/api/v1/namespaces/default/pods"
MAPS = "/k8s/api/v1/namespaces/default/configmaps"
QUEUES = "/k8s/apis/scheduling.volcano.sh/v1beta1/queues"
MERGE, JSON_PATCH, STRATEGIC, APPLY = (
    {"content-type": kind}
    for kind in (
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    )
)


async def test_what_is_posted_comes_back_with_its_identity(client, make_pod):
    reply = await client.request("POST", PODS, json=make_pod())
    assert reply.status == 201
    assert reply.json["metadata"]["namespace"] == "default"
    assert reply.json["metadata"]["uid"]


async def test_kind_and_version_may_be_left_out_as_python_clients_do(client):
    reply = await client.request("POST", MAPS, json={"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert (reply.status, reply.json["kind"], reply.json["apiVersion"]) == (201, "ConfigMap", "v1")


async def test_yaml_bodies_are_read(client):
    body = b"metadata: {name: a}\ndata: {k: v}\n"
    reply = await client.request("POST", MAPS, body=body, headers={"content-type": "application/yaml"})
    assert (reply.status, reply.json["data"]) == (201, {"k": "v"})


async def test_generated_names(client):
    made = await client.request("POST", MAPS, json={"metadata": {"generateName": "run-"}})
    assert made.json["metadata"]["name"].startswith("run-")


async def test_a_dry_run_answers_and_keeps_nothing(client):
    reply = await client.request("POST", MAPS, json={"metadata": {"name": "a"}}, query={"dryRun": "All"})
    assert reply.status == 201
    assert (await client.request("GET", f"{MAPS}/a")).status == 404


async def test_unknown_fields_warn_refuse_or_pass(client, make_pod):
    pod = make_pod()
    pod["spec"]["containerz"] = []
    warned = await client.request("POST", PODS, json=pod)
    assert warned.status == 201
    assert warned.all("warning") == ['299 - "unknown field \\"spec.containerz\\""']
    pod["metadata"]["name"] = "q"
    refused = await client.request("POST", PODS, json=pod, query={"fieldValidation": "Strict"})
    assert refused.status == 400
    assert 'strict decoding error: unknown field "spec.containerz"' in refused.json["message"]
    ignored = await client.request("POST", PODS, json=pod, query={"fieldValidation": "Ignore"})
    assert (ignored.status, ignored.all("warning")) == (201, [])


async def test_the_three_kinds_of_patches(client, make_pod):
    await client.request("POST", PODS, json=make_pod())
    one = await client.request("PATCH", f"{PODS}/p", json={"metadata": {"labels": {"a": "1"}}}, headers=MERGE)
    assert one.json["metadata"]["labels"] == {"a": "1"}
    operation = [{"op": "add", "path": "/metadata/labels/b", "value": "2"}]
    two = await client.request("PATCH", f"{PODS}/p", json=operation, headers=JSON_PATCH)
    assert two.json["metadata"]["labels"] == {"a": "1", "b": "2"}
    image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    three = await client.request("PATCH", f"{PODS}/p", json=image, headers=STRATEGIC)
    assert three.json["spec"]["containers"][0]["command"] == ["true"]


async def test_kinds_that_kubernetes_does_not_know_take_no_strategic_patches(client):
    await client.request("POST", QUEUES, json={"metadata": {"name": "q"}, "spec": {"weight": 1}})
    reply = await client.request("PATCH", f"{QUEUES}/q", json={"spec": {"weight": 2}}, headers=STRATEGIC)
    assert reply.status == 415
    assert "application/merge-patch+json" in reply.json["message"]


async def test_apply_creates_then_changes_and_finds_conflicts(client):
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}

    async def apply(manager: str, **query: str):
        body = raw.to_yaml(document).encode()
        query = {"fieldManager": manager, **query}
        return await client.request("PATCH", f"{MAPS}/a", body=body, headers=APPLY, query=query)

    assert (await apply("alice")).status == 201
    assert (await apply("alice")).status == 200
    document["data"] = {"k": "2"}
    conflict = await apply("bob")
    assert (conflict.status, conflict.json["reason"]) == (409, "Conflict")
    assert "alice" in conflict.json["message"]
    assert conflict.json["details"]["causes"]
    assert (await apply("bob", force="true")).json["data"] == {"k": "2"}
    assert "fieldManager" in (await apply("")).json["message"]


async def test_a_manager_is_known_by_its_user_agent(client, store):
    await client.request(
        "PATCH", f"{MAPS}/a", body=b"{metadata: {name: a}, data: {k: v}}", headers=APPLY, query={"fieldManager": "me"}
    )
    headers = {**MERGE, "user-agent": "kubectl/v1.32.4 (linux/amd64) kubernetes/4cb5f07"}
    patched = await client.request("PATCH", f"{MAPS}/a", json={"data": {"more": "1"}}, headers=headers)
    assert [entry["manager"] for entry in patched.json["metadata"]["managedFields"]] == ["me", "kubectl"]


async def test_the_status_is_written_apart(client):
    nodes = "/k8s/api/v1/nodes"
    made = (await client.request("POST", nodes, json={"metadata": {"name": "n"}})).json
    made["status"] = {"capacity": {"cpu": "4"}}
    made["spec"] = {"unschedulable": True}
    status = await client.request("PUT", f"{nodes}/n/status", json=made)
    assert status.json["status"]["capacity"] == {"cpu": "4"}
    assert "unschedulable" not in status.json.get("spec", {})
    assert (await client.request("GET", f"{nodes}/n/status")).json == status.json


async def test_a_pod_is_bound_once(client, make_pod):
    uid = (await client.request("POST", PODS, json=make_pod())).json["metadata"]["uid"]
    binding = {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": "p", "uid": uid, "annotations": {"a.b/c": "d"}},
    }
    missing = await client.request("POST", f"{PODS}/p/binding", json=binding)
    assert (missing.status, missing.json["details"]["causes"][0]["field"]) == (422, "target.name")
    binding["target"] = {"kind": "Node", "name": "n1"}
    bound = await client.request("POST", f"{PODS}/p/binding", json=binding)
    assert (bound.status, bound.json["status"]) == (201, "Success")
    pod = (await client.request("GET", f"{PODS}/p")).json
    assert (pod["spec"]["nodeName"], pod["metadata"]["annotations"]) == ("n1", {"a.b/c": "d"})
    assert (await client.request("POST", f"{PODS}/p/binding", json=binding)).status == 409


async def test_a_namespace_is_finalized(client, store):
    spaces = "/k8s/api/v1/namespaces"
    await client.request("POST", spaces, json={"metadata": {"name": "team"}})
    marked = (await client.request("DELETE", f"{spaces}/team")).json
    assert marked["status"]["phase"] == "Terminating"
    marked["spec"]["finalizers"] = []
    assert (await client.request("PUT", f"{spaces}/team/finalize", json=marked)).status == 200
    assert (await client.request("GET", f"{spaces}/team")).status == 404


async def test_protobuf_bodies_are_read(client):
    """What `kubectl create configmap a --from-literal=k=v` sends, by hand: an envelope around a ConfigMap."""
    meta = b"\x0a\x01a"  # name: a
    entry = b"\x0a\x01k\x12\x01v"
    config_map = b"\x0a%c%b\x12%c%b" % (len(meta), meta, len(entry), entry)
    type_ = b"\x0a\x02v1\x12\x09ConfigMap"
    body = b"k8s\x00\x0a%c%b\x12%c%b" % (len(type_), type_, len(config_map), config_map)
    reply = await client.request(
        "POST", MAPS, body=body, headers={"content-type": "application/vnd.kubernetes.protobuf"}
    )
    assert (reply.status, reply.json["data"]) == (201, {"k": "v"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/k8s/api/v1/pods", 405),
        ("PUT", PODS, 405),
        ("POST", f"{PODS}/p", 405),
        ("DELETE", f"{PODS}/p/status", 405),
        ("POST", f"{PODS}/p/log", 405),
        ("GET", f"{PODS}/p/binding", 405),
        ("TRACE", PODS, 405),
        ("POST", f"{PODS}/p/exec", 405),
        ("GET", f"{PODS}/p/nothing", 404),
        ("GET", f"{MAPS}/a/status", 404),
        ("GET", "/k8s/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
    ],
)
async def test_methods_and_places_that_do_not_go_together(client, method, path, status):
    reply = await client.request(method, path, json={"metadata": {"name": "p"}})
    assert (reply.status, reply.json["kind"]) == (status, "Status")


async def test_a_stored_object_of_two_versions_is_written_in_both(client):
    old = "/k8s/apis/kueue.x-k8s.io/v1beta1/clusterqueues"
    document = {"apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": {"name": "cq"}, "spec": {"cohort": "all"}}
    made = await client.request("POST", old, json=document)
    assert made.status == 201, made.json
    assert made.json["spec"]["cohort"] == "all"
    new = (await client.request("GET", "/k8s/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq")).json
    assert new["spec"]["cohortName"] == "all"
    patched = await client.request("PATCH", f"{old}/cq", json={"spec": {"cohort": "few"}}, headers=MERGE)
    assert patched.json["spec"]["cohort"] == "few"
    replaced = {**patched.json, "spec": {**patched.json["spec"], "cohort": "none"}}
    assert (await client.request("PUT", f"{old}/cq", json=replaced)).json["spec"]["cohort"] == "none"


async def test_a_pod_above_every_node_is_refused_at_the_edge_only(client, store, make_pod):
    document = {"metadata": {"name": "small"}, "status": {"allocatable": {"cpu": "2", "nvidia.com/gpu": "1"}}}
    await client.request("POST", "/k8s/api/v1/nodes", json={"metadata": {"name": "small"}})
    await client.request("PUT", "/k8s/api/v1/nodes/small/status", json=document)
    pod = make_pod()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    refused = await client.request("POST", PODS, json=pod)
    assert refused.status == 422
    (cause,) = refused.json["details"]["causes"]
    assert cause["field"] == "spec.containers[0].resources.limits[nvidia.com/gpu]"
    assert 'the largest node, "small", has 1' in cause["message"]
    assert isinstance(
        (await store.write([Create(core.POD, pod | {"metadata": {"name": "inner", "namespace": "default"}})]))[
            0
        ].object.key,
        Key,
    )
    pod["metadata"]["annotations"] = {"muster.dev/wait-for-nodes": "true"}
    assert (await client.request("POST", PODS, json=pod)).status == 201
