"""Get and list. A list is joined from the encoded objects as they are stored: nothing is decoded to be sent."""

import asyncio
from collections.abc import Callable, Sequence

from muster.api import errors, raw, selectors
from muster.api.objects import Object
from muster.api.raw import Document
from muster.server import formats, tables, versions
from muster.server.context import Call, Context
from muster.server.exchange import Query, Response, json_response
from muster.server.formats import Format, Shape
from muster.server.paths import Target
from muster.store.protocol import Page, Selection

_SLICE = 200  # some 15 ms of rendering
# How the fields of events are called in events.k8s.io, where the stored kind has other names for them.
_FIELD_NAMES = {"regarding.": "involvedObject.", "reportingController": "reportingComponent"}


def wanted_format(call: Call) -> Format:
    return formats.negotiate(call.request.headers.get("accept", ""))


async def get(context: Context, call: Call) -> Response:
    found = await context.store.get(call.target.kind, call.target.key)
    return respond(context, call, found)


def respond(context: Context, call: Call, found: Object, status: int = 200) -> Response:
    """One object in the form that the client asked for."""
    wanted = wanted_format(call)
    match wanted.shape:
        case Shape.OBJECT:
            body = versions.encoded(found, call.target)
        case Shape.METADATA:
            body = raw.encode(metadata_only(versions.document(found, call.target), wanted.version))
        case Shape.TABLE:
            view = tables.TableView(call.target, wanted.version, inclusion(call.request.query), context.clock.now())
            body = tables.encode(view, [found], {"resourceVersion": found.meta.resource_version})
    return Response(status, body, wanted.content_type)


async def list_(context: Context, call: Call) -> Response:
    query, wanted = call.request.query, wanted_format(call)
    page = await _page(context, selection_of(call.target, query), query)
    meta: Document = {"resourceVersion": str(page.revision)}
    if page.token:
        meta["continue"] = page.token
        if page.remaining > 0:
            meta["remainingItemCount"] = page.remaining
    target = call.target
    match wanted.shape:
        case Shape.OBJECT if target.is_stored_version:
            body = join(target, [found.raw for found in page.items], meta)
        case Shape.OBJECT:
            body = join(target, await _in_slices(page.items, lambda found: versions.encoded(found, target)), meta)
        case Shape.METADATA:
            body = _joined(
                {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{wanted.version}", "metadata": meta},
                await _in_slices(
                    page.items,
                    lambda found: raw.encode(metadata_only(versions.document(found, target), wanted.version)),
                ),
            )
        case Shape.TABLE:
            view = tables.TableView(target, wanted.version, inclusion(query), context.clock.now())
            body = tables.join(view, await _in_slices(page.items, lambda found: tables.row(view, found)), meta)
    return Response(200, body, wanted.content_type)


async def _in_slices(items: Sequence[Object], render: Callable[[Object], bytes]) -> list[bytes]:
    """Every item rendered, with room for other requests in between: ten thousand rows take most of a second."""
    rendered: list[bytes] = []
    for start in range(0, len(items), _SLICE):
        if start:
            await asyncio.sleep(0)
        rendered += [render(found) for found in items[start : start + _SLICE]]
    return rendered


def join(target: Target, encoded: Sequence[bytes], meta: Document) -> bytes:
    """The list of objects that are encoded already, in the client's version."""
    return _joined({"kind": f"{target.kind.name}List", "apiVersion": target.api_version, "metadata": meta}, encoded)


def _joined(head: Document, encoded: Sequence[bytes]) -> bytes:
    return b"".join((raw.encode(head)[:-1], b',"items":[', b",".join(encoded), b"]}"))


def metadata_only(document: Document, version: str) -> Document:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": document.get("metadata") or {},
    }


def inclusion(query: Query) -> str:
    found = query.text("includeObject") or "Metadata"
    if found not in ("None", "Metadata", "Object"):
        raise errors.BadRequest(f"query parameter 'includeObject': expected None, Metadata or Object, found {found!r}")
    return found


def selection_of(target: Target, query: Query) -> Selection:
    fields = query.text("fieldSelector")
    if fields and target.group == "events.k8s.io":
        for theirs, ours in _FIELD_NAMES.items():
            fields = fields.replace(theirs, ours)
    selected = selectors.parse_fields(fields, target.kind)
    if target.name:
        selected = selectors.FieldSelector(
            (*selected.requirements, selectors.FieldRequirement("metadata.name", target.name))
        )
    return Selection(
        target.kind,
        target.namespace if target.kind.namespaced else None,
        selectors.parse_labels(query.text("labelSelector")),
        selected,
    )


async def _page(context: Context, selection: Selection, query: Query) -> Page:
    limit, token = max(0, query.integer("limit") or 0), query.text("continue")
    version, match = query.text("resourceVersion"), query.text("resourceVersionMatch")
    if token and version not in ("", "0"):
        raise errors.BadRequest("specifying resource version is not allowed when using continue")
    if match not in ("", "Exact", "NotOlderThan"):
        raise errors.BadRequest(
            f"query parameter 'resourceVersionMatch': expected Exact or NotOlderThan, found {match!r}"
        )
    if match and not version:
        raise errors.BadRequest("resourceVersionMatch is forbidden unless resourceVersion is provided")
    page = await context.store.list(selection, limit=limit, token=token)
    wanted = revision(version)
    if wanted is not None and wanted > page.revision:
        raise errors.Timeout(f"Too large resource version: {wanted}, current: {page.revision}")
    if match == "Exact" and wanted != page.revision:
        raise errors.Expired(
            f"The provided resource version {wanted} is no longer there, the current one is {page.revision}; list "
            "again without resourceVersionMatch=Exact"
        )
    return page


def revision(text: str) -> int | None:
    """None for "" and "0", which mean: whatever is there."""
    if not (text == "" or (text.isascii() and text.isdigit() and len(text) <= 18)):
        raise errors.BadRequest(f"Invalid value: {text[:100]!r}: resourceVersion must be a number from this server")
    return int(text) or None if text else None


def success(details: Document, status: int = 200) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return json_response(body, status)
