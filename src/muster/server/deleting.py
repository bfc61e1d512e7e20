"""Delete one object, a collection, or evict a pod within its disruption budgets."""

from dataclasses import dataclass, replace
from typing import get_args

from msgspec import structs

from muster.api import core, errors, raw
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.server import access, formats, reading, versions, writing
from muster.server.admitting import Admitting
from muster.server.context import Call, Context
from muster.server.exchange import Request, Response
from muster.server.paths import Target
from muster.store import protocol
from muster.store.protocol import Propagation, Refused, Revision, Written

_MAX_DELETED_AT_ONCE = 500
_RETURNED = frozenset({core.POD, core.SERVICE})
"""Kinds whose last state Kubernetes answers with even when they are gone: typed clients decode it as such."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    propagation: Propagation | None = None
    grace_seconds: int | None = None
    uid: str | None = None
    based_on: Revision | None = None
    is_dry_run: bool = False

    def delete(self, target: Target, key: Key, options: protocol.Options) -> protocol.Delete:
        return protocol.Delete(
            target.kind, key, self.propagation, self.grace_seconds, self.uid, self.based_on,
            structs.replace(options, dry_run=options.dry_run or self.is_dry_run),
        )  # fmt: skip


async def delete(context: Context, admitting: Admitting, call: Call) -> Response:
    target = call.target
    asked = await _asked(call.request)
    await admitting.deleted(target.kind, target.key)
    write = asked.delete(target, target.key, writing.options_of(call.request))
    return deleted_response(context, call, await writing.commit(context, write))


def deleted_response(context: Context, call: Call, written: Written, status: int = 200) -> Response:
    found = written.object
    if call.request.headers.get(writing.RETURN_OBJECT) == "object":
        response = reading.respond(context, call, found, status)
        return replace(response, headers=((writing.GONE, "true" if written.is_gone else "false"),))
    if not written.is_gone or call.target.kind in _RETURNED:
        return reading.respond(context, call, found, status)
    return reading.success(_details(call.target, found), status)


def _details(target: Target, found: Object) -> Document:
    details: Document = {"name": found.key.name, "kind": target.kind.plural, "uid": found.uid}
    return details | ({"group": target.group} if target.group else {})


async def delete_collection(context: Context, admitting: Admitting, call: Call) -> Response:
    """Deletes in batches; an object that somebody else deletes meanwhile is no failure."""
    target, query = call.target, call.request.query
    asked = await _asked(call.request)
    options = writing.options_of(call.request)
    page = await context.store.list(reading.selection_of(target, query), limit=max(0, query.integer("limit") or 0))
    for found in page.items:
        access.check(
            call.identity,
            access.Attributes("delete", target.group, target.kind.plural, found.key.namespace, found.key.name),
        )
        await admitting.deleted(target.kind, found.key)
    deleted: list[Object] = []
    for start in range(0, len(page.items), _MAX_DELETED_AT_ONCE):
        some = page.items[start : start + _MAX_DELETED_AT_ONCE]
        results = await context.store.write([asked.delete(target, found.key, options) for found in some])
        for result in results:
            if isinstance(result, Refused):
                if not isinstance(result.error, errors.NotFound):
                    raise result.error
            else:
                deleted.append(result.object)
    encoded = [versions.encoded(found, target) for found in deleted]
    body = reading.join(target, encoded, {"resourceVersion": str(page.revision)})
    return Response(200, body)


async def evict(context: Context, call: Call) -> Response:
    """The body is an Eviction. Refused with TooManyRequests while a disruption budget does not allow it."""
    target = call.target
    sent = await writing.body(call.request)
    if sent.get("kind") not in (None, "", "Eviction"):
        raise errors.BadRequest(f"pods/eviction takes an Eviction of policy/v1, found kind {sent.get('kind')!r}")
    name = raw.dig(sent, "metadata", "name")
    if name not in (None, "", target.name):
        raise errors.BadRequest(f"name in URL ({target.name}) does not match name in Eviction object ({name})")
    asked = options_from(sent.get("deleteOptions") or {})
    write = asked.delete(target, target.key, writing.options_of(call.request))
    written = await writing.commit(context, structs.replace(write, within_budgets=True))
    if call.request.headers.get(writing.RETURN_OBJECT) == "object":
        return deleted_response(context, call, written, 201)
    return reading.success(_details(target, written.object), 201)


async def _asked(request: Request) -> DeleteOptions:
    """From the body where there is one, else from the query."""
    encoded = await request.body()
    if encoded.strip():
        return options_from(formats.decode(encoded, request.headers.get("content-type", "")))
    query = request.query
    sent: Document = {
        "gracePeriodSeconds": query.integer("gracePeriodSeconds"),
        "propagationPolicy": query.text("propagationPolicy") or None,
    }
    if query.has("orphanDependents"):
        sent["orphanDependents"] = query.flag("orphanDependents")
    return options_from(sent)


def options_from(sent: Document) -> DeleteOptions:
    """Raises Invalid or BadRequest that names the field."""
    raw.as_object(sent)
    if sent.get("kind") not in (None, "", "DeleteOptions"):
        raise errors.BadRequest(f"the body of a delete is DeleteOptions, found kind {str(sent['kind'])[:100]!r}")
    grace, dry_run = sent.get("gracePeriodSeconds"), sent.get("dryRun") or []
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise errors.BadRequest(f"gracePeriodSeconds: expected a number, found {raw.type_name(grace)}")
    if dry_run not in ([], ["All"]):
        raise errors.BadRequest("dryRun: the only supported value is [All]")
    version = raw.dig(sent, "preconditions", "resourceVersion") or ""
    based_on = reading.revision(str(version))
    uid = raw.dig(sent, "preconditions", "uid")
    return DeleteOptions(
        propagation=_propagation(sent),
        grace_seconds=grace,
        uid=str(uid) if uid else None,
        based_on=None if based_on is None else Revision(based_on),
        is_dry_run=bool(dry_run),
    )


def _propagation(sent: Document) -> Propagation | None:
    found: object = sent.get("propagationPolicy")
    if found is None:
        orphan = sent.get("orphanDependents")
        return None if orphan is None else "Orphan" if orphan else "Background"
    match found:
        case "Background" | "Foreground" | "Orphan":
            return found
    supported = ", ".join(get_args(Propagation))
    problem = errors.FieldError(
        "propagationPolicy",
        "FieldValueNotSupported",
        f"Unsupported value: {str(found)[:50]!r}: supported values: {supported}",
    )
    raise errors.invalid("DeleteOptions", "", [problem], group="meta.k8s.io")
