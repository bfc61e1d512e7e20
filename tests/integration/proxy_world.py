"""A server with the proxy, and tasks behind it that are real servers on loopback."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from muster.accounts.callers import Caller, UserId, WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.runtime.clock import SystemClock
from muster.server.determined.authenticating import Credentials
from muster.server.listening import listening
from muster.server.proxy.admitting import Admission, Affiliation
from muster.server.proxy.exchanges import Timeouts
from muster.server.proxy.proxying import Proxy
from muster.store.embedded import EmbeddedStore
from muster.tasks.contract import ProxyPort
from muster.tasks.proxies import ProxyTable
from muster.tasks.proxy_tokens import ProxyTokens
from muster.testing.servers import app_for

USERS: Mapping[str, Caller] = {
    "editor": Caller(UserId(2), "editor"),
    "viewer": Caller(UserId(3), "viewer"),
    "stranger": Caller(UserId(4), "stranger"),
    "own-allocation": Caller(UserId(2), "editor", allocation="notebook.1", task="notebook"),
    "foreign-allocation": Caller(UserId(2), "editor", allocation="other.1", task="other"),
}
RIGHTS = {"editor": {Permission.VIEW_TASKS, Permission.EDIT_TASKS}, "viewer": {Permission.VIEW_TASKS}}


class Rights:
    async def check(self, caller: Caller, permission: Permission, workspace: WorkspaceId | None) -> None:
        assert workspace == WorkspaceId(1)
        if permission not in RIGHTS.get(caller.username, set()):
            raise errors.Forbidden(f"user {caller.username!r} may not {permission}")


class Tasks:
    async def of(self, task: str) -> Affiliation:
        return Affiliation("TENSORBOARD" if task == "board" else "NOTEBOOK", WorkspaceId(1))


@dataclass
class Seen:
    """What the service was asked last."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    raw_headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    count: int = 0


@dataclass
class World:
    url: str
    table: ProxyTable
    proxy: Proxy
    tokens: ProxyTokens
    client: aiohttp.ClientSession
    seen: Seen
    http_port: int
    tcp_port: int

    def reset(self) -> None:
        """As at the start: the world is shared by the tests of a module."""
        vars(self.seen).update(vars(Seen()))
        http, tcp = self.http_port, self.tcp_port
        for task, address, ports in (
            ("notebook", "127.0.0.1", [ProxyPort(http, is_default=True), ProxyPort(1)]),
            ("board", "127.0.0.1", [ProxyPort(http)]),
            ("shell", "127.0.0.1", [ProxyPort(tcp, is_tcp=True, is_unauthenticated=True)]),
            ("dead", "127.0.0.1", [ProxyPort(1, is_tcp=True, is_unauthenticated=True)]),
            ("raw", "127.0.0.1", [ProxyPort(tcp, is_tcp=True)]),
            ("open", "127.0.0.1", [ProxyPort(http, is_unauthenticated=True)]),
            ("cloud", "169.254.169.254", [ProxyPort(80, is_unauthenticated=True)]),
        ):
            self.table.open(task, f"{task}.1", address, ports)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def headers(self, user: str = "editor") -> dict[str, str]:
        return {"Authorization": f"Bearer {user}"}

    async def raw(self, request: bytes, seconds: float = 3.0) -> bytes:
        """Bytes as they are, and all that comes back until the connection ends or nothing more comes."""
        reader, writer = await asyncio.open_connection(*self.address)
        answer = b""
        try:
            writer.write(request)
            async with asyncio.timeout(seconds):
                while data := await reader.read(65536):
                    answer += data
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()
        return answer


class Service:
    """What runs behind the proxy: it says what it was asked, and behaves as badly as it is told to."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    async def echo(self, request: web.Request) -> web.StreamResponse:
        self.seen.method, self.seen.path = request.method, request.raw_path
        self.seen.headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.raw_headers = [
            (name.decode().lower(), value.decode("latin-1")) for name, value in request.raw_headers
        ]
        self.seen.body = await request.read()
        self.seen.count += 1
        reply = web.Response(text=f"{request.method} {len(self.seen.body)}")
        reply.headers.add("Set-Cookie", "session=1; Path=/; Domain=example.org; HttpOnly")
        reply.headers.add("Set-Cookie", "auth=stolen; Path=/")
        reply.headers.add("Set-Cookie", "deep=1; Path=/proxy/notebook/lab")
        reply.headers["Service-Worker-Allowed"] = "/"
        reply.headers["Clear-Site-Data"] = '"*"'
        reply.headers["X-Own"] = "kept"
        return reply

    async def hashed(self, request: web.Request) -> web.Response:
        digest, size = hashlib.sha256(), 0
        async for chunk in request.content.iter_any():
            digest.update(chunk)
            size += len(chunk)
        return web.json_response({"sha": digest.hexdigest(), "size": size})

    async def large(self, request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        if "length" in request.query:
            reply.content_length = int(request.query["length"])
        await reply.prepare(request)
        left = int(request.query.get("length") or request.query["size"])
        while left:
            sent = min(left, 256 * 1024)
            await reply.write(b"x" * sent)
            left -= sent
            self.seen.count += sent
        return reply

    async def slowly(self, request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        try:
            for number in range(1000):
                await reply.write(f"data: {number}\n\n".encode())
                await asyncio.sleep(0.05)
        finally:
            self.seen.count = -1
        return reply

    async def broken(self, request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        if "length" in request.query:
            reply.content_length = 1000
        await reply.prepare(request)
        await reply.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return reply

    async def redirect(self, request: web.Request) -> web.Response:
        where = request.query["to"].replace("SELF", f"127.0.0.1:{request.url.port}")
        inside = request.query["to"].replace("SELF", request.query.get("self", ""))
        return web.Response(status=302, headers={"Location": inside if "self" in request.query else where})

    async def never(self, request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        self.seen.headers = {name.lower(): value for name, value in request.headers.items()}
        found = web.WebSocketResponse(protocols=("kernel.v1",), max_msg_size=0)
        await found.prepare(request)
        async for message in found:
            if message.type is aiohttp.WSMsgType.TEXT:
                if message.data.startswith("close"):
                    await found.close(code=int(message.data.split()[1]))
                else:
                    await found.send_str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                await found.send_bytes(message.data)
        self.seen.count = found.close_code or 0
        return found

    async def refused(self, request: web.Request) -> web.Response:
        return web.Response(status=403)

    def application(self) -> web.Application:
        found = web.Application(client_max_size=1 << 40)
        for path, handler in (
            ("hash", self.hashed), ("large", self.large), ("slowly", self.slowly), ("broken", self.broken),
            ("redirect", self.redirect), ("never", self.never), ("ws", self.socket), ("refused", self.refused),
        ):  # fmt: skip
            found.router.add_route("*", f"/proxy/{{service}}/{path}", handler)
        found.router.add_route("*", r"/{rest:[\s\S]*}", self.echo)
        return found


async def _tcp_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            if data == b"bye":
                break
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def world(timeouts: Timeouts | None = None) -> AsyncIterator[World]:
    async def lookup(token: str) -> Caller | None:
        return USERS.get(token)

    async with AsyncExitStack() as stack:
        seen = Seen()
        runner = web.AppRunner(Service(seen).application(), shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        http_port = runner.addresses[0][1]
        tcp = await asyncio.start_server(_tcp_echo, "127.0.0.1", 0)
        stack.callback(tcp.close)
        tcp_port = tcp.sockets[0].getsockname()[1]
        clock = SystemClock()
        table, tokens = ProxyTable(clock), ProxyTokens(b"k" * 32)
        credentials = Credentials(lookup, "", USERS["editor"])
        admission = Admission(credentials.caller, Rights(), tokens, Tasks())
        proxy = await stack.enter_async_context(
            Proxy(table, admission.admit, clock, timeouts=timeouts or Timeouts(connect=1.0, idle=1.0))
        )
        store = await stack.enter_async_context(EmbeddedStore.in_memory(clock=clock))
        app = app_for(store)
        app.mount(proxy=proxy)
        url = await stack.enter_async_context(listening(app, on_close=app.close))
        client = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        found = World(url, table, proxy, tokens, client, seen, http_port, tcp_port)
        found.reset()
        yield found
