"""What an API server of Kubernetes asks of a node: the logs of its pods, by the kubelet's own paths.

`GET /containerLogs/{namespace}/{pod}/{container}` with kubectl's query parameters. Callers show a certificate that the
cluster's authority for clients has signed (the listener sees to that), and the API server is asked whether the user in
it may do this, as a kubelet asks. Errors are plain text: the API server hands them on as such.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from cryptography import x509
from cryptography.x509.oid import NameOID
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.agent import endpoint, logs
from muster.agent.logs import LogOptions
from muster.api import errors
from muster.api.errors import ApiError
from muster.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a client's certificate names: a user of the cluster, and the groups of that user."""

    name: str
    groups: tuple[str, ...] = ()


class Served(Protocol):
    """The part of an `Agent` that is served."""

    def uid_of(self, namespace: str, name: str) -> str: ...

    def open_logs(
        self, namespace: str, name: str, uid: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]: ...


Permits: TypeAlias = Callable[[Caller], Awaitable[bool]]
"""Whether the cluster lets a caller read what is on this node. May raise ApiError."""


def application(agent: Served, *, permits: Permits, clock: Clock) -> Starlette:
    async def read_logs(request: Request) -> Response:
        caller = _caller(request)
        if not await permits(caller):
            raise errors.Forbidden(f'user "{caller.name}" may not get what this node serves (nodes/proxy)')
        part = request.path_params
        options = logs.parse_query(request.query_params, clock.now())
        namespace, pod = part["namespace"], part["pod"]
        lines = agent.open_logs(namespace, pod, agent.uid_of(namespace, pod), part["container"], options)
        return endpoint.streamed(lines)

    async def healthy(_request: Request) -> Response:
        return Response("ok", media_type="text/plain")

    return Starlette(
        routes=[
            Route("/containerLogs/{namespace}/{pod}/{container}", read_logs, methods=["GET"]),
            Route("/healthz", healthy, methods=["GET"]),
        ],
        exception_handlers={ApiError: _refusal},
    )


def _caller(request: Request) -> Caller:
    """Raises Unauthorized without a certificate, or with one that names nobody."""
    chain = request.scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
    if not chain:
        raise errors.Unauthorized("Unauthorized")
    subject = x509.load_pem_x509_certificate(chain[0].encode()).subject
    names = [str(found.value) for found in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(found.value) for found in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if len(names) != 1:
        raise errors.Unauthorized("Unauthorized")
    return Caller(names[0], tuple(groups))


async def _refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return Response(error.message, status_code=error.http_status, media_type="text/plain")
