"""Logs as an API server asks a kubelet for them: known by a certificate, let in by the cluster."""

from collections.abc import AsyncIterator

import pytest
import trustme
from starlette.types import ASGIApp, Receive, Scope, Send

from muster.agent import kubelet
from muster.agent.kubelet import Caller
from muster.agent.logs import LogOptions
from muster.api import errors
from muster.runtime.clock import SystemClock
from muster.testing.asgi import AsgiClient

AUTHORITY = trustme.CA()
LOGS = "/containerLogs/lab/a/main"


class OnePod:
    def uid_of(self, namespace: str, name: str) -> str:
        if (namespace, name) != ("lab", "a"):
            raise errors.NotFound(f'pods "{name}" not found', kind="pods", name=name)
        return "u-1"

    async def open_logs(
        self, namespace: str, name: str, uid: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        yield f"{namespace} {name} {uid} {container} {options.tail}\n".encode()


def client(*organisations: str, name: str | None = "apiserver") -> AsgiClient:
    """Of one who shows a certificate with that name; None for no certificate at all."""
    organisation = organisations[0] if organisations else None
    shown = AUTHORITY.issue_cert("a.invalid", common_name=name, organization_name=organisation)
    chain = [] if name is None else [pem.bytes().decode() for pem in shown.cert_chain_pems]

    async def permits(caller: Caller) -> bool:
        return caller == Caller("apiserver", ("system:masters",))

    served = kubelet.application(OnePod(), permits=permits, clock=SystemClock())
    return AsgiClient(_with_certificate(served, chain))


def _with_certificate(app: ASGIApp, chain: list[str]) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "extensions": {"tls": {"client_cert_chain": chain}}}, receive, send)

    return call


async def test_the_api_server_reads_a_containers_lines() -> None:
    answer = await client("system:masters").request("GET", LOGS, query={"tailLines": "5"})
    assert (answer.status, answer.body) == (200, b"lab a u-1 main 5\n")


@pytest.mark.parametrize(("name", "status"), [(None, 401), ("mallory", 403)])
async def test_others_read_nothing(name: str | None, status: int) -> None:
    answer = await client("system:masters", name=name).request("GET", LOGS)
    assert answer.status == status
    assert b"u-1" not in answer.body


async def test_what_is_wrong_is_plain_text_which_the_api_server_hands_on() -> None:
    answer = await client("system:masters").request("GET", "/containerLogs/lab/b/main")
    assert (answer.status, answer.body) == (404, b'pods "b" not found')
