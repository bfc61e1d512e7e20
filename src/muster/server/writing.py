"""Create, replace, patch, apply. What a write means is the store's business; here a request becomes one."""

import dataclasses

from muster.api import errors, patching, raw
from muster.api.raw import JSON, Document
from muster.server import access, formats, reading, versions
from muster.server.admitting import Admitting
from muster.server.context import Call, Context
from muster.server.exchange import Headers, Query, Request, Response
from muster.server.paths import Target
from muster.store import protocol
from muster.store.protocol import Options, PatchType, Refused, Revision, Subresource, Written

BASED_ON = "x-muster-based-on"
"""A patch's precondition, for clients of ours: JSON patches have no place of their own for it."""
RETURN_OBJECT = "x-muster-return"
"""A client of ours that says `object` gets the object where Kubernetes answers with a Status."""
GONE = "x-muster-gone"
"""Tells a client of ours that the object it gets back no longer exists."""
_MAX_MANAGER = 128
_PATCH_RETRIES = 5
_DEFAULT_VALIDATION = "Warn"


async def create(context: Context, admitting: Admitting, call: Call) -> Response:
    target = call.target
    if target.kind.namespaced and target.namespace is None:
        raise errors.MethodNotAllowed(
            f"{target.kind.plural} are created in a namespace: POST to .../namespaces/<namespace>/{target.kind.plural}",
            kind=target.kind.plural,
        )
    document = versions.to_stored(await body(call.request), target)
    meta = raw.section(document, "metadata")
    _set_namespace(target, meta)
    asked = access.Attributes("create", target.group, target.kind.plural, target.namespace or "", _name(meta))
    access.check(call.identity, asked)
    write = protocol.Create(target.kind, document, options_of(call.request))
    await admitting.created(write)
    return written_response(context, call, await commit(context, write))


def _name(meta: Document) -> str:
    name = meta.get("name") or ""
    if not isinstance(name, str):
        raise errors.BadRequest(f"metadata.name: expected a string, found {raw.type_name(name)}")
    return name


def _set_namespace(target: Target, meta: Document) -> None:
    if not target.kind.namespaced:
        return
    found = meta.get("namespace") or target.namespace
    if found != target.namespace:
        raise errors.BadRequest(
            f"the namespace of the provided object does not match the namespace sent on the request: {found!r} is not "
            f"{target.namespace!r}"
        )
    meta["namespace"] = target.namespace


async def replace(context: Context, admitting: Admitting, call: Call) -> Response:
    target = call.target
    document = versions.to_stored(await body(call.request), target)
    meta = raw.section(document, "metadata")
    _set_namespace(target, meta)
    name = _name(meta)
    if name and name != target.name:
        raise errors.BadRequest(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    meta["name"] = target.name
    write = protocol.Replace(target.kind, target.key, document, subresource_of(target), options_of(call.request))
    await admitting.changed(write)
    return written_response(context, call, await commit(context, write))


async def patch(context: Context, admitting: Admitting, call: Call) -> Response:
    target, request = call.target, call.request
    content_type = formats.base_type(request.headers.get("content-type", ""))
    encoded = await request.body()
    if content_type == formats.APPLY_TYPE:
        return written_response(context, call, await _apply(context, admitting, call, encoded))
    type_ = _patch_type(content_type, target)
    sent: JSON = formats.bounded(raw.decode(encoded))
    if target.is_stored_version:
        based_on = reading.revision(request.headers.get(BASED_ON, ""))
        write = protocol.Patch(
            target.kind, target.key, sent, type_, subresource_of(target),
            None if based_on is None else Revision(based_on), options_of(request),
        )  # fmt: skip
        await admitting.changed(write)
        written = await commit(context, write)
    else:
        written = await _patch_converted(context, admitting, call, sent, type_)
    return written_response(context, call, written)


def _patch_type(content_type: str, target: Target) -> PatchType:
    accepted = [PatchType.JSON, PatchType.MERGE]
    if target.kind.built_in:
        accepted.append(PatchType.STRATEGIC)
    if content_type not in accepted:
        listed = ", ".join([*accepted, formats.APPLY_TYPE])
        raise errors.UnsupportedMediaType(
            f"the body of the request was in an unknown format - accepted media types include: {listed}"
        )
    return PatchType(content_type)


async def _apply(context: Context, admitting: Admitting, call: Call, encoded: bytes) -> Written:
    target, request = call.target, call.request
    options = options_of(request)
    if not request.query.text("fieldManager"):
        raise errors.BadRequest(
            "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
        )
    document = versions.to_stored(formats.decode_yaml(encoded), target)
    meta = raw.section(document, "metadata")
    _set_namespace(target, meta)
    if _name(meta) not in ("", target.name):
        raise errors.BadRequest(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})"
        )
    meta["name"] = target.name
    if meta.get("managedFields"):
        raise errors.BadRequest("metadata.managedFields must be nil")
    force = request.query.flag("force")
    write = protocol.Apply(target.kind, target.key, document, force, subresource_of(target), options)
    await admitting.changed(write)
    return await commit(context, write)


async def _patch_converted(context: Context, admitting: Admitting, call: Call, sent: JSON, type_: PatchType) -> Written:
    """A patch in a version that is not stored is made on the converted object, which then replaces the stored one."""
    target = call.target
    for attempt in range(_PATCH_RETRIES):
        found = await context.store.get(target.kind, target.key)
        before = versions.document(found, target)
        match type_:
            case PatchType.JSON:
                after = patching.json_patch(before, sent)
            case PatchType.MERGE:
                after = patching.merge(before, sent)
            case PatchType.STRATEGIC:
                after = patching.strategic(before, sent, target.kind.view)
        document = versions.to_stored(raw.as_object(after), target)
        raw.section(document, "metadata").setdefault("resourceVersion", str(found.revision))
        write = protocol.Replace(target.kind, target.key, document, subresource_of(target), options_of(call.request))
        await admitting.changed(write)
        try:
            return await commit(context, write)
        except errors.Conflict:
            if attempt == _PATCH_RETRIES - 1 or document["metadata"]["resourceVersion"] != str(found.revision):
                raise
    raise AssertionError("the last attempt returns or raises")


async def bind(context: Context, call: Call) -> Response:
    """The body is a Binding: its target names the node."""
    target, sent = call.target, await body(call.request)
    if sent.get("kind") not in (None, "", "Binding"):
        raise errors.BadRequest(f"pods/binding takes a Binding of v1, found kind {str(sent['kind'])[:100]!r}")
    node = raw.dig(sent, "target", "name")
    if not isinstance(node, str) or not node:
        problem = errors.FieldError("target.name", "FieldValueRequired", "Required value: name the node")
        raise errors.invalid("Binding", target.name, [problem])
    if raw.dig(sent, "target", "kind") not in (None, "", "Node"):
        problem = errors.FieldError(
            "target.kind", "FieldValueNotSupported", 'Unsupported value: supported values: "Node"'
        )
        raise errors.invalid("Binding", target.name, [problem])
    annotations = raw.dig(sent, "metadata", "annotations") or {}
    if not isinstance(annotations, dict) or not all(isinstance(value, str) for value in annotations.values()):
        raise errors.BadRequest("metadata.annotations: expected an object of strings")
    uid = raw.dig(sent, "metadata", "uid")
    write = protocol.Bind(
        target.kind, target.key, node, str(uid) if uid else None, annotations, options_of(call.request)
    )
    written = await commit(context, write)
    if call.request.headers.get(RETURN_OBJECT) == "object":
        return reading.respond(context, call, written.object, 201)
    return reading.success({}, 201)


async def finalize(context: Context, call: Call) -> Response:
    """The body is the namespace: only its `spec.finalizers` count here."""
    target = call.target
    document = versions.to_stored(await body(call.request), target)
    finalizers = raw.dig(document, "spec", "finalizers") or []
    version = reading.revision(str(raw.dig(document, "metadata", "resourceVersion") or ""))
    write = protocol.Patch(
        target.kind, target.key, {"spec": {"finalizers": finalizers}},
        based_on=None if version is None else Revision(version), options=options_of(call.request),
    )  # fmt: skip
    return written_response(context, call, await commit(context, write))


async def commit(context: Context, write: protocol.Write) -> Written:
    (result,) = await context.store.write([write])
    if isinstance(result, Refused):
        raise result.error
    return result


def written_response(context: Context, call: Call, written: Written) -> Response:
    response = reading.respond(context, call, written.object, 201 if written.is_new else 200)
    gone = ((GONE, "true"),) if written.is_gone else ()
    return dataclasses.replace(response, headers=(*gone, *warning_headers(written.warnings)))


def warning_headers(warnings: tuple[str, ...]) -> Headers:
    return tuple(("warning", f'299 - "{_quoted(text)}"') for text in warnings[:20])


def _quoted(text: str) -> str:
    shown = "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in text[:256])
    return shown.replace("\\", "\\\\").replace('"', '\\"')


async def body(request: Request) -> Document:
    encoded = await request.body()
    if not encoded:
        raise errors.BadRequest("the request has no body; send the object as JSON or YAML")
    return formats.decode(encoded, request.headers.get("content-type", ""))


def subresource_of(target: Target) -> Subresource:
    return "status" if target.subresource == "status" else ""


def options_of(request: Request) -> Options:
    query = request.query
    validation = query.text("fieldValidation") or _DEFAULT_VALIDATION
    manager = query.text("fieldManager") or _manager_of(request.headers.get("user-agent", ""))
    if len(manager) > _MAX_MANAGER or not manager.isprintable():
        raise errors.BadRequest(
            f"query parameter 'fieldManager': expected at most {_MAX_MANAGER} printable characters, found "
            f"{manager[:50]!r}"
        )
    match validation:
        case "Ignore" | "Warn" | "Strict":
            return Options(manager, is_dry_run(query), validation)
    raise errors.BadRequest(
        f"query parameter 'fieldValidation': expected Ignore, Warn or Strict, found {validation[:50]!r}"
    )


def _manager_of(user_agent: str) -> str:
    """What Kubernetes calls a client that does not name itself: the product of its User-Agent."""
    return user_agent.partition("/")[0][:_MAX_MANAGER].strip() or "unknown"


def is_dry_run(query: Query) -> bool:
    found = query.text("dryRun")
    if found not in ("", "All"):
        raise errors.BadRequest(f"query parameter 'dryRun': expected All, found {found[:50]!r}")
    return found == "All"
