"""The server on a socket: how it starts, and that it stops without cutting anybody off."""

import asyncio
import logging

import aiohttp
import pytest

from muster.runtime.clock import SystemClock
from muster.server.exchange import MAX_BODY_BYTES
from muster.server.listening import listening
from muster.store.embedded import EmbeddedStore
from muster.testing.servers import TOKEN, app_for

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
MAPS = "/k8s/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def app():
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        yield app_for(store)


async def test_a_cancelled_server_ends_its_streams_in_order(app, caplog):
    caplog.set_level(logging.WARNING)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with listening(app, on_close=app.close) as url:
            address.set_result(url)
            await asyncio.Event().wait()

    serving = asyncio.ensure_future(serve())
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        async with session.get(f"{await address}{MAPS}", params={"watch": "1"}) as watch:
            serving.cancel()
            async with asyncio.timeout(3):
                assert await watch.content.read() == b""  # the last chunk came: nothing was cut off
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(serving, 3)
    assert caplog.records == []


async def test_a_port_that_is_taken_is_an_error(app):
    async with listening(app, on_close=app.close) as url:
        with pytest.raises(OSError, match="in use"):
            async with listening(app, port=int(url.rpartition(":")[2])):
                pass


async def test_a_body_in_chunks_and_one_that_is_too_large(app):
    async with listening(app, on_close=app.close) as url, aiohttp.ClientSession(headers=HEADERS) as session:

        async def pieces(size: int):
            yield b'{"metadata": {"name": "a"}, "data": {"k": "'
            for _ in range(size // 65536):
                yield b"x" * 65536
            yield b'"}}'

        headers = {"Content-Type": "application/json"}
        async with session.post(f"{url}{MAPS}", data=pieces(2**20), headers=headers) as made:
            assert made.status == 201
        async with session.post(f"{url}{MAPS}", data=pieces(MAX_BODY_BYTES + 2**20), headers=headers) as refused:
            assert refused.status == 413
            assert (await refused.json())["reason"] == "RequestEntityTooLarge"
        async with session.get(f"{url}{MAPS}/a") as found:
            assert found.status == 200
