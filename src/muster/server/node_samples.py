"""What the pods of a node use, from its agent: one in this process is asked directly, another over HTTPS.

The same as with logs (see `node_logs`): an agent is known by its certificate, and sent a token for its node alone.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, Self, TypeAlias, cast

import aiohttp
import msgspec

from muster.agent import tokens
from muster.agent.sampling import Samples
from muster.api import core, errors
from muster.api.objects import Key
from muster.server import node_logs
from muster.store.protocol import Store

Sampler: TypeAlias = Callable[[], Awaitable[Samples]]
_SECONDS: Final = 5.0
_MOST_BYTES: Final = 16 * 1024 * 1024
_decode = msgspec.json.Decoder(dict[str, dict[str, dict[str, object]]]).decode


class NodeSamples:
    """`token`: the cluster's for nodes. Use as an async context manager."""

    def __init__(self, store: Store, token: str) -> None:
        self._store = store
        self._token = token
        self._local: dict[str, Sampler] = {}
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._session = None
        await self._stack.aclose()

    def update(self, samplers: Mapping[str, Sampler]) -> None:
        """Those of this process, by node."""
        self._local.update(samplers)

    async def of(self, node: str) -> Samples:
        """Raises NotFound, Unavailable."""
        local = self._local.get(node)
        return await local() if local is not None else await self._remote(node)

    async def _remote(self, name: str) -> Samples:
        if self._session is None:
            raise errors.Unavailable("the server is shutting down")
        node = await self._store.get(core.NODE, Key("", name))
        token = tokens.for_logs(tokens.of_node(self._token, name))
        request = self._session.get(
            f"{node_logs.address(node)}/samples",
            headers={"Authorization": f"Bearer {token}"},
            ssl=node_logs.fingerprint(node),
            timeout=aiohttp.ClientTimeout(total=_SECONDS),
            allow_redirects=False,
        )
        try:
            async with request as response:
                body = await response.content.read(_MOST_BYTES)
                if response.status != 200:
                    raise errors.Unavailable(f'the agent of node "{name}" answered with {response.status}')
                return cast(Samples, _decode(body))  # whoever takes them in checks what the figures are
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError) as error:
            raise errors.Unavailable(f'the agent of node "{name}" did not tell what its pods use: {error}') from error
