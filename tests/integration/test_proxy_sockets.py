"""WebSockets through the proxy: to WebSockets, as JupyterLab's kernels, and to raw ports, as `det shell`."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from tests.integration.proxy_world import World, world

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[World]:
    async with world() as found:
        yield found


@pytest.fixture
def at(shared: World) -> World:
    shared.reset()
    return shared


# To WebSockets


async def test_text_and_bytes_both_ways(at: World) -> None:
    async with at.client.ws_connect(
        f"{at.url}/proxy/notebook/ws", headers=at.headers(), protocols=("other", "kernel.v1")
    ) as socket:
        assert socket.protocol == "kernel.v1"
        await socket.send_str("hällo")
        assert await socket.receive_str() == "hällo"
        await socket.send_bytes(b"\x00\xff")
        assert await socket.receive_bytes() == b"\x00\xff"
        assert at.proxy.connections("notebook") == 1
    assert not set(at.headers().values()) & set(at.seen.headers.values())
    assert at.seen.headers["host"] == at.url.removeprefix("http://")


async def test_large_messages(at: World) -> None:
    async with at.client.ws_connect(f"{at.url}/proxy/notebook/ws", headers=at.headers(), max_msg_size=0) as socket:
        for size in (70_000, 8 * 1024 * 1024):
            await socket.send_bytes(os.urandom(1) * size)
            assert len(await socket.receive_bytes()) == size


@pytest.mark.parametrize(("code", "told"), [(1000, 1000), (4001, 4001), (1011, 1011)])
async def test_how_it_was_closed_is_told_to_the_client(at: World, code: int, told: int) -> None:
    async with at.client.ws_connect(f"{at.url}/proxy/notebook/ws", headers=at.headers()) as socket:
        await socket.send_str(f"close {code}")
        message = await socket.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert message.data == told


async def test_how_it_was_closed_is_told_to_the_service(at: World) -> None:
    socket = await at.client.ws_connect(f"{at.url}/proxy/notebook/ws", headers=at.headers())
    await socket.close(code=4002)
    async with asyncio.timeout(5):
        while at.seen.count != 4002 or at.proxy.connections("notebook"):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("notebook/ws", "", 401),
        ("notebook/ws", "viewer", 403),
        ("notebook/ws", "foreign-allocation", 403),
        ("notebook/refused", "editor", 403),
        ("notebook:1/ws", "editor", 502),
        ("gone/ws", "editor", 404),
        ("notebook:2/ws", "editor", 404),
        ("raw/", "", 401),
        ("dead/", "", 502),
        ("cloud/", "", 404),
    ],
)
async def test_what_is_refused_is_refused_before_it_is_accepted(at: World, path: str, token: str, status: int) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await at.client.ws_connect(f"{at.url}/proxy/{path}", headers=at.headers(token) if token else {})
    assert refused.value.status == status


async def test_a_websocket_elsewhere(at: World) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await at.client.ws_connect(f"{at.url}/api/v1/me")
    assert refused.value.status == 404


async def test_a_page_of_another_site_cannot_open_one_with_a_session(at: World) -> None:
    headers = {"Cookie": "auth=editor", "Origin": "https://evil.org"}
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await at.client.ws_connect(f"{at.url}/proxy/notebook/ws", headers=headers)
    assert refused.value.status == 403
    headers["Origin"] = at.url
    async with at.client.ws_connect(f"{at.url}/proxy/notebook/ws", headers=headers) as socket:
        await socket.send_str("x")
        assert await socket.receive_str() == "x"
    assert at.seen.headers["origin"] == at.url  # Jupyter looks at it too


async def test_a_token_in_the_address_is_not_written_to_our_log(at: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    token = at.tokens.of("notebook")
    async with at.client.ws_connect(f"{at.url}/proxy/notebook/ws?token={token}") as socket:
        await socket.send_str("x")
        assert await socket.receive_str() == "x"
    assert token not in caplog.text


# To ports


async def test_a_shell_needs_no_session(at: World) -> None:
    async with at.client.ws_connect(f"{at.url}/proxy/shell/") as socket:
        await socket.send_bytes(b"SSH-2.0-x\r\n")
        assert await socket.receive_bytes() == b"SSH-2.0-x\r\n"
        await socket.send_bytes(b"bye")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
    async with at.client.ws_connect(f"{at.url}/proxy/raw:{at.tcp_port}/", headers=at.headers()) as socket:
        await socket.send_bytes(b"x")
        assert await socket.receive_bytes() == b"x"


async def test_megabytes_through_a_port(at: World) -> None:
    block = os.urandom(256 * 1024)
    got = bytearray()

    async def read(socket: aiohttp.ClientWebSocketResponse) -> None:
        while len(got) < 16 * len(block):
            got.extend(await socket.receive_bytes())

    async with at.client.ws_connect(f"{at.url}/proxy/shell/") as socket, asyncio.TaskGroup() as group:
        group.create_task(read(socket))
        for _ in range(16):
            await socket.send_bytes(block)
    assert bytes(got) == block * 16


async def test_who_does_not_read_is_not_read_from(at: World) -> None:
    """The echo fills all buffers, and then nothing more is taken from the sender."""
    async with at.client.ws_connect(f"{at.url}/proxy/shell/", max_msg_size=0) as socket:
        sent = 0
        is_stuck = False
        while not is_stuck and sent < 100_000_000:
            try:
                async with asyncio.timeout(0.5):
                    await socket.send_bytes(b"x" * 65536)
                sent += 65536
            except TimeoutError:
                is_stuck = True
        assert is_stuck
        assert at.proxy.connections("shell") == 1
        assert socket._response.connection is not None
        transport = socket._response.connection.transport
        assert isinstance(transport, asyncio.Transport)
        transport.abort()  # as a client that is gone
    async with asyncio.timeout(5):
        while at.proxy.connections("shell"):
            await asyncio.sleep(0.01)


async def test_text_is_not_for_a_port(at: World) -> None:
    async with at.client.ws_connect(f"{at.url}/proxy/shell/") as socket:
        await socket.send_str("x")
        message = await socket.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1003)


async def test_a_port_has_no_pages(at: World) -> None:
    async with at.client.get(f"{at.url}/proxy/shell/") as reply:
        assert (reply.status, reply.headers["Upgrade"]) == (426, "websocket")
        assert "det shell open" in (await reply.json())["error"]["error"]


async def test_a_client_that_leaves_leaves_nothing(at: World) -> None:
    sockets = [await at.client.ws_connect(f"{at.url}/proxy/shell/") for _ in range(20)]
    assert at.proxy.connections("shell") == 20
    for socket in sockets:
        await socket.close()
    async with asyncio.timeout(5):
        while at.proxy.connections("shell"):
            await asyncio.sleep(0.01)
