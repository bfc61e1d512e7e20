"""An application behind a socket, inside the running loop: uvicorn without its own signal handling."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp

from muster.server.connections import BoundedConnection

# Longer than any pooled client keeps an idle connection: the side that closes first should not be ours.
_KEEP_ALIVE_SECONDS = 120
_BACKLOG = 2048
_GRACE_SECONDS = 3
_PING_SECONDS = 30.0


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The program around us handles signals."""
        yield


@asynccontextmanager
async def listening(
    app: ASGIApp,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    on_close: Callable[[], None] | None = None,
    tls: ssl.SSLContext | None = None,
    sockets: Sequence[socket.socket] = (),
    trusted_proxies: Sequence[str] = (),
) -> AsyncIterator[str]:
    """Serves while the block runs; gives the address that was bound, as a URL. `sockets`: listen already, and are used
    instead of the address. `trusted_proxies`: addresses and networks. Raises OSError where it is taken."""
    bound = list(sockets) or [bind(host, port)]
    for each in bound:
        # Accepted sockets inherit it. Asyncio sets it only on sockets that name their protocol, which these do not, and
        # without it an answer in two packets waits 40 ms for the client's delayed acknowledgement.
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Below that it writes the addresses of WebSockets, which may have tokens in them.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        http=BoundedConnection,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        # They keep connections open that pass through routers. That they are answered is not asked for: a shell whose
        # terminal is stopped, or a peer that waits for a slow service, does not read, and is alive all the same.
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=None,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        # By default it would believe anybody on this machine, tasks included, about where a request comes from.
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        server_header=False,
        date_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    config.load()
    config.ssl = tls
    server = _Server(config)
    url = address(bound[0], is_secure=tls is not None, host="" if sockets else host)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(bound), name=f"serve {url}")
        try:
            while not server.started and not serving.done():  # noqa: ASYNC110  uvicorn has only the flag
                await asyncio.sleep(0.002)
            yield url
        finally:
            if on_close is not None:
                on_close()
            server.should_exit = True
            # Waited for here: a group that is left by a cancellation would cancel the server instead of letting it
            # finish what it has begun.
            await asyncio.wait({serving})


def address(bound: socket.socket, *, is_secure: bool, host: str = "") -> str:
    """Its URL. `host`: as it was asked for, where that says more than a number."""
    number, port = bound.getsockname()[:2]
    host = host or str(number)
    return f"{'https' if is_secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def bind(host: str, port: int) -> socket.socket:
    """Raises OSError where the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)
