"""A small HTTP service of an agent on another machine: the logs of its pods, for the server to pass on, and what they
use.

`GET /logs/{namespace}/{pod}/{uid}/{container}` with kubectl's query parameters, and `GET /samples`; both with a bearer
token, over TLS with the certificate whose fingerprint is on the Node. Errors are Status documents, so the server hands
them through unchanged.
"""

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from muster.agent import logs
from muster.agent.logs import LogOptions
from muster.agent.sampling import Samples
from muster.api import errors, raw, status
from muster.api.errors import ApiError
from muster.runtime.clock import Clock


class Served(Protocol):
    """The part of an `Agent` that is served."""

    async def samples(self) -> Samples: ...

    def open_logs(
        self, namespace: str, name: str, uid: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]: ...


def application(agent: Served, *, token: str, clock: Clock) -> Starlette:
    """The ASGI application. `token` is what callers must carry."""
    expected = f"Bearer {token}".encode()

    def check(request: Request) -> None:
        if not hmac.compare_digest(request.headers.get("authorization", "").encode(), expected):
            raise errors.Unauthorized("Unauthorized")

    async def read_logs(request: Request) -> Response:
        check(request)
        part = request.path_params
        options = logs.parse_query(request.query_params, clock.now())
        lines = agent.open_logs(part["namespace"], part["pod"], part["uid"], part["container"], options)
        return streamed(lines)

    async def read_samples(request: Request) -> Response:
        check(request)
        return Response(raw.encode(await agent.samples()), media_type="application/json")

    async def healthy(_request: Request) -> Response:
        return Response("ok", media_type="text/plain")

    return Starlette(
        routes=[
            Route("/logs/{namespace}/{pod}/{uid}/{container}", read_logs, methods=["GET"]),
            Route("/samples", read_samples, methods=["GET"]),
            Route("/healthz", healthy, methods=["GET"]),
        ],
        exception_handlers={ApiError: _refusal()},
    )


def streamed(lines: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(_closing(lines), media_type="text/plain")


async def _closing(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A reader that hangs up closes the files at once."""
    async with aclosing(lines) as open_lines:  # type: ignore[type-var]
        async for piece in open_lines:
            yield piece


def _refusal() -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(_request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        body = raw.encode(status.from_error(error))
        return Response(body, status_code=error.http_status, media_type="application/json")

    return answer
