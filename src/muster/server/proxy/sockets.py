"""WebSockets through the proxy: to a WebSocket of the service, or to a raw port, as `det shell` reaches sshd.

The service is reached before the client's socket is accepted, so that a failure can be told as an HTTP reply. Each
direction reads on only when what it read was taken: nothing piles up here.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp
from starlette.types import Receive, Send

from muster.api import errors
from muster.server.proxy.exchanges import Timeouts, url_of
from muster.server.proxy.headers import Pairs
from muster.server.proxy.racing import first_done
from muster.server.proxy.refusing import NotServing
from muster.tasks.proxies import Target

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of one message: what a notebook shows may be large."""
_READ_BYTES: Final = 64 * 1024
_LINGER_SECONDS: Final = 2.0
_NORMAL, _GOING_AWAY, _UNSUPPORTED, FAILED = 1000, 1001, 1003, 1011


@dataclass(slots=True)
class Client:
    """`touch` is called whenever something goes through."""

    receive: Receive
    send: Send
    touch: Callable[[], None]
    is_accepted: bool = False

    async def accept(self, subprotocol: str | None = None, extra: Pairs = ()) -> None:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in extra]
        message = {"type": "websocket.accept", "headers": headers}
        self.is_accepted = True
        await self.send(message if subprotocol is None else {**message, "subprotocol": subprotocol})

    async def close(self, code: int = _NORMAL, reason: str = "") -> None:
        with contextlib.suppress(RuntimeError, OSError):  # the client may be quicker
            await self.send({"type": "websocket.close", "code": code, "reason": reason})


@dataclass(frozen=True, slots=True)
class Offer:
    """What the client's handshake asks for."""

    path: str
    headers: Pairs
    subprotocols: Sequence[str]
    extra: Pairs = ()


async def to_socket(session: aiohttp.ClientSession, target: Target, offer: Offer, client: Client) -> None:
    """Raises NotServing, Timeout, Forbidden, NotFound while nothing is accepted."""
    try:
        service = await session.ws_connect(
            url_of(target, offer.path),
            headers=list(offer.headers),
            protocols=offer.subprotocols,
            max_msg_size=MOST_BYTES,
            timeout=aiohttp.ClientWSTimeout(ws_receive=None, ws_close=5.0),
        )
    except aiohttp.WSServerHandshakeError as error:
        raise _refused(target, error.status) from error
    except TimeoutError as error:
        raise errors.Timeout(f"the service of task {target.task} did not answer in time.") from error
    except (aiohttp.ClientError, OSError) as error:
        raise not_serving(target) from error
    async with service:
        await client.accept(service.protocol, offer.extra)
        try:
            await first_done(f"socket of {target.task}", _to_service(client, service), _to_client(client, service))
        except (aiohttp.ClientError, OSError):
            await client.close(FAILED, "the connection to the service broke")


async def _to_service(client: Client, service: "aiohttp.ClientWebSocketResponse[bool]") -> None:
    while True:
        message = await client.receive()
        if message["type"] == "websocket.disconnect":
            await service.close(code=_sendable(message.get("code")))
            return
        if message["type"] != "websocket.receive":
            continue
        client.touch()
        if message.get("bytes") is not None:
            await service.send_bytes(message["bytes"])
        else:
            await service.send_str(message["text"])


async def _to_client(client: Client, service: "aiohttp.ClientWebSocketResponse[bool]") -> None:
    async for message in service:
        client.touch()
        if message.type is aiohttp.WSMsgType.BINARY:
            await client.send({"type": "websocket.send", "bytes": message.data})
        elif message.type is aiohttp.WSMsgType.TEXT:
            await client.send({"type": "websocket.send", "text": message.data})
    await client.close(_sendable(service.close_code))


async def to_port(target: Target, timeouts: Timeouts, client: Client) -> None:
    """Raises NotServing, Timeout while nothing is accepted."""
    try:
        async with asyncio.timeout(timeouts.connect):
            reader, writer = await asyncio.open_connection(target.address, target.port.port, limit=_READ_BYTES)
    except TimeoutError as error:
        raise errors.Timeout(f"port {target.port.port} of task {target.task} did not answer in time.") from error
    except OSError as error:
        raise not_serving(target) from error
    try:
        await client.accept()
        await first_done(f"tunnel of {target.task}", _to_writer(client, writer), _from_reader(client, reader))
    except OSError:
        await client.close(FAILED, "the connection to the service broke")
    finally:
        await _end(writer)


async def _end(writer: asyncio.StreamWriter) -> None:
    """What was written goes out first; a service that does not read it is not waited for."""
    writer.close()
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            await writer.wait_closed()
    except (TimeoutError, OSError):
        pass
    finally:
        writer.transport.abort()


async def _to_writer(client: Client, writer: asyncio.StreamWriter) -> None:
    while True:
        message = await client.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message["type"] != "websocket.receive":
            continue
        client.touch()
        if message.get("bytes") is None:
            await client.close(_UNSUPPORTED, "this service takes binary messages only")
            return
        writer.write(message["bytes"])
        await writer.drain()


async def _from_reader(client: Client, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(_READ_BYTES):
        client.touch()
        await client.send({"type": "websocket.send", "bytes": data})
    await client.close()


def not_serving(target: Target) -> NotServing:
    return NotServing(
        f"the service of task {target.task} does not answer at its port {target.port.port}; it may still be starting, "
        "or have stopped."
    )


def _refused(target: Target, status: int) -> errors.ApiError:
    told = f"the service of task {target.task} refused the WebSocket with status {status}"
    if status in (401, 403):
        return errors.Forbidden(told)
    return errors.NotFound(told) if status == 404 else NotServing(f"{told}.")


def _sendable(code: object) -> int:
    """Some codes are only for telling what happened, not for sending."""
    if isinstance(code, int) and (1000 <= code <= 1014 or 3000 <= code <= 4999) and code not in (1004, 1005, 1006):
        return code
    return _NORMAL if code == 1005 else _GOING_AWAY
