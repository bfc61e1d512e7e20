"""The webhooks as an ASGI application: `/mutate` fills in, `/validate` refuses, `/convert` changes the version."""

import itertools
import logging
from typing import Final

from starlette.types import Receive, Scope, Send

from muster.api import batch, errors, kubeflow, muster, ownership, raw, volcano
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.managing import Find
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.deploying.definitions import CONVERT
from muster.server.admission import converting, reviewing
from muster.server.admission.reviewing import Asked, Completing
from muster.server.admitting import Admitting
from muster.server.exchange import ClientGone, Outgoing, Request, Response, json_response, request_of
from muster.store.protocol import Store

MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"
_OWNERS: Final = (batch.JOB, kubeflow.PYTORCH_JOB, muster.ALLOCATION, volcano.JOB)
"""What a new object may be part of: made a moment before it, so that our copy may not show it yet."""
_MOST_LOOKUPS: Final = 12
_log = logging.getLogger(__name__)


class _Unknown(Exception):
    def __init__(self, kind: Kind, key: Key) -> None:
        super().__init__(f"{kind} {key}")
        self.kind = kind
        self.key = key


class Webhooks:
    """`find`: looks up other objects in a copy, which may lag behind `store`."""

    def __init__(self, store: Store, find: Find, complete: Completing) -> None:
        self._store = store
        self._find = find
        self._complete = complete
        self._admitting = Admitting(store)
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = f"{next(self._numbers):08x}"
        outgoing = Outgoing(send, request_id)
        try:
            await outgoing.respond(await self._answer(request_of(scope, receive, request_id)))
        except ClientGone:
            return
        except ApiError as error:
            await outgoing.respond(Response(error.http_status, error.message.encode(), "text/plain; charset=utf-8"))
        except Exception:
            _log.exception("review %s failed", request_id)
            await outgoing.respond(Response(500, b"the webhook failed; its log says why", "text/plain; charset=utf-8"))

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST" or request.path not in (MUTATE, VALIDATE, CONVERT):
            served = f"{MUTATE}, {VALIDATE} and {CONVERT}"
            raise errors.NotFound(f"nothing is served at {request.path}; reviews are posted to {served}")
        review = raw.decode_object(await request.body())
        if request.path == CONVERT:
            return json_response(converting.answer(review))
        asked = reviewing.read(review)
        try:
            return json_response(await (self._mutate(asked) if request.path == MUTATE else self._validate(asked)))
        except ApiError as error:
            return json_response(reviewing.refused(asked.uid, error))

    async def _mutate(self, asked: Asked) -> Document:
        fetched: dict[tuple[Kind, Key], Object | None] = {}

        def find(kind: Kind, key: Key) -> Object | None:
            if (kind, key) in fetched:
                return fetched[kind, key]
            found = self._find(kind, key)
            if found is None and kind in _OWNERS:
                raise _Unknown(kind, key)
            return found

        for _ in range(_MOST_LOOKUPS):
            try:
                return reviewing.allowed(asked, self._complete(asked, find))
            except _Unknown as unknown:
                fetched[unknown.kind, unknown.key] = await self._fetch(unknown.kind, unknown.key)
        raise errors.BadRequest("metadata.ownerReferences: the object has too many owners above it")

    async def _fetch(self, kind: Kind, key: Key) -> Object | None:
        try:
            return await self._store.get(kind, key)
        except errors.NotFound:
            return None

    async def _validate(self, asked: Asked) -> Document:
        if not self._complete.ownership.claims(raw.dig(asked.document, "metadata", "labels", default={})):
            found = list(ownership.problems(asked.document))
        elif asked.operation == "DELETE":
            await self._admitting.deleted(asked.kind, reviewing.as_object(asked.kind, asked.document).key)
            found = []
        else:
            found = list(reviewing.own_problems(asked))
            old = None if asked.old is None else reviewing.as_object(asked.kind, asked.old)
            if not found:
                found += await self._admitting.reviewed(old, reviewing.as_object(asked.kind, asked.document))
        if found:
            raise reviewing.invalid(asked, found)
        return reviewing.allowed(asked)
