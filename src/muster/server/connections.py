"""HTTP connections whose clients have not said yet who they are: what they may cost is bounded. Who shows a certificate
is known to applications by it, as ASGI's extension for TLS describes.

Uvicorn's parser keeps the head of a request for as long as it grows, and waits for as long as it takes. Both are ended
here: a head may have so many bytes, and so much time.
"""

import asyncio
import ssl
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 128 * 1024
"""Of the request line and the headers. What comes in one read is parsed before it is counted."""
HEAD_SECONDS: Final = 60.0


class BoundedConnection(HttpToolsProtocol):
    """Counts what came since the parser last got on: to the end of the headers, or with a piece of the body. So what
    follows a body in chunks is bounded as well."""

    _unread = 0
    _is_begun = False
    _certificate = ""
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        shown = tls.getpeercert(binary_form=True) if tls is not None else None
        self._certificate = ssl.DER_cert_to_PEM_cert(shown) if shown else ""
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self.transport.get_protocol() is not self:
            return  # a WebSocket now
        if self._unread > MAX_HEAD_BYTES:
            self._turn_away("The head of the request is too large.")
        elif self._patience is None and self._is_between_requests():
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._unread = 0
        self._is_begun = True
        if self._certificate:
            self.scope["extensions"] = {"tls": {"client_cert_chain": [self._certificate]}}
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def _is_between_requests(self) -> bool:
        return not self.transport.is_closing() and (not self._is_begun or self.cycle.response_complete)

    def _wait_for_head(self) -> None:
        self._patience = self.loop.call_later(
            HEAD_SECONDS, self._turn_away, "The head of the request did not come in time."
        )

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _turn_away(self, why: str) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self._is_between_requests():
            self.send_400_response(why)
        else:
            self.transport.abort()  # in the middle of an answer
