"""A server whose objects are those of a cluster."""

from muster.server import access
from muster.server.access import TokenAuthenticator
from muster.server.app import App, ObjectsElsewhere, Version
from muster.testing.asgi import AsgiClient

TOKEN = "an-administrators"


def client_of(token: str) -> AsgiClient:
    known = TokenAuthenticator({TOKEN: access.administrator()})
    return AsgiClient(App(ObjectsElsewhere(), known, Version("1.2.3"), lambda: ["measured 1\n"]), token)


async def test_objects_are_told_to_be_elsewhere() -> None:
    for path in ("/k8s/api/v1/nodes", "/k8s/apis/visibility.muster.dev/v1/schedulers/muster/decisions", "/k8s/apis"):
        reply = await client_of(TOKEN).request("GET", path)
        assert reply.status == 404
        assert "its own API server" in reply.json["message"]
    assert (await client_of("unknown").request("GET", "/k8s/api/v1/nodes")).status == 401


async def test_the_rest_is_served_as_ever() -> None:
    assert (await client_of("").request("GET", "/readyz")).status == 200
    assert (await client_of(TOKEN).request("GET", "/metrics")).body == b"measured 1\n"
