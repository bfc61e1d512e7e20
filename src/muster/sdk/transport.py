"""One HTTP exchange, or one stream: the seam below `Client`, so that tests need no socket.

`HttpTransport` keeps connections alive and may be used from many threads. It knows nothing of
Kubernetes; what fails below HTTP becomes an `api.errors` class that says what to do.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Protocol
from urllib.parse import urlencode

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    SSLError,
)

from muster.access.credentials import Credential, Credentials
from muster.api import errors

CONNECT_SECONDS = 5.0
REPLY_SECONDS = 60.0
_MOST_TRIES = 5
_LONGEST_PAUSE_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """Below the server's address: `/api/v1/nodes`."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | IO[bytes] | None = None
    """A file: with a Content-Length among the headers, it is sent as it is read."""
    headers: Mapping[str, str] = field(default_factory=dict)
    idle_seconds: float | None = None
    """For a stream: how long nothing may come before it counts as broken."""

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    content_type: str = "application/json"


class Stream(Protocol):
    status: int

    def chunks(self) -> Iterator[bytes]:
        """Bytes as they come, until the other side ends. Raises Unavailable where the connection breaks."""
        ...

    def close(self) -> None:
        """May be called from another thread: a blocked reader sees the end."""
        ...


class Transport(Protocol):
    def exchange(self, request: Request) -> Reply: ...

    def open(self, request: Request) -> Stream: ...

    def close(self) -> None: ...


class HttpTransport:
    """`server` as in `config.Connection`. `connections` are kept alive; more are made when needed. `name`: that the
    server's certificate is for, where it is not the address. `source`: what names the server, where it is none of our
    own, for messages."""

    def __init__(
        self, server: str, credentials: Credentials, *, connections: int = 16, name: str = "", source: str = ""
    ) -> None:
        self.server = server
        self._credentials = credentials
        self._pools = _Pools(server, connections, name)
        self._source = source

    def exchange(self, request: Request) -> Reply:
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=REPLY_SECONDS)
        try:
            response = self._send_again_if_stale(request, timeout)
        except (HTTPError, OSError) as error:
            raise self._failure(error) from error
        return Reply(response.status, response.data, response.headers.get("Content-Type", ""))

    def _send_again_if_stale(self, request: Request, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
        try:
            return self._send(request, timeout, preload=True)
        except ProtocolError:
            # A kept-alive connection that the other side was just closing. Only reads are safe to repeat.
            if request.method != "GET":
                raise
            return self._send(request, timeout, preload=True)

    def open(self, request: Request) -> "HttpStream":
        try:
            timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=request.idle_seconds)
            response = self._send(request, timeout, preload=False)
        except (HTTPError, OSError) as error:
            raise self._failure(error) from error
        return HttpStream(response, self)

    def close(self) -> None:
        self._pools.close()

    def _send(self, request: Request, timeout: urllib3.Timeout, *, preload: bool) -> urllib3.BaseHTTPResponse:
        response = self._send_as_known(request, timeout, preload=preload)
        for _ in range(1, _MOST_TRIES):
            pause = _pause(request, response)
            if pause is None:
                break
            response.close()
            time.sleep(pause)
            response = self._send_as_known(request, timeout, preload=preload)
        return response

    def _send_as_known(self, request: Request, timeout: urllib3.Timeout, *, preload: bool) -> urllib3.BaseHTTPResponse:
        """With a credential that was renewed, where the server does not take the first."""
        credential = self._credentials.current()
        response = self._send_as(credential, request, timeout, preload=preload)
        if response.status != 401 or not _is_repeatable(request):
            return response
        self._credentials.forget(credential)
        renewed = self._credentials.current()
        if renewed is credential:
            return response
        response.close()
        return self._send_as(renewed, request, timeout, preload=preload)

    def _send_as(
        self, credential: Credential, request: Request, timeout: urllib3.Timeout, *, preload: bool
    ) -> urllib3.BaseHTTPResponse:
        headers = urllib3.HTTPHeaderDict(credential.headers)
        headers.update(request.headers)
        return self._pools.of(credential).urlopen(
            request.method,
            self._pools.prefix + request.target,
            body=request.body,
            headers=headers,
            retries=False,
            redirect=False,
            timeout=timeout,
            preload_content=preload,
        )

    def _failure(self, error: Exception) -> errors.ApiError:
        address = f"{self.server}, the server of {self._source}" if self._source else self.server
        if isinstance(error, NameResolutionError):
            return errors.Unavailable(f"no such host in {address}: check the address")
        if isinstance(error, ConnectTimeoutError | NewConnectionError):
            if self._source:
                return errors.Unavailable(f"nobody answers at {address}")
            return errors.Unavailable(f"no platform answers at {address}: start one with `muster up`")
        if isinstance(error, SSLError):
            if self._source:
                return errors.Unavailable(f"{address}, is not trusted, or does not take the certificate there: {error}")
            return errors.Unavailable(
                f"{address} is not trusted: {error}; name its authority with $MUSTER_CA, and a certificate of your own "
                "with $MUSTER_CLIENT_CERT and $MUSTER_CLIENT_KEY where it asks for one"
            )
        if isinstance(error, ReadTimeoutError):
            return errors.Timeout(f"{address} did not answer in time: is the server busy or stopped?")
        return errors.Unavailable(f"the connection to {address} broke: {error}")


def _is_repeatable(request: Request) -> bool:
    return isinstance(request.body, bytes | None)  # a file has been read by now


def _pause(request: Request, response: urllib3.BaseHTTPResponse) -> int | None:
    """How long to wait before a request is sent again which the server has turned away, not looked at: too many at
    once, or it has just learned of the kind. None: the answer stands."""
    after = response.headers.get("Retry-After", "")
    is_turned_away = response.status == 429 or response.status >= 500
    if not is_turned_away or not after.isdigit() or int(after) > _LONGEST_PAUSE_SECONDS or not _is_repeatable(request):
        return None
    return int(after)


class _Pools:
    """Connections to a server: always those of the credential in use, since a certificate stays with a connection."""

    def __init__(self, server: str, connections: int, name: str) -> None:
        try:
            self.prefix = (urllib3.util.parse_url(server).path or "").rstrip("/")
        except (HTTPError, LocationValueError, ValueError) as error:
            raise errors.BadRequest(f"{server!r} is not a server address: {error}") from error
        self._server = server
        self._connections = connections
        self._name = name
        self._turn = threading.Lock()
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._tls: ssl.SSLContext | None = None

    def of(self, credential: Credential) -> urllib3.HTTPConnectionPool:
        with self._turn:
            if self._pool is None or credential.tls is not self._tls:
                self._close()
                self._pool, self._tls = self._opened(credential.tls), credential.tls
            return self._pool

    def close(self) -> None:
        with self._turn:
            self._close()

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.close()  # those under way are closed when they are done

    def _opened(self, tls: ssl.SSLContext | None) -> urllib3.HTTPConnectionPool:
        keepalive = (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = [*HTTPConnection.default_socket_options, keepalive]
        secure = {} if tls is None else {"ssl_context": tls}
        named = {"server_hostname": self._name, "assert_hostname": self._name} if tls is not None and self._name else {}
        try:
            return urllib3.connection_from_url(
                self._server, maxsize=self._connections, socket_options=options, **secure, **named
            )
        except (HTTPError, LocationValueError, ValueError) as error:
            raise errors.BadRequest(f"{self._server!r} is not a server address: {error}") from error


class HttpStream:
    def __init__(self, response: urllib3.BaseHTTPResponse, owner: HttpTransport) -> None:
        self.status = response.status
        self._response = response
        self._owner = owner
        self._is_closed = False
        self._has_reader = False

    def chunks(self) -> Iterator[bytes]:
        self._has_reader = True
        try:
            yield from self._response.stream(65536)
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # Closing from another thread pulls the socket from under the reader, which
            # urllib3 reports in whatever way its buffers happen to be in.
            if not self._is_closed:
                raise self._owner._failure(error) from error
        finally:
            self._response.close()  # back in the pool already if it was read to its end

    def close(self) -> None:
        self._is_closed = True
        if self._has_reader and isinstance(self._response, urllib3.HTTPResponse):
            try:
                self._response.shutdown()  # the reader wakes, and closes
            except (OSError, RuntimeError, ValueError):
                return  # it had ended by itself
        else:
            self._response.close()


_: type[Transport] = HttpTransport


def lines(stream: Stream) -> Iterator[bytes]:
    """Whole lines without their end; the last may lack one."""
    parts: list[bytes] = []  # of a line whose end has not come: joined once, however long it is
    for chunk in stream.chunks():
        first, *others = chunk.split(b"\n")
        parts.append(first)
        if others:
            yield b"".join(parts)
            yield from others[:-1]
            parts = [others[-1]]
    if any(parts):
        yield b"".join(parts)
