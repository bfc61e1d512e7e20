"""Logs from where they are kept: agents in this process are asked directly, others over HTTPS.

An agent is known by the certificate whose fingerprint is on its Node; it is sent a token that is made for this one node
and for its logs only, and it cannot send us elsewhere.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Self, TypeAlias
from urllib.parse import quote

import aiohttp

from muster.agent import tokens
from muster.agent.logs import LogOptions
from muster.agent.registration import CERTIFICATE
from muster.api import core, errors, raw, status, timestamps
from muster.api.objects import Key, Object
from muster.server.logs import NodeLogs
from muster.store.protocol import Store

Opener: TypeAlias = Callable[[Object, str, LogOptions], AsyncIterator[bytes]]
"""As `NodeLogs.open`."""
_CONNECT_SECONDS = 5.0
_SILENT_SECONDS = 60.0
"""Of an agent that is not followed, and so has something to say or is at the end."""
_CHUNK_BYTES = 64 * 1024


class LocalNodeLogs:
    """Agents of this process by the name of their node; for any other node, `elsewhere` is asked."""

    def __init__(self, elsewhere: NodeLogs) -> None:
        self._elsewhere = elsewhere
        self._openers: dict[str, Opener] = {}

    def update(self, openers: Mapping[str, Opener]) -> None:
        self._openers.update(openers)

    def open(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        node = pod.read(core.Pod).spec.node_name or ""
        return self._openers.get(node, self._elsewhere.open)(pod, container, options)


class RemoteNodeLogs:
    """Asks the agent at the node's own address. `token`: the cluster's for nodes. Use as an async context manager."""

    def __init__(self, store: Store, token: str) -> None:
        self._store = store
        self._token = token
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._session = None
        await self._stack.aclose()

    async def open(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        if self._session is None:
            raise errors.Unavailable("the server is shutting down")
        name = pod.read(core.Pod).spec.node_name or ""
        node = await self._node(name)
        parts = (pod.key.namespace, pod.key.name, pod.uid, container)
        url = f"{address(node)}/logs/{'/'.join(quote(part, safe='') for part in parts)}"
        headers = {"Authorization": f"Bearer {tokens.for_logs(tokens.of_node(self._token, name))}"}
        silence = None if options.follow else _SILENT_SECONDS
        request = self._session.get(
            url,
            params=query_of(options),
            headers=headers,
            ssl=fingerprint(node),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence),
            allow_redirects=False,
        )
        try:
            async with request as response:
                if response.status != 200:
                    raise await _error(response, name)
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    yield chunk
        except aiohttp.ServerFingerprintMismatch as error:
            told = f'what answers for node "{name}" at {url} is not its agent: it has another certificate'
            raise errors.Unavailable(told) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise errors.Unavailable(f'the agent of node "{name}" does not answer at {url}: {error}') from error

    async def _node(self, name: str) -> Object:
        try:
            return await self._store.get(core.NODE, Key("", name))
        except errors.NotFound as error:
            raise errors.NotFound(f'the node "{name}" of the pod is gone, and the logs with it') from error


def address(node: Object) -> str:
    """Where the node's agent listens. Raises Unavailable for a node that has not said so."""
    reported = node.read(core.Node).status
    by_type = {found.type: found.address for found in reported.addresses}
    host = by_type.get("InternalIP") or by_type.get("Hostname") or by_type.get("ExternalIP")
    endpoint = reported.daemon_endpoints and reported.daemon_endpoints.kubelet_endpoint
    if not host or not endpoint or not endpoint.port:
        raise errors.Unavailable(f'node "{node.key.name}" has not said where its agent listens')
    return f"https://{f'[{host}]' if ':' in host else host}:{endpoint.port}"


def fingerprint(node: Object) -> aiohttp.Fingerprint:
    """Of the one certificate that its agent is believed by. Raises Unavailable for a node that has not said so."""
    try:
        return aiohttp.Fingerprint(bytes.fromhex((node.meta.annotations or {}).get(CERTIFICATE, "")))
    except ValueError as error:
        raise errors.Unavailable(
            f'node "{node.key.name}" has not said by which certificate its agent is known'
        ) from error


def query_of(options: LogOptions) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in (
        ("follow", options.follow), ("timestamps", options.timestamps), ("previous", options.previous),
    ):  # fmt: skip
        if value:
            query[name] = "true"
    if options.tail is not None:
        query["tailLines"] = str(options.tail)
    if options.limit_bytes is not None:
        query["limitBytes"] = str(options.limit_bytes)
    if options.since is not None:
        query["sinceTime"] = timestamps.to_micro_text(options.since)
    return query


async def _error(response: aiohttp.ClientResponse, node: str) -> errors.ApiError:
    body = b""
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > _CHUNK_BYTES:
            break
    try:
        return status.to_error(raw.decode_object(body), response.status)
    except errors.BadRequest:
        return errors.Unavailable(f'the agent of node "{node}" answered {response.status}: {body[:200]!r}')
