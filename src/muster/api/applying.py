"""Server-side apply: who set which field, kept in metadata.managedFields, and what follows from it.

An applier states all that it wants. What it stated before and no longer does is removed, unless somebody else
wants it too; what somebody else has set to another value is a conflict, unless forced. Any other write
(`track_update`) just takes what it changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from muster.api import errors, raw
from muster.api.errors import FieldError
from muster.api.meta import View
from muster.api.raw import JSON, Document
from muster.api.schema import fieldsets, shapes
from muster.api.schema.fieldsets import Fields, Path
from muster.api.schema.shapes import Shape

_APPLY, _UPDATE = "Apply", "Update"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_UPDATERS = 10  # older ones are folded into one: a client that invents a name for each write cannot fill an object

# The server's own; and metadata as a whole belongs to nobody.
_SYSTEM_METADATA = frozenset({
    "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "deletionTimestamp",
    "deletionGracePeriodSeconds", "managedFields",
})  # fmt: skip
_NEVER_OWNED: Fields = frozenset({
    (), ("f:apiVersion",), ("f:kind",), ("f:metadata",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace"),
    *(("f:metadata", f"f:{name}") for name in _SYSTEM_METADATA),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Manager:
    """One entry of managedFields."""

    name: str
    operation: str
    api_version: str
    subresource: str
    time: str = ""
    fields: Fields = frozenset()

    @property
    def key(self) -> tuple[str, ...]:
        """Who it is. An applier stays the same when it moves to another version of the API."""
        return self.name, self.operation, self.subresource, "" if self.operation == _APPLY else self.api_version

    def __str__(self) -> str:
        part = f' with subresource "{self.subresource}"' if self.subresource else ""
        version = f" using {self.api_version}" if self.operation == _UPDATE else ""
        return f'"{self.name}"{part}{version}'


_Managers: TypeAlias = dict[tuple[str, ...], _Manager]


def apply(  # noqa: PLR0913 - what an apply request says, each part by its name
    live: Document | None,
    applied: Document,
    *,
    view: type[View],
    manager: str,
    force: bool,
    now: str,
    api_version: str,
    subresource: str = "",
) -> Document:
    """The document that `applied` makes of `live`, with managedFields kept; it shares nothing with either.
    Raises Conflict with every field that somebody else has set otherwise."""
    if raw.dig(applied, "metadata", "managedFields") is not None:
        raise errors.BadRequest("metadata.managedFields must be nil: the server keeps it")
    actor = _Manager(manager or "unknown", _APPLY, api_version, subresource, now)
    try:
        return _apply(live, _wanted(applied, subresource), shapes.of_view(view), actor, force)
    except RecursionError as error:
        raise errors.BadRequest("the object is nested too deeply") from error


def _apply(live: Document | None, applied: Document, shape: Shape, actor: _Manager, force: bool) -> Document:
    fieldsets.check_elements(applied, shape)
    before: Document = raw.copy(live or {})
    managers = _read(raw.dig(before, "metadata", "managedFields"))
    if live is not None and not managers:
        managers = _inherited(live, shape, actor)
    previous = managers.pop(actor.key, None)
    mine = replace(actor, fields=_ownable(fieldsets.of_value(applied, shape), actor.subresource))

    after: Document = fieldsets.merge(before, applied, shape)
    if previous is not None:
        kept = fieldsets.with_parents(mine.fields.union(*(m.fields for m in managers.values())), shape)
        after = fieldsets.without(after, shape, _given_up(after, shape, previous.fields, kept))

    found = fieldsets.compare(before, after, shape)
    _refuse_conflicts(managers, found, live, shape, actor, force)
    managers = _losing(managers, found.added | found.modified | found.removed)
    if previous is not None and previous.fields == mine.fields and before == after:
        mine = replace(mine, time=previous.time)  # applied again, nothing new: the object stays as it is
    if mine.fields:
        managers[mine.key] = mine
    after["metadata"] = {**raw.section(after, "metadata"), "managedFields": _write(managers.values())}
    return after


def _wanted(applied: Document, subresource: str) -> Document:
    """What the document may set through this path: never the server's fields, status only through its own."""
    wanted: Document = _without_nulls(applied)
    metadata = raw.section(wanted, "metadata")
    for name in _SYSTEM_METADATA & metadata.keys():
        del metadata[name]
    if subresource == "status":
        named = {name: metadata[name] for name in ("name", "namespace") if name in metadata}
        return {
            **{name: wanted[name] for name in ("apiVersion", "kind", "status") if name in wanted},
            "metadata": named,
        }
    wanted.pop("status", None)
    return wanted


def _without_nulls(value: JSON) -> JSON:
    """A copy in which null is as good as absent: nobody wants a field to be null, only not to be there."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _ownable(fields: Iterable[Path], subresource: str) -> Fields:
    is_status = subresource == "status"
    return frozenset(path for path in fields if path not in _NEVER_OWNED and (path[0] == "f:status") is is_status)


def _inherited(live: Document, shape: Shape, actor: _Manager) -> _Managers:
    """An object that nobody kept track of: all it has belongs to whoever was there before."""
    had = fieldsets.compare({}, live, shape).added
    owner = _Manager("before-first-apply", _UPDATE, actor.api_version, "", actor.time, _ownable(had, ""))
    return {owner.key: owner} if owner.fields else {}


def _given_up(merged: Document, shape: Shape, previous: Fields, kept: Fields) -> Fields:
    """What the applier set before and nobody wants now, with containers that only it kept alive."""
    existing = fieldsets.with_parents(fieldsets.of_value(merged, shape), shape)
    return (existing & fieldsets.with_parents(previous, shape)) - kept - _NEVER_OWNED


def _refuse_conflicts(
    managers: _Managers, found: fieldsets.Differences, live: Document | None, shape: Shape, actor: _Manager, force: bool
) -> None:
    changed = found.added | found.modified
    conflicts = [
        (owner, path)
        for owner in sorted(managers.values(), key=str)
        for path in sorted(owner.fields & changed, key=fieldsets.spell)
    ]
    if force or not conflicts or _is_own_upgrade(conflicts, live, shape, actor):
        return
    if len(conflicts) == 1:
        owner, path = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {owner}: {fieldsets.spell(path)}"
    else:
        lines = [f"conflicts with {conflicts[0][0]}:"]
        for index, (owner, path) in enumerate(conflicts):
            if index and owner is not conflicts[index - 1][0]:
                lines.append(f"conflicts with {owner}:")
            lines.append(f"- {fieldsets.spell(path)}")
        message = f"Apply failed with {len(conflicts)} conflicts: {chr(10).join(lines)}"
    causes = [FieldError(fieldsets.spell(p), "FieldManagerConflict", f"conflict with {o}") for o, p in conflicts]
    raise errors.Conflict(message, causes=causes)


def _is_own_upgrade(
    conflicts: list[tuple[_Manager, Path]], live: Document | None, shape: Shape, actor: _Manager
) -> bool:
    """kubectl that moves from client-side to server-side apply does not conflict with what it has applied itself."""
    text = raw.dig(live, "metadata", "annotations", _LAST_APPLIED)
    if actor.name != "kubectl" or not isinstance(text, str):
        return False
    try:
        last = fieldsets.of_value(raw.decode(text), shape)
    except errors.BadRequest:
        return False
    return all(path in last for _, path in conflicts)


def _losing(managers: Mapping[tuple[str, ...], _Manager], fields: set[Path]) -> _Managers:
    """Without these fields; who has none left is gone."""
    left = {key: replace(owner, fields=owner.fields - fields) for key, owner in managers.items()}
    return {key: owner for key, owner in left.items() if owner.fields}


def track_update(
    old: Document, new: Document, *, view: type[View], manager: str, now: str, api_version: str, subresource: str = ""
) -> None:
    """Keeps managedFields true after a write that was no apply: what changed is the manager's now, what is gone is
    nobody's. Changes `new` in place. Does nothing for an object that was never applied."""
    tracked = raw.dig(old, "metadata", "managedFields")
    if not tracked:
        return
    metadata = raw.section(new, "metadata")
    if metadata.get("managedFields") == [{}]:  # how a client asks to start afresh
        del metadata["managedFields"]
        return
    # A client may edit the list, but one that drops or garbles it does so without meaning to.
    managers = _read(metadata.get("managedFields")) or _read(tracked)
    actor = _Manager(manager or "unknown", _UPDATE, api_version, subresource, now)
    try:
        found = fieldsets.compare(old, new, shapes.of_view(view))
    except RecursionError as error:
        raise errors.BadRequest("the object is nested too deeply") from error
    taken = _ownable(found.added | found.modified, subresource)
    mine = managers.pop(actor.key, None)
    managers = _losing(managers, found.removed | taken)
    owned = ((mine.fields if mine else frozenset()) - found.removed) | taken
    if owned:
        time = mine.time if mine and mine.fields == owned and not taken else now
        managers[actor.key] = replace(actor, fields=owned, time=time)
    metadata["managedFields"] = _write(_folded(managers).values())


def _folded(managers: _Managers) -> _Managers:
    updaters = sorted((m for m in managers.values() if m.operation == _UPDATE), key=lambda m: m.time)
    surplus = len(updaters) - _MAX_UPDATERS
    if surplus <= 0:
        return managers
    folded = dict(managers)
    for oldest in updaters[: surplus + 1]:
        del folded[oldest.key]
        ancient = replace(oldest, name="ancient-changes", subresource="")
        known = folded.get(ancient.key, ancient)
        folded[ancient.key] = replace(ancient, fields=known.fields | oldest.fields, time=max(oldest.time, known.time))
    return folded


def _read(entries: JSON) -> _Managers:
    """What can be understood of a managedFields list; all or nothing, as half of it would give fields away."""
    managers: _Managers = {}
    for entry in entries if isinstance(entries, list) else ():
        try:
            found = _read_entry(entry)
        except ValueError:
            return {}
        known = managers.get(found.key)
        managers[found.key] = replace(found, fields=found.fields | known.fields) if known else found
    return managers


def _read_entry(entry: JSON) -> _Manager:
    if not isinstance(entry, dict) or entry.get("operation") not in (_APPLY, _UPDATE):
        raise ValueError("neither Apply nor Update")
    if entry.get("fieldsType") != "FieldsV1":
        raise ValueError("fieldsType must be FieldsV1")
    fields = fieldsets.parse(entry.get("fieldsV1") or {})
    name, api_version, subresource, time = (
        str(entry.get(text) or "") for text in ("manager", "apiVersion", "subresource", "time")
    )
    return _Manager(name, entry["operation"], api_version, subresource, time, fields)


def _write(managers: Iterable[_Manager]) -> list[Document]:
    ordered = sorted(managers, key=lambda m: (m.operation, m.time, m.name, m.api_version, m.subresource))
    return [_write_entry(owner) for owner in ordered]


def _write_entry(owner: _Manager) -> Document:
    entry: Document = {
        "manager": owner.name,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fieldsets.to_tree(owner.fields),
    }
    return {**entry, "subresource": owner.subresource} if owner.subresource else entry
