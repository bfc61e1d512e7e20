"""A `Store` at the other end of a connection: the server's Kubernetes API, spoken with aiohttp.

For components that run away from the server. A batch of writes is as many requests, some at a time; those on one object
keep their order. What the connection does is told as `Unavailable`: callers back off and try again, as with any store.
"""

import asyncio
import io
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import quote

import aiohttp
import msgspec

from muster.api import core, errors, fields, raw, status
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.store.protocol import (
    Apply,
    Bind,
    Change,
    Create,
    Delete,
    Event,
    Options,
    Page,
    Patch,
    Refused,
    Replace,
    Result,
    Revision,
    Selection,
    Write,
    Written,
)

_WRITES_AT_ONCE = 32
_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=5)
# A watch that says nothing is no fault, but bookmarks come every minute: silence of several means that nobody is there.
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=300)
_LARGE_BODY = 512 * 1024
_LARGEST_LINE = 16 * 1024 * 1024
_JSON_TYPE = "application/json"


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = "0"
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int = 0


class _List(msgspec.Struct, frozen=True):
    """A list whose items stay encoded."""

    metadata: _ListMeta
    items: list[msgspec.Raw]


class _Line(msgspec.Struct, frozen=True):
    """One event of a watch."""

    type: str
    object: msgspec.Raw


_list_decoder = msgspec.json.Decoder(_List)
_line_decoder = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class _Request:
    method: Literal["POST", "PUT", "PATCH", "DELETE"]
    path: str
    body: bytes
    content_type: str = _JSON_TYPE
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    makes_new: bool = True
    """Whether 201 means that the object is new."""


class HttpStore:
    """`url` is the server's root, without `/k8s`. `tls`: whom to believe; None for all that this system trusts. Use as
    an async context manager."""

    def __init__(self, url: str, token: str, *, tls: ssl.SSLContext | None = None) -> None:
        self._root = f"{url.rstrip('/')}/k8s"
        self._token = token
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(_WRITES_AT_ONCE)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            # Watches hold their connection for hours, so the pool has no limit of its own; writes take turns.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ssl=self._tls or True),
            headers={
                "Authorization": f"Bearer {self._token}",
                "User-Agent": "muster",
                "Accept": _JSON_TYPE,
                "Accept-Encoding": "identity",  # compressing costs more than the networks between our parts do
            },
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # Reading

    async def get(self, kind: Kind, key: Key) -> Object:
        return Object(kind, await self._fetch(_path(kind, key), {}))

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        query = _selecting(selection)
        if limit:
            query["limit"] = str(limit)
        if token:
            query["continue"] = token
        if selection.labels.nothing:
            # A selector that nothing can match has no text form; the page still says where a watch starts.
            page = await self.list(Selection(selection.kind, selection.namespace), limit=1)
            return Page([], page.revision)
        body = await self._fetch(_collection(selection.kind, selection.namespace), query)
        found = _list_decoder.decode(body)
        meta = found.metadata
        return Page(
            [Object(selection.kind, bytes(item)) for item in found.items],
            Revision(int(meta.resource_version)),
            meta.continue_,
            meta.remaining_item_count,
        )

    async def _fetch(self, path: str, query: Mapping[str, str]) -> bytes:
        try:
            async with self._open_session().get(f"{self._root}{path}", params=query, timeout=_TIMEOUT) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(error) from error
        if response.status >= 400:
            raise _error(body, response.status)
        return body

    async def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncGenerator[Sequence[Event], None]:
        """Goes on over the ends that the server puts to every watch; bookmarks keep the place to go on from."""
        query = _selecting(selection) | {"watch": "true", "allowWatchBookmarks": "true"}
        cursor = since
        while True:
            place = _FROM_NOW_ON if cursor is None else {"resourceVersion": str(cursor)}
            async with aclosing(self._watch_once(selection, query | place)) as batches:
                async for events in batches:
                    cursor = events[-1].revision
                    kept = events if bookmarks else [e for e in events if e.change is not Change.BOOKMARK]
                    if kept:
                        yield kept

    async def _watch_once(
        self, selection: Selection, query: Mapping[str, str]
    ) -> AsyncGenerator[Sequence[Event], None]:
        url = f"{self._root}{_collection(selection.kind, selection.namespace)}"
        try:
            async with self._open_session().get(url, params=query, timeout=_WATCH_TIMEOUT) as response:
                if response.status >= 400:
                    raise _error(await response.read(), response.status)
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    events = [_event(selection.kind, line) for line in lines if line]
                    if events:
                        yield events
                    if len(rest) > _LARGEST_LINE:
                        raise errors.Unavailable("the server sent a line of a watch that does not end")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(error) from error

    # Writing

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        if len(writes) == 1:
            return [await self._write_one(writes[0])]
        results: dict[int, Result] = {}
        for chains in _stages(writes):
            async with asyncio.TaskGroup() as group:
                for chain in chains:
                    group.create_task(self._write_in_order(chain, writes, results), name=f"write {chain[0]}")
        return [results[index] for index in range(len(writes))]

    async def _write_in_order(self, chain: Sequence[int], writes: Sequence[Write], results: dict[int, Result]) -> None:
        for index in chain:
            results[index] = await self._write_one(writes[index])

    async def _write_one(self, write: Write) -> Result:
        try:
            request = _request(write)
            async with self._turns:
                return await self._send(write.kind, request)
        except errors.ApiError as error:
            return Refused(error)

    async def _send(self, kind: Kind, request: _Request) -> Written:
        headers = {"Content-Type": request.content_type, "X-Muster-Return": "object", **request.headers}
        try:
            async with self._open_session().request(
                request.method,
                f"{self._root}{request.path}",
                params=request.query,
                data=io.BytesIO(request.body),  # as a file: aiohttp then sends large bodies piece by piece
                headers=headers,
                timeout=_TIMEOUT,
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(error) from error
        if response.status >= 400:
            raise _error(body, response.status)
        return Written(
            Object(kind, body),
            is_gone=response.headers.get("X-Muster-Gone") == "true",
            is_new=response.status == 201 and request.makes_new,
            warnings=tuple(map(_warning, response.headers.getall("Warning", ()))),
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise errors.Unavailable("the store is not open")
        return self._session


_FROM_NOW_ON = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}


def _collection(kind: Kind, namespace: str | None) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced and namespace is not None:
        return f"{root}/namespaces/{quote(namespace, safe='')}/{kind.plural}"
    return f"{root}/{kind.plural}"


def _path(kind: Kind, key: Key, subresource: str = "") -> str:
    path = f"{_collection(kind, key.namespace)}/{quote(key.name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def _selecting(selection: Selection) -> dict[str, str]:
    query = {}
    if selection.labels.requirements:
        query["labelSelector"] = str(selection.labels)
    if selection.fields.requirements:
        query["fieldSelector"] = str(selection.fields)
    return query


def _event(kind: Kind, line: bytes) -> Event:
    found = _line_decoder.decode(line)
    encoded = bytes(found.object)
    if found.type == "ERROR":
        raise _error(encoded, 500)
    made = Object(kind, encoded)
    revision = Revision(made.revision)
    if found.type == Change.BOOKMARK.value:
        return Event(Change.BOOKMARK, None, revision)
    return Event(Change(found.type), made, revision)


def _stages(writes: Sequence[Write]) -> Iterator[list[list[int]]]:
    """Which writes may go at the same time. Those on one object keep their order, and what comes after the write of a
    namespace in a batch may be meant to live in it."""
    chains: dict[tuple[Kind, Key], list[int]] = {}
    for index, write in enumerate(writes):
        chains.setdefault((write.kind, _key(write, index)), []).append(index)
        if write.kind is core.NAMESPACE:
            yield list(chains.values())
            chains = {}
    yield list(chains.values())


def _key(write: Write, index: int) -> Key:
    if not isinstance(write, Create):
        return write.key
    meta = write.document.get("metadata") or {}
    # A generated name meets no other write of the batch.
    return Key(str(meta.get("namespace") or ""), str(meta.get("name") or f"\0{index}"))


def _request(write: Write) -> _Request:
    query = _options(write.options)
    match write:
        case Create():
            return _create(write, query)
        case Replace():
            path = _path(write.kind, write.key, write.subresource)
            return _Request("PUT", path, raw.encode(write.document), query=query)
        case Patch():
            path = _path(write.kind, write.key, write.subresource)
            based_on = {} if write.based_on is None else {"X-Muster-Based-On": str(write.based_on)}
            return _Request("PATCH", path, raw.encode(write.body), write.type.value, query, based_on)
        case Apply():
            path = _path(write.kind, write.key, write.subresource)
            if write.force:
                query["force"] = "true"
            return _Request("PATCH", path, raw.encode(write.document), "application/apply-patch+yaml", query)
        case Delete():
            return _Request("DELETE", _path(write.kind, write.key), raw.encode(_delete_options(write)), query=query)
        case Bind():
            meta: Document = {"name": write.key.name, "annotations": dict(write.annotations)}
            if write.uid:
                meta["uid"] = write.uid
            binding = {"metadata": meta, "target": {"kind": "Node", "name": write.node}}
            path = _path(write.kind, write.key, "binding")
            return _Request("POST", path, raw.encode(binding), query=query, makes_new=False)


def _create(write: Create, query: dict[str, str]) -> _Request:
    kind = write.kind
    namespace = raw.dig(write.document, "metadata", "namespace") or ""
    if kind.namespaced and not namespace:
        name = raw.dig(write.document, "metadata", "name") or ""
        raise errors.invalid(kind.name, str(name), [fields.required("metadata.namespace")], group=kind.group)
    return _Request("POST", _collection(kind, str(namespace)), raw.encode(write.document), query=query)


def _options(options: Options) -> dict[str, str]:
    query = {"fieldManager": options.manager, "fieldValidation": options.unknown_fields}
    if options.dry_run:
        query["dryRun"] = "All"
    return query


def _delete_options(write: Delete) -> Document:
    options: Document = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if write.propagation is not None:
        options["propagationPolicy"] = write.propagation
    if write.grace_seconds is not None:
        options["gracePeriodSeconds"] = write.grace_seconds
    preconditions: Document = {}
    if write.uid is not None:
        preconditions["uid"] = write.uid
    if write.based_on is not None:
        preconditions["resourceVersion"] = str(write.based_on)
    if preconditions:
        options["preconditions"] = preconditions
    return options


def _warning(header: str) -> str:
    """The text of `299 - "text"`."""
    text = header.partition('"')[2].removesuffix('"')
    return text.replace('\\"', '"').replace("\\\\", "\\")


def _unavailable(error: Exception) -> errors.Unavailable:
    return errors.Unavailable(f"the server cannot be reached: {str(error) or type(error).__name__}")


def _error(body: bytes, code: int) -> errors.ApiError:
    try:
        return status.to_error(raw.decode_object(body), code)
    except errors.BadRequest:
        return status.to_error({"message": f"the server answered {code}: {body[:200].decode(errors='replace')}"}, code)
