"""All routes as a platform mounts them: each is there, described and guarded, and answers nonsense with a reason."""

import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from muster.api.raw import JSON, Document
from muster.assembly.addresses import Place
from muster.assembly.configured import ServeSettings
from muster.assembly.determined import Determined, Surroundings, determined
from muster.assembly.logging_live import LiveSettings
from muster.assembly.platform import kept_running
from muster.controllers.quota import QuotaController
from muster.controllers.quota.visibility import Visibility
from muster.runtime.clock import SystemClock
from muster.server import determined as areas
from muster.server.determined.paging import Paged, Pagination
from muster.server.determined.routing import Route
from muster.settings.sections import PlatformSettings, Security
from muster.store.embedded import EmbeddedStore
from muster.testing.asgi import AsgiClient
from muster.testing.servers import app_for

ROOT = "the-token-of-the-data-directory"
PASSWORD = "Secret123"
PUBLIC = {("GET", "/info"), ("GET", "/health"), ("GET", "/api/v1/master"), ("POST", "/api/v1/auth/login")}
AGGREGATES = {"account_routes"}
NONSENSE: Sequence[JSON] = (
    "x", -1, 2**80, 1.5, True, [], [None], [{}], {}, {"a": {"b": []}}, "\x00", "'; DROP TABLE users; --", "é" * 300,
)  # fmt: skip


@dataclass(frozen=True)
class Mounted:
    api: Determined
    root: AsgiClient
    nobody: AsgiClient

    @property
    def routes(self) -> Sequence[Route]:
        return self.api.router.routes


@pytest.fixture
async def mounted(tmp_path: Path) -> AsyncIterator[Mounted]:
    settings = PlatformSettings(security=Security(initial_user_password=PASSWORD))
    live, clock = LiveSettings(settings), SystemClock()
    async with EmbeddedStore.in_memory(clock=clock) as store:
        around = Surroundings(
            store=store,
            clock=clock,
            place=Place((), "http://127.0.0.1:7077", is_local=True),
            trusted="",
            root_token=ROOT,
            live=live,
            log=live.ring,
            queues=Visibility(QuotaController(store, clock), clock),
        )
        async with determined(ServeSettings(tmp_path, settings), around) as api:
            app = app_for(store)
            app.mount(api.router, api.identify, api.pages)
            async with kept_running(api.components, clock):
                yield Mounted(api, AsgiClient(app, ROOT), AsgiClient(app))


def path_of(route: Route, value: str = "1") -> str:
    return "/".join(value if part.startswith("{") else part for part in route.path.split("/"))


def refs(value: JSON) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            if name == "$ref":
                yield str(member)
            else:
                yield from refs(member)
    elif isinstance(value, list):
        for member in value:
            yield from refs(member)


async def test_every_area_is_mounted(mounted: Mounted) -> None:
    handled = {(route.handle or route.follow).__module__ for route in mounted.routes}
    for module in pkgutil.iter_modules(areas.__path__, f"{areas.__name__}."):
        found = importlib.import_module(module.name)
        if hasattr(found, "routes") and module.name.rpartition(".")[2] not in AGGREGATES:
            assert module.name in handled, f"no route of {module.name} is mounted"


async def test_who_is_unknown_reaches_only_what_is_public(mounted: Mounted) -> None:
    assert {(route.method, route.path) for route in mounted.routes if route.rule.is_public} == PUBLIC
    wrong = {"authorization": "Bearer nobody-has-this"}
    for route in mounted.routes:
        if route.rule.is_public:
            continue
        for headers in ({}, wrong, {"grpc-metadata-x-allocation-token": wrong["authorization"]}, {"cookie": "auth=x"}):
            reply = await mounted.nobody.request(route.method, path_of(route), headers=headers)
            assert (reply.status, reply.json["error"]["code"]) == (401, 16), (route.method, route.path)


async def test_every_route_is_described(mounted: Mounted) -> None:
    document: Document = (await mounted.nobody.request("GET", "/api/v1/openapi.json")).json
    described = {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(described) == {(route.method, route.path) for route in mounted.routes}
    ids = [operation["operationId"] for operation in described.values()]
    assert len(set(ids)) == len(ids)
    schemas = document["components"]["schemas"]
    assert set(refs(document)) <= {f"#/components/schemas/{name}" for name in schemas}
    for schema in schemas.values():
        jsonschema_rs.meta.validate(schema)
    for (method, path), operation in described.items():
        named = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
        assert bool(operation["security"]) != ((method, path) in PUBLIC)


async def test_replies_are_as_described(mounted: Mounted) -> None:
    """Of all that can be asked without knowing anything."""
    document: Document = (await mounted.nobody.request("GET", "/api/v1/openapi.json")).json
    asked = 0
    for route in mounted.routes:
        if route.method != "GET" or "{" in route.path or route.follow is not None:
            continue
        reply = await mounted.root.request("GET", route.path)
        if reply.status != 200:
            continue
        content = document["paths"][route.path]["get"]["responses"]["200"]["content"]
        schema = {**content["application/json"]["schema"], "components": document["components"]}
        jsonschema_rs.validate(schema, reply.json)
        asked += 1
    assert asked >= 8


async def test_the_page_loads_nothing_from_elsewhere(mounted: Mounted) -> None:
    page = await mounted.nobody.request("GET", "/docs/api")
    assert (page.status, page.header("content-type")) == (200, "text/html; charset=utf-8")
    policy = page.header("content-security-policy")
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == 2
    for elsewhere in (b"http://", b"https://", b"src=", b"@import", b"<link"):
        assert elsewhere not in page.body
    assert (await mounted.nobody.request("POST", "/docs/api")).status == 405


async def test_lists_come_in_pages_of_one_kind(mounted: Mounted) -> None:
    for route in mounted.routes:
        replied = {field.name: field.type for field in msgspec.structs.fields(route.reply)}
        if "pagination" in replied:
            assert replied["pagination"] is Pagination, route.path
            assert issubclass(route.request, Paged), route.path


async def test_only_what_takes_files_or_batches_takes_large_bodies(mounted: Mounted) -> None:
    bulky = {"files", "context_directory", "model_definition", "logs"}
    for route in mounted.routes:
        if bulky & {field.name for field in msgspec.structs.fields(route.request)}:
            assert route.is_large, f"{route.path}: mark it with routing.large"
    assert not any(route.is_large for route in mounted.routes if route.path.startswith("/api/v1/workspaces"))


async def test_it_is_healthy(mounted: Mounted) -> None:
    reply = await mounted.nobody.request("GET", "/health")
    assert (reply.status, reply.json) == (200, {"status": "up", "database": "up"})


async def test_nonsense_is_refused_with_a_reason(mounted: Mounted) -> None:
    for route in mounted.routes:
        if route.follow is not None or route.path.endswith("/auth/logout"):
            continue
        names = [field.encode_name for field in msgspec.structs.fields(route.request)]
        for value in ("x", "-1", "99999999999999999999", "%00", "%C3%A9"):
            await _answers(mounted, route, path_of(route, value), b"")
        if route.method == "GET":
            query = "&".join(f"{name}={value}" for name in names for value in ("-1", "x"))
            await _answers(mounted, route, f"{path_of(route)}?{query}", b"")
            continue
        for body in (b"{", b"[]", b'"x"', b"1", b"\xff", b"[" * 5000):
            await _answers(mounted, route, path_of(route, "77"), body)
        for value in NONSENSE:
            await _answers(mounted, route, path_of(route, "77"), msgspec.json.encode(dict.fromkeys(names, value)))


async def _answers(mounted: Mounted, route: Route, path: str, body: bytes) -> None:
    reply = await mounted.root.request(route.method, path, body=body)
    told = (route.method, path[:200], body[:200], reply.status, reply.body[:300])
    assert reply.status < 500 or reply.status == 503, told
    if reply.status != 200:
        error = reply.json["error"]
        assert error["error"], told
        assert isinstance(error["code"], int), told
