"""Requests to one API server over a few connections that stay open.

What the network does is told as `Unavailable`. A request is repeated only where the server says that it has not been
carried out: too many at once (429, or 5xx that names a time to come back), or a credential that has ended (401).
"""

import asyncio
import io
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from muster.access.credentials import Credential, Credentials
from muster.api import errors
from muster.store import wire

AT_ONCE: Final = 32
"""Requests under way at the same time, watches apart: more would only wait at the server, or be sent away by it."""
_LAST_AT_ONCE = 4
"""Beside those: behind them, events would not come at all while there is much to do, and then all at once."""
_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=5)
# A watch that says nothing is no fault, but bookmarks come every minute: silence of several means that nobody is there.
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=300)
_LARGEST_LINE = 16 * 1024 * 1024
_KEEP_SECONDS = 60  # Kubernetes closes what was idle for 90: it must not do so under a request
_MOST_TRIES = 8
_LONGEST_PAUSE_SECONDS = 10.0
_BUDGET = b'"DisruptionBudget"'


class Turn(Enum):
    """Of a request, where many want to be sent."""

    FIRST = "first"  # it does not wait
    USUAL = "usual"
    LAST = "last"  # it may take its time: few of its like are under way at once, beside all others


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes = b""


class Connection:
    """`url`: the API's root. `server_name`: to expect in its certificate. Use as an async context manager."""

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        *,
        server_name: str = "",
        headers: Mapping[str, str] | None = None,
        entropy: random.Random | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._credentials = credentials
        self._server_name = server_name or None
        self._headers = headers or {}
        self._entropy = entropy or random.SystemRandom()
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._last_turns = asyncio.Semaphore(_LAST_AT_ONCE)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            # Watches hold their connection for hours, so the pool has no limit of its own; requests take turns.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS),
            headers={
                "User-Agent": "muster",
                "Accept": wire.JSON_TYPE,
                "Accept-Encoding": "identity",  # compressing costs more than the networks between our parts do
                **self._headers,
            },
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, request: wire.Request, turn: Turn = Turn.USUAL) -> Response:
        """The server's answer, whatever it is. Raises Unavailable where there is none."""
        if turn is Turn.FIRST:
            return await self._ask(request)
        async with self._last_turns if turn is Turn.LAST else self._turns:
            return await self._ask(request)

    async def _ask(self, request: wire.Request) -> Response:
        tries = 1
        while True:
            credential = await self._credential()
            response = await self._ask_once(request, credential)
            pause = await self._pause(response, credential, tries)
            if pause is None:
                return response
            await asyncio.sleep(pause)
            tries += 1

    @asynccontextmanager
    async def follow(self, path: str, query: str) -> AsyncIterator["Stream"]:
        """An answer without an end."""
        request = wire.Request("GET", path, query=query)
        credential = await self._credential()
        try:
            async with self._open(request, credential, _WATCH_TIMEOUT) as response:
                if response.status == 401:
                    self._credentials.forget(credential)
                yield Stream(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(error) from error

    async def _credential(self) -> Credential:
        known = self._credentials.known()
        # Asking takes a plugin's time, and must not stop everything else here.
        return known if known is not None else await asyncio.to_thread(self._credentials.current)

    async def _ask_once(self, request: wire.Request, credential: Credential) -> Response:
        try:
            async with self._open(request, credential, _TIMEOUT) as response:
                return Response(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(error) from error

    def _open(
        self, request: wire.Request, credential: Credential, timeout: aiohttp.ClientTimeout
    ) -> "aiohttp.client._RequestContextManager":
        if self._session is None:
            raise errors.Unavailable("the store is not open")
        headers = CIMultiDict(credential.headers)
        headers.extend(request.headers)
        if request.body:
            headers["Content-Type"] = request.content_type
        tls: ssl.SSLContext | bool = True if credential.tls is None else credential.tls
        return self._session.request(
            request.method,
            URL(f"{self._url}{request.target}", encoded=True),
            data=io.BytesIO(request.body) if request.body else None,  # as a file: a large one is sent piece by piece
            headers=headers,
            timeout=timeout,
            ssl=tls,
            server_hostname=self._server_name,
            allow_redirects=False,
        )

    async def _pause(self, response: Response, credential: Credential, tries: int) -> float | None:
        """How long to wait before the request is sent again. None: the answer stands."""
        if response.status == 401 and tries == 1:
            self._credentials.forget(credential)
            return None if await self._credential() is credential else 0.0
        after = response.headers.get("Retry-After", "")
        if not after.isdigit() or tries >= _MOST_TRIES or not _was_turned_away(response):
            return None
        # Those who were sent away together must not come back together.
        return min(float(after), _LONGEST_PAUSE_SECONDS) * self._entropy.uniform(0.5, 1.5)


class Stream:
    """`lines`, or `chunks` of any size, as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def body(self) -> bytes:
        return await self._response.read()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.content.iter_any():
            yield chunk

    async def lines(self) -> AsyncIterator[list[bytes]]:
        rest = b""
        async for chunk in self.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield [line for line in lines if line]
            if len(rest) > _LARGEST_LINE:
                raise errors.Unavailable("the server sent a line of a watch that does not end")


def _was_turned_away(response: Response) -> bool:
    """By the server's protection against too much at once. A disruption budget answers 429 as well: that is a decision
    about the pod, which whoever wanted to evict it must know."""
    return response.status >= 500 or (response.status == 429 and _BUDGET not in response.body)


def _unavailable(error: Exception) -> errors.Unavailable:
    return errors.Unavailable(f"the server cannot be reached: {str(error) or type(error).__name__}")
