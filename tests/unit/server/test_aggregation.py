"""What an API server passes on: whom it speaks for is believed only where it shows who it is."""

import json
from typing import Any

import pytest
import trustme
from starlette.types import Receive, Scope, Send

from muster.api import errors
from muster.server.aggregation import front_proxy
from muster.server.aggregation.answering import Aggregated
from muster.server.aggregation.authorizing import Reviews
from muster.server.aggregation.front_proxy import Caller, FrontProxy
from muster.server.visibility import VisibilityApi
from muster.store.embedded import EmbeddedStore
from muster.testing.asgi import AsgiClient

AUTHORITY, OTHER = trustme.CA(), trustme.CA()
GROUP = "/apis/visibility.muster.dev/v1"


def a_certificate(authority: trustme.CA = AUTHORITY, name: str = "front-proxy-client") -> str:
    return authority.issue_cert("proxy.invalid", common_name=name).cert_chain_pems[0].bytes().decode()


def data(**changed: str) -> dict[str, str]:
    """As Kubernetes writes it."""
    told = {
        "requestheader-client-ca-file": AUTHORITY.cert_pem.bytes().decode(),
        "requestheader-allowed-names": json.dumps(["front-proxy-client"]),
        "requestheader-username-headers": json.dumps(["X-Remote-User"]),
        "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
        "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
        "requestheader-uid-headers": json.dumps(["X-Remote-Uid"]),
    }
    return told | {name.replace("_", "-"): value for name, value in changed.items()}


def believed(**changed: str) -> FrontProxy:
    found = front_proxy.read(data(**changed))
    assert found is not None
    return found


HEADERS = [
    (b"x-remote-user", b"ana"),
    (b"x-remote-group", b"research"),
    (b"x-remote-group", b"system:authenticated"),
    (b"x-remote-uid", b"u-1"),
    (b"x-remote-extra-example.com%2fscope", b"all"),
]


def test_a_caller_is_who_the_api_server_says() -> None:
    groups, extra = ("research", "system:authenticated"), {"example.com/scope": ["all"]}
    assert believed().caller(a_certificate(), HEADERS) == Caller("ana", groups, "u-1", extra)


@pytest.mark.parametrize(
    ("certificate", "headers"),
    [
        pytest.param("", HEADERS, id="nothing was shown"),
        pytest.param("nonsense", HEADERS, id="no certificate"),
        pytest.param(a_certificate(OTHER), HEADERS, id="signed by somebody else"),
        pytest.param(a_certificate(name="kubelet"), HEADERS, id="of another name"),
        pytest.param(a_certificate(), HEADERS[1:], id="for nobody"),
    ],
)
def test_nobody_else_is_believed(certificate: str, headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(errors.Unauthorized):
        believed().caller(certificate, headers)


def test_where_no_names_are_listed_any_will_do_and_a_retired_authority_will_not() -> None:
    certificate = a_certificate(name="anybody")
    assert believed(requestheader_allowed_names="[]").caller(certificate, HEADERS).name == "ana"
    both = AUTHORITY.cert_pem.bytes() + OTHER.cert_pem.bytes()
    assert believed(requestheader_client_ca_file=both.decode()).caller(a_certificate(OTHER), HEADERS).name == "ana"
    only = believed(requestheader_client_ca_file=OTHER.cert_pem.bytes().decode())
    with pytest.raises(errors.Unauthorized):
        only.caller(a_certificate(), HEADERS)


def test_a_cluster_that_passes_nothing_on_and_one_that_says_nonsense() -> None:
    assert front_proxy.read({"client-ca-file": "PEM"}) is None
    with pytest.raises(errors.BadRequest, match="requestheader-group-headers: expected a list of texts"):
        front_proxy.read(data(requestheader_group_headers="X-Remote-Group"))
    with pytest.raises(errors.BadRequest, match="requestheader-client-ca-file"):
        front_proxy.read(data(requestheader_client_ca_file="PEM"))


class ByApiServer:
    """A connection on which a certificate was shown."""

    def __init__(self, app: Aggregated, certificate: str) -> None:
        self._app = app
        self._certificate = certificate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown: dict[str, Any] = {"tls": {"client_cert_chain": [self._certificate]}}
        await self._app({**scope, "extensions": shown}, receive, send)


def a_client(store: EmbeddedStore, *, is_leading: bool = True, certificate: str = "") -> AsgiClient:
    api = VisibilityApi(store, None)
    app = Aggregated(api, Reviews(store), believed, lambda: is_leading)
    return AsgiClient(ByApiServer(app, certificate or a_certificate()))


ANA = {"x-remote-user": "ana"}


async def test_every_replica_answers_discovery_and_only_a_leader_the_rest(store: EmbeddedStore) -> None:
    standby = a_client(store, is_leading=False)
    groups = (await standby.request("GET", "/apis", headers=ANA)).json["groups"]
    assert [each["name"] for each in groups] == ["visibility.kueue.x-k8s.io", "visibility.muster.dev"]
    assert (await standby.request("GET", GROUP, headers=ANA)).json["kind"] == "APIResourceList"
    reply = await standby.request("GET", f"{GROUP}/schedulers/muster/decisions", headers=ANA)
    assert (reply.status, reply.header("retry-after"), reply.header("connection")) == (503, "1", "close")
    assert "only the leader knows" in reply.json["message"]


async def test_nothing_is_told_to_who_is_not_believed(store: EmbeddedStore) -> None:
    stranger = a_client(store, certificate=a_certificate(OTHER))
    for path in ("/apis", GROUP, f"{GROUP}/schedulers/muster/decisions"):
        assert (await stranger.request("GET", path, headers=ANA)).status == 401


async def test_there_is_nothing_else(store: EmbeddedStore) -> None:
    client = a_client(store)
    assert (await client.request("GET", "/openapi/v2", headers=ANA)).json["paths"] == {}
    for path in ("/apis/apps/v1", f"{GROUP}/nodes/n", "/openapi/v3"):
        assert (await client.request("GET", path, headers=ANA)).status == 404
    refused = await client.request("POST", f"{GROUP}/schedulers/muster/decisions", headers=ANA)
    assert refused.status == 405
