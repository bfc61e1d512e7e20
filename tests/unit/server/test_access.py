import base64

import pytest

from muster.api import core
from muster.api.objects import Key
from muster.server import access
from muster.server.access import Attributes, TokenAuthenticator
from muster.store.protocol import Bind
from muster.testing.asgi import AsgiClient

PODS = "/k8s/api/v1/namespaces/default/pods"
MERGE = {"content-type": "application/merge-patch+json"}
REVIEWS = "/k8s/apis/authorization.k8s.io/v1"


def basic(text: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


def test_tokens_are_known_however_they_are_sent():
    known = TokenAuthenticator({"secret": access.administrator(), "": access.a_node()})
    assert known.authenticate({"authorization": "Bearer secret"}) == access.administrator()
    assert known.authenticate({"authorization": "bearer  secret "}) == access.administrator()
    assert known.authenticate(basic("admin:secret")) == access.administrator()
    for headers in (
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer wrong"},
        {"authorization": "secret"},
        {"authorization": "Basic !!"},
        basic("secret"),
        basic("admin:"),
        basic("admin:wrong"),
        {"authorization": "Bearer sécret"},
    ):
        assert known.authenticate(headers) is None, headers


@pytest.mark.parametrize(
    ("verb", "group", "resource", "namespace", "name", "allowed"),
    [
        ("list", "", "pods", "", "", True),
        ("create", "", "pods", "default", "p", False),
        ("delete", "", "pods", "default", "p", True),
        ("patch", "", "pods/status", "default", "p", True),
        ("patch", "", "pods", "default", "p", False),
        ("create", "", "nodes", "", "node-a", True),
        ("delete", "", "nodes", "", "node-a", True),
        ("delete", "", "nodes", "", "node-b", False),
        ("patch", "", "nodes/status", "", "node-b", False),
        ("update", "coordination.k8s.io", "leases", "kube-node-lease", "node-a", True),
        ("update", "coordination.k8s.io", "leases", "kube-node-lease", "node-b", False),
        ("update", "coordination.k8s.io", "leases", "kube-system", "node-a", False),
        ("create", "", "events", "default", "", True),
        ("delete", "", "events", "default", "", False),
        ("get", "", "secrets", "default", "s", True),
        ("create", "", "secrets", "default", "s", False),
        ("create", "batch", "jobs", "default", "", False),
        ("create", "", "namespaces", "", "", False),
    ],
)
def test_what_a_node_may_do(verb, group, resource, namespace, name, allowed):
    asked = Attributes(verb, group, resource, namespace, name)
    assert access.allows(access.a_node("node-a"), asked) is allowed
    assert access.allows(access.administrator(), asked)


async def test_the_server_enforces_the_rules(node_client, client, store, make_pod):
    await client.request("POST", PODS, json=make_pod("mine"))
    await client.request("POST", PODS, json=make_pod("theirs"))
    await store.write(
        [Bind(core.POD, Key("default", "mine"), "node-a"), Bind(core.POD, Key("default", "theirs"), "node-b")]
    )
    status = {"status": {"phase": "Running"}}
    assert (await node_client.request("PATCH", f"{PODS}/mine/status", json=status, headers=MERGE)).status == 200
    refused = await node_client.request("PATCH", f"{PODS}/theirs/status", json=status, headers=MERGE)
    assert refused.status == 403
    assert "bound to node node-b" in refused.json["message"]
    assert (await node_client.request("DELETE", f"{PODS}/theirs")).status == 403
    assert (await node_client.request("DELETE", PODS)).status == 403
    assert (await node_client.request("POST", PODS, json=make_pod("new"))).status == 403
    nodes = "/k8s/api/v1/nodes"
    assert (await node_client.request("POST", nodes, json={"metadata": {"name": "node-a"}})).status == 201
    other = await node_client.request("POST", nodes, json={"metadata": {"name": "node-b"}})
    assert other.json["message"] == (
        'nodes "node-b" is forbidden: User "system:node:node-a" cannot create resource "nodes" in API group "" at the '
        "cluster scope"
    )


async def test_strangers_are_told_how_to_be_known(app):
    reply = await AsgiClient(app, "wrong").request("GET", PODS)
    assert (reply.status, reply.json["reason"]) == (401, "Unauthorized")
    assert "Bearer" in reply.json["message"]


async def test_reviews_say_what_the_server_would(client, node_client):
    attributes = {"verb": "create", "resource": "pods", "namespace": "default"}
    review = {"spec": {"resourceAttributes": attributes}}
    path = f"{REVIEWS}/selfsubjectaccessreviews"
    reply = await client.request("POST", path, json=review)
    assert (reply.status, reply.json["kind"], reply.json["status"]["allowed"]) == (201, "SelfSubjectAccessReview", True)
    assert (await node_client.request("POST", path, json=review)).json["status"]["allowed"] is False
    other = {"spec": {"resourceAttributes": attributes, "user": "system:node:x"}}
    assert (await client.request("POST", f"{REVIEWS}/subjectaccessreviews", json=other)).json["status"][
        "allowed"
    ] is False
    assert (await node_client.request("POST", f"{REVIEWS}/subjectaccessreviews", json=other)).status == 403
    local = f"{REVIEWS}/namespaces/default/localsubjectaccessreviews"
    assert (await client.request("POST", local, json=other)).json["status"]["allowed"] is False
    path_review = {"spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}}
    assert (await node_client.request("POST", path, json=path_review)).json["status"]["allowed"] is True
    empty = await client.request("POST", path, json={"spec": {}})
    assert (empty.status, empty.json["details"]["causes"][0]["field"]) == (422, "spec.resourceAttributes")
    wrong = await client.request("POST", path, json={"spec": []})
    assert wrong.status == 400


async def test_who_am_i_and_what_may_i(client, node_client):
    who = await node_client.request("POST", "/k8s/apis/authentication.k8s.io/v1/selfsubjectreviews", json={})
    assert who.json["status"]["userInfo"]["username"] == "system:node:node-a"
    rules = await node_client.request(
        "POST", f"{REVIEWS}/selfsubjectrulesreviews", json={"spec": {"namespace": "default"}}
    )
    own = [rule for rule in rules.json["status"]["resourceRules"] if "nodes/status" in rule["resources"]]
    assert own[0]["resourceNames"] == ["node-a"]
    everything = await client.request("POST", f"{REVIEWS}/selfsubjectrulesreviews", json={"spec": {}})
    assert everything.json["status"]["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
