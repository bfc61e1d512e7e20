"""OpenAPI 3.0 documents, one for each group version: what kubectl reads for `explain`, validation and `apply`.

They are made from the registry once and kept: the set of kinds is fixed while the program runs.
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from muster.api import errors, raw
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.api.registry import Registry
from muster.api.schema import components
from muster.api.schema.components import Components

_JSON = "application/json"
_PATCHES = ("application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"


@functools.cache
def openapi_index(registry: Registry) -> Document:
    """What `/openapi/v3` answers: where each group version's document is, with a hash that lets clients keep it."""
    paths: Document = {}
    for group, version in sorted({(g, v) for kind in registry for g, v in _served(kind)}):
        digest = hashlib.sha256(raw.encode(openapi(registry, group, version))).hexdigest()[:32].upper()
        path = _root(group, version)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


@functools.cache
def openapi(registry: Registry, group: str, version: str) -> Document:
    """The document of one group version. Raises NotFound. Shared: do not change it."""
    kinds = [kind for kind in registry if (group, version) in _served(kind)]
    if not kinds:
        raise errors.NotFound(f"no kind is served as {group}/{version}".replace(" /", " "), group=group)
    collected = Components()
    paths: Document = {}
    for kind in kinds:
        for path, item in _Writer(collected, kind, group, version).paths():
            paths[path] = item
    return {
        "openapi": "3.0.0",
        "info": {"title": "Muster", "version": "v1"},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(collected.schemas.items())),
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"BearerToken": []}],
    }


def _served(kind: Kind) -> Iterator[tuple[str, str]]:
    yield kind.group, kind.version
    for conversion in kind.conversions:
        yield (kind.group if conversion.group is None else conversion.group), conversion.version


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _parameter(name: str, place: str = "query", **schema: object) -> Document:
    found: Document = {"name": name, "in": place, "schema": {"type": "string", **schema}}
    if place == "path":
        found["required"] = True
    return found


_NAMESPACE = _parameter("namespace", "path", minLength=1)
_NAME = _parameter("name", "path", minLength=1)
_SELECTION = (_parameter("labelSelector"), _parameter("fieldSelector"))
_LISTING = (
    *_SELECTION,
    _parameter("limit", type="integer", minimum=0),
    _parameter("continue"),
    _parameter("resourceVersion"),
    _parameter("resourceVersionMatch"),
    _parameter("watch", type="boolean"),
    _parameter("allowWatchBookmarks", type="boolean"),
    _parameter("sendInitialEvents", type="boolean"),
    _parameter("timeoutSeconds", type="integer", minimum=0),
)
_DRY_RUN = _parameter("dryRun", enum=["All"])
_WRITING = (
    _DRY_RUN,
    _parameter("fieldManager", maxLength=128),
    _parameter("fieldValidation", enum=["Ignore", "Warn", "Strict"]),
)
_FORCE = _parameter("force", type="boolean")
_DELETING = (
    _DRY_RUN,
    _parameter("gracePeriodSeconds", type="integer", minimum=0),
    _parameter("propagationPolicy", enum=["Background", "Foreground", "Orphan"]),
)
_LOGGING = (
    _parameter("container"),
    _parameter("follow", type="boolean"),
    _parameter("previous", type="boolean"),
    _parameter("timestamps", type="boolean"),
    _parameter("tailLines", type="integer", minimum=0),
    _parameter("limitBytes", type="integer", minimum=1),
    _parameter("sinceSeconds", type="integer", minimum=1),
    _parameter("sinceTime"),
)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the paths of one kind in one version, and the components they need."""

    components: Components
    kind: Kind
    group: str
    version: str

    def paths(self) -> Iterator[tuple[str, Document]]:
        shape = self.components.add_kind(self._name(), self.kind.view, self._identity())
        listed = self.components.add_list(
            f"{self._name()}List", shape, {**self._identity(), "kind": f"{self.kind.name}List"}
        )
        root = f"/{_root(self.group, self.version)}"
        scope = "/namespaces/{namespace}" if self.kind.namespaced else ""
        collection = f"{root}{scope}/{self.kind.plural}"
        yield collection, self._collection(shape, listed)
        if self.kind.namespaced:
            everywhere = self._operation("list", "ForAllNamespaces", listed, _LISTING)
            yield f"{root}/{self.kind.plural}", {"get": everywhere}
        single = f"{collection}/{{name}}"
        yield single, self._single(shape)
        if self.kind.has_status:
            yield f"{single}/status", self._part(shape, "Status")
        if "scale" in self.kind.subresources:
            yield f"{single}/scale", self._part(self._opaque(), "Scale")
        if "log" in self.kind.subresources:
            yield f"{single}/log", self._log()
        for name in sorted(self.kind.subresources & {"binding", "eviction"}):
            posted = self._operation("post", name.title(), self._opaque(), _WRITING, body=self._opaque())
            yield f"{single}/{name}", {"post": posted, "parameters": self._place(_NAME)}

    def _name(self) -> str:
        return components.name_of_kind(self.group, self.version, self.kind.name)

    def _identity(self) -> Document:
        return {"group": self.group, "kind": self.kind.name, "version": self.version}

    def _opaque(self) -> Document:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

    def _place(self, *more: Document) -> list[Document]:
        return [_NAMESPACE, *more] if self.kind.namespaced else list(more)

    def _collection(self, shape: Document, listed: Document) -> Document:
        status = self.components.add_fixed(components.STATUS)
        options = self.components.add_fixed(components.DELETE_OPTIONS)
        many = (*_LISTING[:6], *_DELETING)
        return {
            "get": self._operation("list", "", listed, _LISTING),
            "post": self._operation("post", "", shape, _WRITING, body=shape),
            "delete": self._operation("deletecollection", "Collection", status, many, body=options),
            **({"parameters": [_NAMESPACE]} if self.kind.namespaced else {}),
        }

    def _single(self, shape: Document) -> Document:
        options = self.components.add_fixed(components.DELETE_OPTIONS)
        return {
            **self._part(shape, ""),
            "delete": self._operation("delete", "", self._opaque(), _DELETING, body=options),
        }

    def _part(self, shape: Document, suffix: str) -> Document:
        """What an object and its subresources have in common: read, replace, patch."""
        body = self.components.add_fixed(components.PATCH)
        patches = (*_PATCHES, _STRATEGIC) if self.kind.built_in else _PATCHES
        return {
            "get": self._operation("get", suffix, shape, ()),
            "put": self._operation("put", suffix, shape, _WRITING, body=shape),
            "patch": self._operation("patch", suffix, shape, (*_WRITING, _FORCE), body=body, content=patches),
            "parameters": self._place(_NAME),
        }

    def _log(self) -> Document:
        read = self._operation("get", "Log", {"type": "string"}, _LOGGING)
        read["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
        return {"get": read, "parameters": self._place(_NAME)}

    def _operation(
        self,
        action: str,
        suffix: str,
        result: Document,
        parameters: Sequence[Document],
        *,
        body: Document | None = None,
        content: Sequence[str] = (_JSON,),
    ) -> Document:
        answer = {"description": "OK", "content": {_JSON: {"schema": result}}}
        failure = {
            "description": "Refused, and why",
            "content": {_JSON: {"schema": self.components.add_fixed(components.STATUS)}},
        }
        done = ["201"] if action == "post" else ["200", "202"] if action.startswith("delete") else ["200"]
        if action in ("put", "patch"):
            done.append("201")
        operation: Document = {
            "operationId": self._operation_id(action, suffix),
            "description": f"{_VERBS[action]} {self.kind.name}{f' ({suffix})' if suffix else ''}",
            "parameters": list(parameters),
            "responses": {**dict.fromkeys(done, answer), "default": failure},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self._identity(),
        }
        if body is not None:
            operation["requestBody"] = {
                "required": not action.startswith("delete"),
                "content": {media: {"schema": body} for media in content},
            }
        return operation

    def _operation_id(self, action: str, suffix: str) -> str:
        group = "".join(part.title() for part in (self.group.removesuffix(".k8s.io") or "core").split("."))
        scope = "Namespaced" if self.kind.namespaced and suffix != "ForAllNamespaces" else ""
        return f"{_VERBS[action]}{group}{self.version.title()}{scope}{self.kind.name}{suffix}"


_VERBS = {
    "list": "list",
    "post": "create",
    "get": "read",
    "put": "replace",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
}
