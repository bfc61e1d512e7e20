from muster.api.everything import REGISTRY
from muster.testing.asgi import AsgiClient

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def test_plain_discovery_leads_from_the_roots_to_every_resource(client):
    roots = (await client.request("GET", "/k8s/api")).json
    assert roots["kind"] == "APIVersions"
    group_versions = list(roots["versions"])
    for group in (await client.request("GET", "/k8s/apis")).json["groups"]:
        assert (await client.request("GET", f"/k8s/apis/{group['name']}")).json["preferredVersion"] in group["versions"]
        group_versions += [version["groupVersion"] for version in group["versions"]]
    found = set()
    for group_version in group_versions:
        root = "apis" if "/" in group_version else "api"
        listed = (await client.request("GET", f"/k8s/{root}/{group_version}")).json
        assert listed["groupVersion"] == group_version
        found |= {(group_version, resource["name"]) for resource in listed["resources"]}
    assert {(kind.api_version, kind.plural) for kind in REGISTRY} <= found
    assert {("v1", "pods/log"), ("v1", "pods/binding"), ("v1", "pods/eviction"), ("v1", "pods/status")} <= found
    assert ("authorization.k8s.io/v1", "selfsubjectaccessreviews") in found
    assert ("events.k8s.io/v1", "events") in found


async def test_aggregated_discovery_says_the_same_at_once(client):
    found = set()
    for root in ("api", "apis"):
        reply = await client.request("GET", f"/k8s/{root}", headers={"accept": AGGREGATED})
        assert "as=APIGroupDiscoveryList" in reply.header("content-type")
        for group in reply.json["items"]:
            for version in group["versions"]:
                for resource in version["resources"]:
                    kind = resource["responseKind"]
                    found.add((kind["group"], kind["version"], resource["resource"], kind["kind"]))
    assert {(kind.group, kind.version, kind.plural, kind.name) for kind in REGISTRY} <= found


async def test_a_client_that_knows_it_already_is_told_so(client):
    headers = {"accept": AGGREGATED}
    etag = (await client.request("GET", "/k8s/apis", headers=headers)).header("etag")
    again = await client.request("GET", "/k8s/apis", headers={**headers, "if-none-match": etag})
    assert (again.status, again.body) == (304, b"")


async def test_the_preferred_version_is_the_stored_one(client):
    kueue = (await client.request("GET", "/k8s/apis/kueue.x-k8s.io")).json
    assert kueue["preferredVersion"]["version"] == "v1beta2"
    assert [version["version"] for version in kueue["versions"]] == ["v1beta2", "v1beta1"]


async def test_what_is_not_there_is_not_found(client):
    for path in ("/k8s/apis/nowhere.io", "/k8s/apis/batch/v9", "/k8s/api/v9", "/k8s/openapi/v2", "/k8s/nothing"):
        reply = await client.request("GET", path)
        assert (reply.status, reply.json["reason"]) == (404, "NotFound"), path


async def test_openapi_documents_are_found_through_their_index(client):
    index = (await client.request("GET", "/k8s/openapi/v3")).json["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/kueue.x-k8s.io/v1beta2"} <= index.keys()
    url = index["apis/batch/v1"]["serverRelativeURL"]
    path, _, digest = url.partition("?hash=")
    reply = await client.request("GET", f"/k8s{path}", query={"hash": digest})
    assert any(name.endswith("v1.Job") for name in reply.json["components"]["schemas"])
    headers = {"if-none-match": reply.header("etag")}
    assert (await client.request("GET", f"/k8s{path}", query={"hash": digest}, headers=headers)).status == 304


async def test_health_and_version_are_for_everybody(app):
    stranger = AsgiClient(app)
    for path in ("/healthz", "/readyz", "/livez", "/k8s/healthz", "/k8s/readyz", "/k8s/livez/ping"):
        assert (await stranger.request("GET", path)).body == b"ok", path
    for path in ("/version", "/k8s/version"):
        assert (await stranger.request("GET", path)).json["gitVersion"].startswith("v1."), path
    for path in ("/k8s/api", "/k8s/api/v1/pods", "/k8s/openapi/v3"):
        assert (await stranger.request("GET", path)).status == 401, path


async def test_a_server_that_is_still_starting_lives_but_is_not_ready(app):
    stranger = AsgiClient(app)
    app.expect_more()
    assert (await stranger.request("GET", "/readyz")).status == 503
    assert (await stranger.request("GET", "/healthz")).status == 200
    app.mount()
    assert (await stranger.request("GET", "/readyz")).status == 200


async def test_the_prefix_may_stand_twice_as_old_and_new_kubectl_send_raw_paths_differently(client):
    assert (await client.request("GET", "/k8s/k8s/api/v1/namespaces/default")).status == 200
