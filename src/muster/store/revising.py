"""What a write makes of an object: Kubernetes' rules for create, replace, patch, apply, delete and bind.

Pure: the current object and a write in, the next document out, or an ApiError raised. The embedded
store calls it under its single writer; a real API server has rules of its own and never comes here.
"""

from collections.abc import Callable

import msgspec
from msgspec import structs

from muster.api import applying, conditions, core, errors, fields, metadata, patching, raw, schema, timestamps
from muster.api.errors import FieldError
from muster.api.kinds import Kind
from muster.api.meta import Instant, Resource
from muster.api.objects import Key, Object, view_of
from muster.api.raw import Document
from muster.store import completing, protocol
from muster.store.protocol import Options, PatchType

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, no look-alikes: Kubernetes' own choice
_SUFFIX_LENGTH = 5
_MAX_NAME = 63
_FIXED = (
    "name", "namespace", "generateName", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip
"""Of metadata: nobody may change them by an update."""


class Context(msgspec.Struct, frozen=True, gc=False):
    """Everything a rule may ask for beyond the object itself."""

    now: Instant
    now_text: str
    revision: int
    """The revision that this write gets if it is accepted."""
    bits: Callable[[int], int]
    """Random bits, as `random.Random.getrandbits`."""
    find: Callable[[Kind, Key], Object | None]
    """Another object as this write would see it."""
    complete: Callable[[Kind, Document], None]
    """Fills in what follows from other objects (a pod's priority from its class). May raise ApiError."""


class Revised(msgspec.Struct, frozen=True, gc=False):
    """The next document. `is_changed` is False where the write asks for what is already so."""

    document: Document
    view: Resource | None = None
    """The view that the checks were made on, where there were any: decoding is too dear to do twice."""
    is_new: bool = False
    is_gone: bool = False
    is_changed: bool = True
    warnings: tuple[str, ...] = ()


def create(write: protocol.Create, context: Context) -> Revised:
    kind = write.kind
    document = _headed(kind, raw.copy(write.document))
    meta = raw.section(document, "metadata")
    for owned_by_us in (
        "resourceVersion",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ):
        meta.pop(owned_by_us, None)
    if not kind.namespaced:
        meta.pop("namespace", None)
    meta["uid"] = new_uid(context.bits)
    meta["creationTimestamp"] = context.now_text
    meta["generation"] = 1
    if not meta.get("name") and isinstance(meta.get("generateName"), str):
        meta["name"] = _generated_name(kind, meta, context)
    if kind.built_in and kind.has_status and "status" in document and kind is not core.NODE:
        document["status"] = {}  # cannot be started half-way; a node, though, registers with what it has
    kind.default(document)
    context.complete(kind, document)
    warnings = _check_known(kind, document, write.options)
    meta["resourceVersion"] = str(context.revision)
    view = view_of(kind, document)
    problems = [*metadata.validate_metadata(kind.namespaced, view.metadata), *kind.validate(view)]
    _refuse(kind, view, [*problems, *kind.validate_new(view)])
    return Revised(document, view, is_new=True, warnings=warnings)


def replace_object(write: protocol.Replace, current: Object, context: Context) -> Revised:
    old = current.document()
    new = _headed(write.kind, raw.copy(write.document))
    _check_version(current, raw.dig(new, "metadata", "resourceVersion"))
    return _updated(current, old, new, write, context)


def patch(write: protocol.Patch, current: Object, context: Context) -> Revised:
    if write.based_on is not None and write.based_on != current.revision:
        raise conflict(current)
    old = current.document()
    patched = old
    if write.subresource == "status":  # it cannot change the rest, so that need not be copied; a JSON patch may test it
        patched = {part: old[part] for part in ("metadata", "status") if part in old}
    # Whose managers are kept track of, is compared with what it was, piece by piece; of all else the old may be shared.
    shares = "managedFields" not in old["metadata"]
    match write.type:
        case PatchType.MERGE:
            new = patching.merge(patched, write.body, shares=shares)
        case PatchType.JSON:
            new = patching.json_patch(old, write.body)
        case PatchType.STRATEGIC:
            if not write.kind.built_in:
                raise errors.UnsupportedMediaType(
                    f"{write.kind.resource} takes merge patches and JSON patches, not strategic merge patches"
                )
            new = patching.strategic(patched, write.body, write.kind.view, shares=shares)
    if not isinstance(new, dict):
        raise errors.BadRequest(f"the patch turns the object into {raw.type_name(new)}")
    _check_version(current, raw.dig(new, "metadata", "resourceVersion"))
    return _updated(current, old, new, write, context)


def apply(write: protocol.Apply, current: Object | None, context: Context) -> Revised:
    applied = _headed(write.kind, raw.copy(write.document))
    live = current.document() if current else None
    if current is not None:
        _check_version(current, raw.section(applied, "metadata").pop("resourceVersion", None))
    merged = applying.apply(
        live,
        applied,
        view=write.kind.view,
        manager=write.options.manager,
        force=write.force,
        now=context.now_text,
        api_version=write.kind.api_version,
        subresource=write.subresource,
    )
    if live is None:
        made = create(protocol.Create(write.kind, merged, write.options), context)
        made.document["metadata"]["managedFields"] = merged["metadata"]["managedFields"]
        return made
    assert current is not None
    return _updated(current, live, merged, write, context)


def bind(write: protocol.Bind, current: Object, context: Context) -> Revised:
    _check_uid(current, write.uid)
    new = current.document()
    spec = raw.section(new, "spec")
    if spec.get("nodeName"):
        raise _conflict(current, f'pod {current.key.name} is already assigned to node "{spec["nodeName"]}"')
    if current.is_terminating:
        raise _conflict(current, f"pod {current.key.name} is being deleted, cannot be assigned to a host")
    if spec.get("schedulingGates"):
        raise _conflict(current, f"pod {current.key.name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = write.node
    if write.annotations:
        raw.section(new, "metadata", "annotations").update(write.annotations)
    conditions.set_condition(new, "PodScheduled", "True", "", "", context.now_text)
    if new["metadata"].get("managedFields"):
        _track(write.kind, current.document(), new, write.options, "binding", context)
    new["metadata"]["resourceVersion"] = str(context.revision)
    return Revised(new, view_of(write.kind, new))


def delete(write: protocol.Delete, current: Object, context: Context) -> Revised:
    _check_uid(current, write.uid)
    if write.based_on is not None and write.based_on != current.revision:
        raise conflict(current)
    document = current.document()
    meta = document["metadata"]
    meta["resourceVersion"] = str(context.revision)
    grace = _grace(write, document)
    finalizers = _finalizers(meta.get("finalizers") or [], write)
    must_wait = bool(grace or finalizers or _holds_namespace(write.kind, document))
    if not must_wait:
        return Revised(document, is_gone=True)
    already = meta.get("deletionTimestamp") is not None
    is_sooner = already and grace < (meta.get("deletionGracePeriodSeconds") or 0)
    if already and not is_sooner and finalizers == (meta.get("finalizers") or []):
        return Revised(current.document(), is_changed=False)
    if not already or is_sooner:
        meta["deletionTimestamp"] = timestamps.to_text(Instant(context.now + grace))
        meta["deletionGracePeriodSeconds"] = grace
    if not already:
        meta["generation"] = (meta.get("generation") or 0) + 1
    _set_or_drop(meta, "finalizers", finalizers)
    if write.kind.name == "Namespace":
        raw.section(document, "status")["phase"] = "Terminating"
    return Revised(document)


def new_uid(bits: Callable[[int], int]) -> str:
    """A random UUID (version 4) from the given entropy."""
    number = bits(128) & ~(0xF << 76) & ~(0x3 << 62) | (0x4 << 76) | (0x2 << 62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def conflict(current: Object) -> errors.Conflict:
    return _conflict(
        current, "the object has been modified; please apply your changes to the latest version and try again"
    )


def not_found(kind: Kind, key: Key) -> errors.NotFound:
    return errors.NotFound(f'{kind.resource} "{key.name}" not found', kind=kind.plural, name=key.name, group=kind.group)


def _conflict(current: Object, why: str) -> errors.Conflict:
    kind, name = current.kind, current.key.name
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return errors.Conflict(message, kind=kind.plural, name=name, group=kind.group)


def _updated(
    current: Object,
    old: Document,
    new: Document,
    write: protocol.Replace | protocol.Patch | protocol.Apply,
    context: Context,
) -> Revised:
    """The rules that every change of an existing object shares. `old`: the current document, parts of which `new` may
    share: all but its metadata, nobody changes what is in there already."""
    kind, subresource, is_apply = write.kind, write.subresource, isinstance(write, protocol.Apply)
    old_meta = old["metadata"]
    is_meta_untouched = new.get("metadata") is old_meta  # most patches are of a spec or a status alone
    new = _headed(kind, _limit_to(subresource, kind, old, new))
    meta = new["metadata"] = {**raw.section(new, "metadata")}
    if not is_meta_untouched:
        _keep_identity(kind, old_meta, meta)
        if not is_apply:
            _set_or_drop(meta, "managedFields", old_meta.get("managedFields"))
    if subresource != "status":  # a status is written by those who know what it means
        kind.default(new)
        if kind is core.POD:
            completing.carry_over_pod(old, new)
    warnings = _check_known(kind, new, write.options)
    is_meta_same = meta == old_meta
    if _is_same(old, new, but_managers=not is_apply):
        return Revised(old, is_changed=False, warnings=warnings)
    meta["resourceVersion"] = str(context.revision)
    view = view_of(kind, new)
    if subresource != "status":
        problems = [] if is_meta_same else metadata.validate_metadata(kind.namespaced, view.metadata)
        _refuse(kind, view, [*problems, *kind.validate(view), *kind.validate_update(current.view, view)])
        if any(old.get(part) != new.get(part) for part in (old.keys() | new.keys()) - {"metadata", "status"}):
            meta["generation"] = (old_meta.get("generation") or 0) + 1
            view = structs.replace(view, metadata=structs.replace(view.metadata, generation=meta["generation"]))
    if not is_apply and old_meta.get("managedFields"):
        _track(kind, old, new, write.options, subresource, context)
        view = view_of(kind, new)
    is_gone = (
        meta.get("deletionTimestamp") is not None
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
        and not _holds_namespace(kind, new)
    )
    return Revised(new, view, is_gone=is_gone, warnings=warnings)


def _limit_to(subresource: str, kind: Kind, old: Document, new: Document) -> Document:
    """Only the part that the endpoint may change: the status, or everything but the status."""
    if subresource == "status":
        limited = {**old}  # all else stays, and may be shared
        if new.get("metadata") is not old["metadata"]:
            meta = limited["metadata"] = {**old["metadata"]}
            meta["uid"] = raw.dig(new, "metadata", "uid")  # a precondition where the caller names it
            _set_or_drop(meta, "managedFields", raw.dig(new, "metadata", "managedFields"))
        _set_or_drop(limited, "status", new.get("status"))
        return limited
    if kind.has_status:
        _set_or_drop(new, "status", old.get("status"))
    return new


def _keep_identity(kind: Kind, old: Document, new: Document) -> None:
    name = new.get("name", old["name"])
    if name != old["name"]:
        raise errors.BadRequest(
            f"the name of the object ({name}) does not match the name on the URL ({old['name']})", kind=kind.plural
        )
    if new.get("uid") not in (None, "", old["uid"]):
        raise errors.Conflict(
            f'Operation cannot be fulfilled on {kind.resource} "{name}": Precondition failed: '
            f"UID in precondition: {new['uid']}, UID in object meta: {old['uid']}",
            kind=kind.plural, name=name, group=kind.group,
        )  # fmt: skip
    for fixed in _FIXED:
        if fixed in old:
            new[fixed] = old[fixed]
        elif fixed in new:
            del new[fixed]
    if old.get("deletionTimestamp") is not None:
        added = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
        if added:
            path = "metadata.finalizers"
            problem = fields.forbidden(
                path,
                f"no new finalizers can be added if the object is being deleted, found new finalizers {sorted(added)}",
            )
            raise errors.invalid(kind.name, name, [problem], group=kind.group)


def _refuse(kind: Kind, view: Resource, problems: list[FieldError]) -> None:
    if problems:
        raise errors.invalid(kind.name, view.metadata.name, problems, group=kind.group)


def _check_known(kind: Kind, document: Document, options: Options) -> tuple[str, ...]:
    if options.unknown_fields == "Ignore":
        return ()
    unknown = tuple(f'unknown field "{path}"' for path in schema.unknown_fields(kind.view, document))
    if unknown and options.unknown_fields == "Strict":
        raise errors.BadRequest(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: '
            f"strict decoding error: {', '.join(unknown)}"
        )
    return unknown


def _check_version(current: Object, version: object) -> None:
    if version not in (None, "", str(current.revision)):
        raise conflict(current)


def _check_uid(current: Object, uid: str | None) -> None:
    if uid and uid != current.uid:
        raise _conflict(current, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.uid}")


def _headed(kind: Kind, document: Document) -> Document:
    """The document with its type first, as people expect to read it."""
    for part, expected in (("apiVersion", kind.api_version), ("kind", kind.name)):
        found = document.pop(part, None)
        if found not in (None, "", expected):
            raise errors.BadRequest(
                f"{part} in the document is {found!r}, but it was sent as {kind.name} of {kind.api_version}"
            )
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": document.pop("metadata", None), **document}


def _generated_name(kind: Kind, meta: Document, context: Context) -> str:
    stem = str(meta["generateName"])[: _MAX_NAME - _SUFFIX_LENGTH]
    for _ in range(8):
        letters = (_SUFFIX_LETTERS[context.bits(16) % len(_SUFFIX_LETTERS)] for _ in range(_SUFFIX_LENGTH))
        name = stem + "".join(letters)
        if context.find(kind, Key(meta.get("namespace", ""), name)) is None:
            return name
    raise errors.AlreadyExists(f'{kind.resource}: found no free name for generateName "{stem}"; use a longer one')


def _grace(write: protocol.Delete, document: Document) -> int:
    """Only a pod that may still run gets time to end; everything else goes at once."""
    if write.kind.name != "Pod" or write.kind.group:
        return 0
    if not raw.dig(document, "spec", "nodeName") or raw.dig(document, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    if write.grace_seconds is not None:
        return max(0, write.grace_seconds)
    seconds = raw.dig(document, "spec", "terminationGracePeriodSeconds", default=30)
    return max(0, int(seconds))


def _finalizers(present: list[str], write: protocol.Delete) -> list[str]:
    if write.propagation is None:
        return list(present)
    wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(write.propagation)
    kept = [name for name in present if name not in (FOREGROUND, ORPHAN) or name == wanted]
    return kept if wanted is None or wanted in kept else [*kept, wanted]


def _holds_namespace(kind: Kind, document: Document) -> bool:
    return kind.name == "Namespace" and not kind.group and bool(raw.dig(document, "spec", "finalizers"))


def _is_same(old: Document, new: Document, *, but_managers: bool) -> bool:
    if old.keys() != new.keys():
        return False
    for part, value in old.items():
        if part != "metadata" and value != new[part]:
            return False
    one, other = old["metadata"], new["metadata"]
    return bool(one == other) or (but_managers and _unmanaged(one) == _unmanaged(other))


def _unmanaged(metadata: Document) -> Document:
    return {name: value for name, value in metadata.items() if name != "managedFields"}


def _track(kind: Kind, old: Document, new: Document, options: Options, subresource: str, context: Context) -> None:
    applying.track_update(
        old,
        new,
        view=kind.view,
        manager=options.manager,
        now=context.now_text,
        api_version=kind.api_version,
        subresource=subresource,
    )


def _set_or_drop(target: Document, name: str, value: raw.JSON) -> None:
    if value is None or value == []:
        target.pop(name, None)
    else:
        target[name] = value
