"""Pages of tasks at a port of their own, where a script in them is a stranger to the API.

To a browser all that comes from one port is one and the same: a page that somebody's task serves could ask the API for
whatever the one may who looks at it. From another port it can neither read what the API answers nor change anything
(`authenticating.check_origin`). So a request that may become a page is sent there. What cannot become one is served at
the server's own address all the same: WebSockets, and programs that say who they are as no browser does by itself.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from muster.api import errors
from muster.api.errors import ApiError
from muster.server.determined.authenticating import ALLOCATION_HEADER
from muster.server.exchange import Outgoing, Response
from muster.server.proxy import headers, refusing
from muster.server.proxy.proxying import Proxy

_HOST: Final = re.compile(r"[0-9A-Za-z._:-]+")
_BY_PROGRAMS: Final = ("bearer ", "token ")


class Elsewhere:
    """The proxy as it is mounted beside the API. `port`: where the services have their own; `url`: how browsers reach
    that, where it is not the same host at that port."""

    def __init__(self, proxy: Proxy, port: int, url: str = "") -> None:
        self._proxy = proxy
        self._port = port
        self._url = url.rstrip("/")

    def serves(self, scope: Scope) -> bool:
        return self._proxy.serves(scope)

    def close(self) -> None:
        self._proxy.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = dict(headers.decoded(scope["headers"]))
        if scope["type"] == "websocket" or _is_of_a_program(sent):
            await self._proxy(scope, receive, send)
            return
        try:
            answer = Response(307, b"", "text/plain", (("location", self._address(scope, sent)),))
        except ApiError as error:
            answer = refusing.response(error, sent)
        await Outgoing(send, "proxy").respond(answer)

    def _address(self, scope: Scope, sent: Mapping[str, str]) -> str:
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope.get("query_string", b"")
        whole = b"?".join([path.partition(b"?")[0], *([query] if query else [])])
        if any(byte <= 0x20 or byte >= 0x7F for byte in whole):
            raise errors.BadRequest("the path has characters that must be percent-encoded")
        return f"{self._url or self._origin(scope, sent.get('host', ''))}{whole.decode()}"

    def _origin(self, scope: Scope, host: str) -> str:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if not _HOST.fullmatch(name):
            raise errors.BadRequest("Host: say by which name you reach this server")
        scheme = "https" if scope.get("scheme") == "https" else "http"
        return f"{scheme}://{f'[{name}]' if ':' in name else name}:{self._port}"


def _is_of_a_program(sent: Mapping[str, str]) -> bool:
    """Passwords (`Basic`) do not count: browsers remember them and send them along."""
    return ALLOCATION_HEADER in sent or sent.get("authorization", "").lower().startswith(_BY_PROGRAMS)


class Alone:
    """An ASGI application for the port at which there is nothing but the services of tasks."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._proxy.serves(scope):
            await self._proxy(scope, receive, send)
            return
        told = errors.NotFound("nothing is served here but what tasks serve, below /proxy/")
        refusal = refusing.response(told, dict(headers.decoded(scope["headers"])))
        if scope["type"] == "websocket":
            await refusing.refuse_socket(refusal, send)
        else:
            await Outgoing(send, "proxy").respond(refusal)
