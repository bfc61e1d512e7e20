"""The store of any Kubernetes cluster: what the others do by themselves, put in the terms of a real API server.

What such a server does not do: it keeps no field that its schemas do not know, and it does not answer every write with
the object. Of what was bound or is gone, `Written.object` says no more than is known: kind, key, uid and the node.
"""

import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec.structs import replace

from muster.access.kubeconfig import Cluster
from muster.api import errors, ownership, raw
from muster.api.kinds import Kind
from muster.api.objects import Object
from muster.api.ownership import Ownership
from muster.api.raw import JSON, Document
from muster.store import wire
from muster.store.connection import Connection, Response
from muster.store.protocol import (
    Apply,
    Bind,
    Create,
    Delete,
    Event,
    Page,
    Patch,
    PatchType,
    Replace,
    Revision,
    Selection,
    Write,
    Written,
)
from muster.store.remote import RemoteStore

_log = logging.getLogger(__name__)

_PAGE: Final = 1000
"""Objects to a request where all are wanted: a server needs memory for each answer, and so do we."""
_MOST_LISTINGS: Final = 3
_TOO_LARGE: Final = "request is too large"  # etcd's own words, which the server passes on as its own failure


class KubernetesStore(RemoteStore):
    """`owned`: which objects of kinds that others look after as well are seen and made here."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        owned: Ownership = ownership.EVERYTHING,
        page: int = _PAGE,
        entropy: random.Random | None = None,
    ) -> None:
        super().__init__(Connection(cluster.url, cluster.credentials, server_name=cluster.server_name, entropy=entropy))
        self._owned = owned
        self._page = page

    # Reading

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        narrowed = self._narrow(selection)
        if limit or token:
            return await super().list(narrowed, limit=limit, token=token)
        for _ in range(_MOST_LISTINGS):
            try:
                return await self._list_in_pages(narrowed)
            except errors.Expired:
                _log.info("the list of %s took longer than the server remembers; again", selection.kind.resource)
        return await super().list(narrowed)

    async def _list_in_pages(self, selection: Selection) -> Page:
        """All of it, as of the first page."""
        page = await super().list(selection, limit=self._page)
        items = [*page.items]
        while page.token:
            page = await super().list(selection, limit=self._page, token=page.token)
            items += page.items
        return Page(items, page.revision)

    async def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncGenerator[Sequence[Event], None]:
        narrowed = self._narrow(selection)
        async with aclosing(super().watch(narrowed, since=since, bookmarks=bookmarks)) as batches:
            async for events in batches:
                yield events

    async def _from_now_on(self, selection: Selection) -> dict[str, str]:
        """A watch without a place to start from begins with all that there is: so the place is looked up."""
        page = await super().list(Selection(selection.kind, selection.namespace), limit=1)
        return {"resourceVersion": str(page.revision)}

    def _narrow(self, selection: Selection) -> Selection:
        labels = self._owned.narrow(selection.kind, selection.labels)
        return selection if labels is selection.labels else replace(selection, labels=labels)

    def _error(self, kind: Kind, body: bytes, code: int) -> errors.ApiError:
        found = super()._error(kind, body, code)
        if code < 500 or not isinstance(found, errors.InternalError):
            return found
        if _TOO_LARGE in found.message:
            return errors.TooLarge(found.message, kind=kind.name, group=kind.group)
        # A webhook that is away, etcd that elects a leader: nothing that is wrong with what was asked.
        return errors.Unavailable(found.message, kind=found.kind, name=found.name, group=found.group)

    # Writing

    def _request(self, write: Write) -> wire.Request:
        match write:
            case Create() | Apply():
                labelled = self._owned.label(write.kind, write.document)
                return wire.request(replace(write, document=_typed(write.kind, labelled)))
            case Replace():
                return wire.request(replace(write, document=_typed(write.kind, write.document)))
            case Patch() if write.based_on is not None:
                return wire.request(replace(write, body=_based(write.body, write.type, write.based_on)))
            case _:
                return wire.request(write)

    def _written(self, write: Write, response: Response, *, is_new: bool) -> Written:
        warnings = wire.warnings(response.headers.getall("Warning", ()))
        match write:
            case Bind():
                return Written(_bound(write), warnings=warnings)
            case Delete():
                answer = wire.decode(_status_decoder, response.body)
                if answer.kind == "Status":
                    uid = answer.details.uid or write.uid or ""
                    # An eviction is answered so as well, and a pod that runs takes its time to go.
                    return Written(_last_known(write, uid), is_gone=not write.within_budgets, warnings=warnings)
        found = wire.object_of(write.kind, response.body)
        is_gone = (isinstance(write, Delete) or found.is_terminating) and not _is_held(found)
        return Written(found, is_gone, is_new, warnings)


class _Details(msgspec.Struct, frozen=True):
    uid: str = ""


class _Status(msgspec.Struct, frozen=True):
    kind: str = ""
    details: _Details = _Details()


_status_decoder = msgspec.json.Decoder(_Status)


def _typed(kind: Kind, document: Document) -> Document:
    """Objects of custom kinds must say what they are."""
    return {"apiVersion": kind.api_version, "kind": kind.name, **document}


def _based(body: JSON, type: PatchType, revision: Revision) -> JSON:
    """A patch that says which version it changes is refused with a conflict where that is not the current one."""
    if type is PatchType.JSON:
        return [{"op": "replace", "path": "/metadata/resourceVersion", "value": str(revision)}, *body]
    return {**body, "metadata": {**(body.get("metadata") or {}), "resourceVersion": str(revision)}}


def _is_held(found: Object) -> bool:
    """Whether what is being deleted is still there: for its finalizers' sake, or a pod until its node lets it go."""
    return bool(found.meta.finalizers) or bool(found.meta.deletion_grace_period_seconds)


def _bound(write: Bind) -> Object:
    meta: Document = {"name": write.key.name, "namespace": write.key.namespace, "uid": write.uid or ""}
    if write.annotations:
        meta["annotations"] = dict(write.annotations)
    return Object(write.kind, raw.encode(_typed(write.kind, {"metadata": meta, "spec": {"nodeName": write.node}})))


def _last_known(write: Delete, uid: str) -> Object:
    meta = {"name": write.key.name, "namespace": write.key.namespace, "uid": uid}
    return Object(write.kind, raw.encode(_typed(write.kind, {"metadata": meta})))
