"""`Determined`: what a platform knows of experiments and tasks, by the conventions of Determined's REST API.

Documents go in and come out as plain dictionaries, with names as the wire has them. Errors are the classes of
`muster.api.errors`. May be used from many threads.
"""

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import urlencode

from muster.api import errors, raw, status
from muster.api.raw import JSON, Document
from muster.sdk import reading, trusting
from muster.sdk.config import KUBERNETES_PATH, Connection
from muster.sdk.transport import Reply, Request, Stream, Transport, lines

API = "/api/v1"
_PAGE = 500
_UPLOAD_IDLE_SECONDS = 600.0

Value: TypeAlias = str | int | float | bool | None
Query: TypeAlias = Mapping[str, Value | Sequence[str] | Sequence[int]]
"""What is None is left out; lists repeat their name."""
Told: TypeAlias = Callable[[int], None]
"""How many more bytes have gone or come."""


class Determined:
    """`headers` go with every request, beside what the transport says of who we are."""

    def __init__(self, transport: Transport, headers: Mapping[str, str] | None = None) -> None:
        self._transport = transport
        self._headers = dict(headers or {})

    def close(self) -> None:
        self._transport.close()

    def get(self, path: str, query: Query | None = None) -> Document:
        return self._answer(Request("GET", target(path, query), headers=self._headers))

    def send(self, method: str, path: str, body: JSON = None) -> Document:
        encoded = None if body is None else raw.encode(body)
        return self._answer(Request(method, target(path), body=encoded, headers=self._headers))

    def upload(self, path: str, body: JSON, told: Told) -> Document:
        """A body that may be large, and take its time to be looked at."""
        encoded = raw.encode(body)
        headers = {**self._headers, "Content-Length": str(len(encoded))}
        sent = _Told(encoded, told)
        request = Request("POST", target(path), body=sent, headers=headers, idle_seconds=_UPLOAD_IDLE_SECONDS)
        stream = self._transport.open(request)
        try:
            return _document(Reply(stream.status, b"".join(stream.chunks())))
        finally:
            stream.close()

    def pages(self, path: str, key: str, query: Query | None = None) -> Iterator[Document]:
        """All that a list has under `key`, fetched page by page."""
        offset = 0
        while True:
            page = self.get(path, {**(query or {}), "offset": offset, "limit": _PAGE})
            yield from reading.objects(page, key)
            end, total = raw.dig(page, "pagination", "endIndex"), raw.dig(page, "pagination", "total")
            if not isinstance(end, int) or not isinstance(total, int) or not offset < end < total:
                return
            offset = end

    def follow(self, path: str, query: Query | None = None) -> Iterator[Document]:
        """What a stream tells, one by one, until the server ends it."""
        stream = self._open(Request("GET", target(path, query), headers=self._headers))
        try:
            for line in lines(stream):
                yield _result(line)
        finally:
            stream.close()

    def download(self, path: str, accept: str) -> Iterator[bytes]:
        """A file that is not part of the API proper: `path` is below the server's address."""
        stream = self._open(Request("GET", path, headers={**self._headers, "Accept": accept}))
        try:
            yield from stream.chunks()
        finally:
            stream.close()

    def _answer(self, request: Request) -> Document:
        return _document(self._transport.exchange(request))

    def _open(self, request: Request) -> Stream:
        stream = self._transport.open(request)
        if stream.status >= 400:
            raise error_of(Reply(stream.status, b"".join(stream.chunks())))
        return stream


def connect(connection: Connection) -> Determined:
    """To the platform whose Kubernetes API the connection names: both are served side by side. Raises BadRequest where
    that is a cluster's own."""
    if connection.cluster is not None and not connection.server.endswith(KUBERNETES_PATH):
        raise errors.BadRequest(
            f"{connection.server} is a Kubernetes cluster; experiments are kept by a server of ours: start one with "
            "`muster serve --kubeconfig FILE`, or name the one that runs with --server or MUSTER_SERVER"
        )
    return Determined(trusting.transport(connection, connection.server.removesuffix(KUBERNETES_PATH)))


def target(path: str, query: Query | None = None) -> str:
    """`path`: below `/api/v1`."""
    pairs = [(name, _text(value)) for name, value in _pairs(query or {})]
    return f"{API}{path}?{urlencode(pairs)}" if pairs else f"{API}{path}"


def number(value: JSON) -> float | None:
    """Numbers that JSON has not travel as words. None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value)
    return float(value)


def words(value: float) -> float | str:
    """The other way round."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def error_of(reply: Reply) -> errors.ApiError:
    try:
        found = raw.decode(reply.body)
    except errors.BadRequest:
        found = None
    told = reading.section(found, "error")
    text = reading.text(told, "error") or reading.text(told, "message")
    text = text or reply.body[:200].decode("utf-8", "replace").strip()
    return _error(text, reply.status, reading.text(told, "reason"))


def _error(text: str, code: int, reason: str = "") -> errors.ApiError:
    return status.to_error({"message": text, "code": code, "reason": reason}, code)


def _document(reply: Reply) -> Document:
    if reply.status >= 400:
        raise error_of(reply)
    return raw.decode_object(reply.body) if reply.body.strip() else {}


def _result(line: bytes) -> Document:
    found = raw.decode_object(line)
    if "error" in found:
        code = raw.dig(found, "error", "httpCode")
        raise _error(reading.text(found, "error", "message"), code if isinstance(code, int) else 500)
    return reading.section(found, "result")


def _pairs(query: Query) -> Iterator[tuple[str, Value]]:
    for name, value in query.items():
        if value is None:
            continue
        if isinstance(value, str | int | float):
            yield name, value
        else:
            for member in value:
                yield name, member


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Told(io.BytesIO):
    """A body that says how much of it has been sent."""

    def __init__(self, body: bytes, told: Told) -> None:
        super().__init__(body)
        self._told = told

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self._told(len(found))
        return found
