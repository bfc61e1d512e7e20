"""Logging in over HTTP: the cookie, by which name the server is called, and what is on record of who is refused."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.accounts.callers import Caller, UserId
from muster.server.determined import account_routes
from muster.server.determined.authenticating import Credentials
from muster.server.determined.router import Router
from muster.store.embedded import EmbeddedStore
from muster.testing import accounts
from muster.testing.accounts import PASSWORD, Ground
from muster.testing.asgi import AsgiClient, Reply
from muster.testing.servers import app_for

pytestmark = pytest.mark.postgres
LOGIN, ROOT = "/api/v1/auth/login", Caller(UserId(1), "admin", is_admin=True)


@dataclass(frozen=True)
class Served:
    ground: Ground
    store: EmbeddedStore

    def client(self, token: str = "", *, is_secure: bool = False) -> AsgiClient:
        services, app = self.ground.services, app_for(self.store)
        routes = account_routes.routes(services, is_secure=is_secure)
        credentials = Credentials(services.accounts.authenticate, "root", ROOT)
        app.mount(Router(routes, credentials.caller, services.authorizer, services.refusals.note))
        return AsgiClient(app, token)

    async def recorded(self) -> list[tuple[str, str, str, str]]:
        await self.ground.services.refusals.once()
        found = await self.ground.services.audit.entries(action="request.")
        return [(each.username, each.deed.action, each.deed.target, each.deed.detail) for each in found.items]


@pytest.fixture
async def served(tmp_path: Path, store: EmbeddedStore) -> AsyncIterator[Served]:
    async with accounts.ground(tmp_path) as ground:
        await ground.person()
        yield Served(ground, store)


async def log_in(client: AsgiClient, username: str, password: str, **headers: str) -> Reply:
    return await client.request("POST", LOGIN, json={"username": username, "password": password}, headers=headers)


async def test_scripts_cannot_read_the_cookie_and_it_stays_on_tls_where_browsers_come_by_it(served: Served) -> None:
    for is_secure in (False, True):
        client = served.client(is_secure=is_secure)
        reply = await log_in(client, "ann", PASSWORD)
        token, *attributes = reply.header("set-cookie").split("; ")
        assert token == f"auth={reply.json['token']}"
        assert attributes == ["Path=/", "HttpOnly", "SameSite=Lax", *(["Secure"] if is_secure else [])]
        cookie = {"cookie": token}
        assert (await client.request("GET", "/api/v1/auth/user", headers=cookie)).json["user"]["username"] == "ann"
        left = await client.request("POST", "/api/v1/auth/logout", headers=cookie)
        assert left.header("set-cookie").startswith("auth=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0")
        assert (await client.request("GET", "/api/v1/auth/user", headers=cookie)).status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:7077", 200),
        ("127.0.0.1", 200),
        ("[::1]:7077", 200),
        ("evil.example:7077", 401),
        ("localhost.evil.example", 401),
        ("[bad", 401),
    ],
)
async def test_a_blank_password_does_only_by_a_name_of_this_machine(served: Served, host: str, status: int) -> None:
    """A page can have its own name mean 127.0.0.1, and would then be the administrator."""
    assert (await log_in(served.client(), "determined", "", host=host)).status == status
    assert (await log_in(served.client(), "ann", PASSWORD, host=host)).status == 200


async def test_what_is_hidden_is_told_as_missing_and_recorded_as_refused(served: Served) -> None:
    root = served.client("root")
    await root.request("POST", "/api/v1/workspaces", json={"name": "lab"})
    await root.request("POST", "/api/v1/workspaces/2/projects", json={"name": "vision"})
    await root.request("POST", "/api/v1/templates/tpl", json={"workspaceId": 2})
    ann = served.client((await log_in(served.client(), "ann", PASSWORD)).json["token"])
    paths = ["/api/v1/workspaces/2", "/api/v1/projects/2", "/api/v1/projects/key/VIS", "/api/v1/templates/tpl"]
    for path in paths:
        hidden = await ann.request("GET", path)
        assert (hidden.status, hidden.json["error"]["code"], hidden.json["error"]["reason"]) == (404, 5, "NotFound")
    missing = [path.replace("/2", "/7").replace("VIS", "NIX").replace("tpl", "nix") for path in paths[1:]]
    for path in missing:
        assert (await ann.request("GET", path)).status == 404
    recorded = [(who, action, target) for who, action, target, _ in reversed(await served.recorded())]
    assert recorded == [("ann", "request.forbidden", f"GET {path}") for path in paths]


async def test_no_secret_is_on_record(served: Served) -> None:
    ann = served.client((await log_in(served.client(), "ann", PASSWORD)).json["token"])
    await ann.request("POST", "/api/v1/users/1/password", json="S3cret-of-admin")
    await ann.request("PATCH", "/api/v1/users/1?x=S3cret", json={"password": "S3cret-of-admin", "isHashed": True})
    await served.client("S3cret-token").request("GET", "/api/v1/me")
    await served.client("S3cret-token").request("GET", "/api/v1/users")
    recorded = await served.recorded()
    assert [(who, action) for who, action, *_ in recorded] == [
        ("", "request.unknown"), ("ann", "request.forbidden"), ("ann", "request.forbidden"),
    ]  # fmt: skip
    assert "3cret" not in str(recorded)
