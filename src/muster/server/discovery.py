"""Discovery: which groups, versions and resources there are, whole (aggregated) or piece by piece.

Made once: what is served is fixed while the program runs.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from muster.api import errors, raw, visibility
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.api.registry import Registry
from muster.server.access import REVIEWS
from muster.server.exchange import Request, Response
from muster.server.formats import JSON_TYPE, media_types
from muster.server.visibility import DECISIONS, EXPLANATION, PENDING, SUMMARY

_AGGREGATED = "APIGroupDiscoveryList"
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class _Part:
    """A subresource: the kind that it takes or gives, where that is not the resource's own."""

    verbs: tuple[str, ...]
    kind: str = ""
    group: str | None = None
    version: str = "v1"


_SUBRESOURCES: Mapping[str, _Part] = {
    "status": _Part(("get", "patch", "update")),
    "log": _Part(("get",)),
    "binding": _Part(("create",), "Binding"),
    "eviction": _Part(("create",), "Eviction", "policy"),
    "finalize": _Part(("update",)),
    PENDING: _Part(("get",), SUMMARY),
    EXPLANATION: _Part(("get",), "Explanation"),
    DECISIONS: _Part(("get",), "Decisions"),
}


@dataclass(frozen=True, slots=True)
class _Resource:
    """One entry of a version, as both forms of discovery tell it."""

    plural: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()


@dataclass(slots=True)
class _Group:
    name: str
    versions: dict[str, list[_Resource]] = field(default_factory=dict)
    """The first is preferred."""


class Discovery:
    def __init__(self, groups: Iterable[_Group]) -> None:
        self._groups = {group.name: group for group in groups}
        self._aggregated: dict[tuple[bool, str], Response] = {}

    def root(self, request: Request, *, is_core: bool) -> Response:
        """`/api` (the core group) or `/apis` (the others)."""
        groups = [group for group in self._groups.values() if (group.name == "") is is_core]
        version = _aggregated_version(request.headers.get("accept", ""))
        if version is None:
            return _answer(_legacy_versions(groups[0]) if is_core else _group_list(groups))
        response = self._aggregated.get((is_core, version))
        if response is None:
            response = self._aggregated[is_core, version] = _aggregate(groups, version)
        etag = dict(response.headers)["etag"]
        if request.headers.get("if-none-match") == etag:
            return Response(304, b"", response.content_type, response.headers)
        return response

    def group(self, name: str) -> Response:
        group = self._groups.get(name)
        if group is None or not name:
            raise errors.NotFound("the server could not find the requested resource")
        return _answer({"kind": "APIGroup", "apiVersion": "v1", **_described(group)})

    def version(self, group: str, version: str) -> Response:
        found = self._groups.get(group)
        if found is None or version not in found.versions:
            raise errors.NotFound("the server could not find the requested resource")
        group_version = f"{group}/{version}" if group else version
        listed = [entry for resource in found.versions[version] for entry in _plain_entries(resource)]
        return _answer(
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}
        )


def _answer(document: Document) -> Response:
    return Response(200, raw.encode(document))


def _aggregated_version(accept: str) -> str | None:
    for media in media_types(accept):
        wanted = media.parameters
        if (
            media.type == JSON_TYPE
            and wanted.get("as") == _AGGREGATED
            and wanted.get("g") == "apidiscovery.k8s.io"
            and wanted.get("v") in ("v2", "v2beta1")
        ):
            return wanted["v"]
        if media.type == JSON_TYPE and "as" not in wanted:
            return None
    return None


def everything(registry: Registry) -> Discovery:
    """All kinds that are stored, reviews, and what is asked of those who decide."""
    # These last: who says `clusterqueues` means those of kueue.x-k8s.io.
    return Discovery([*_groups(registry).values(), *_asked()])


def what_is_asked() -> Discovery:
    """Of those who decide, and nothing else."""
    return Discovery(_asked())


def _groups(registry: Registry) -> dict[str, _Group]:
    groups = {"": _Group("")}
    for kind in registry:
        for group, version in _served(kind):
            found = groups.setdefault(group, _Group(group)).versions.setdefault(version, [])
            found.append(_resource(kind))
    for (group, plural), name in REVIEWS.items():
        listed = groups.setdefault(group, _Group(group)).versions.setdefault("v1", [])
        listed.append(_Resource(plural, name, plural.startswith("local"), ("create",)))
    return groups


def _asked() -> Iterator[_Group]:
    queues = [
        _Resource("clusterqueues", "ClusterQueue", False, (), subresources=(PENDING,)),
        _Resource("localqueues", "LocalQueue", True, (), subresources=(PENDING,)),
    ]
    yield _Group(visibility.KUEUE_GROUP, dict.fromkeys(visibility.KUEUE_VERSIONS, queues))
    ours = [
        _Resource("schedulers", "Scheduler", False, (), subresources=(DECISIONS,)),
        _Resource("workloads", "Workload", True, (), subresources=(EXPLANATION,)),
    ]
    yield _Group(visibility.GROUP, {visibility.VERSION: ours})


def _served(kind: Kind) -> Iterator[tuple[str, str]]:
    yield kind.group, kind.version
    for conversion in kind.conversions:
        yield (kind.group if conversion.group is None else conversion.group), conversion.version


def _resource(kind: Kind) -> _Resource:
    parts = tuple(sorted(kind.subresources & _SUBRESOURCES.keys()))
    return _Resource(kind.plural, kind.name, kind.namespaced, _VERBS, kind.short_names, kind.categories, parts)


# The plain form


def _legacy_versions(core: _Group) -> Document:
    return {
        "kind": "APIVersions",
        "versions": list(core.versions),
        "serverAddressByClientCIDRs": [],
    }


def _group_list(groups: list[_Group]) -> Document:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_described(group) for group in groups]}


def _described(group: _Group) -> Document:
    versions = [{"groupVersion": f"{group.name}/{version}", "version": version} for version in group.versions]
    return {"name": group.name, "versions": versions, "preferredVersion": versions[0]}


def _plain_entries(resource: _Resource) -> Iterator[Document]:
    entry: Document = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    for name in resource.subresources:
        part = _SUBRESOURCES[name]
        described: Document = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": part.kind or resource.kind,
            "verbs": list(part.verbs),
        }
        if part.group is not None:
            described |= {"group": part.group, "version": part.version}
        yield described


# The aggregated form


def _aggregate(groups: list[_Group], version: str) -> Response:
    items = [_aggregated_group(group) for group in groups]
    body = raw.encode(
        {"kind": _AGGREGATED, "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}, "items": items}
    )
    etag = f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"'
    content_type = f"{JSON_TYPE};g=apidiscovery.k8s.io;v={version};as={_AGGREGATED}"
    return Response(200, body, content_type, (("etag", etag), ("vary", "Accept"), ("cache-control", "public")))


def _aggregated_group(group: _Group) -> Document:
    versions = [
        {
            "version": version,
            "resources": [_aggregated_resource(group.name, version, resource) for resource in resources],
            "freshness": "Current",
        }
        for version, resources in group.versions.items()
    ]
    return {"metadata": {"name": group.name or None, "creationTimestamp": None}, "versions": versions}


def _aggregated_resource(group: str, version: str, resource: _Resource) -> Document:
    entry: Document = {
        "resource": resource.plural,
        "responseKind": {"group": group, "version": version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [_aggregated_part(group, version, resource, name) for name in resource.subresources]
    return entry


def _aggregated_part(group: str, version: str, resource: _Resource, name: str) -> Document:
    part = _SUBRESOURCES[name]
    kind = {
        "group": group if part.group is None else part.group,
        "version": version if part.group is None else part.version,
        "kind": part.kind or resource.kind,
    }
    return {"subresource": name, "responseKind": kind, "verbs": list(part.verbs)}
