"""The Kubernetes API below its prefix: which handler answers which request."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from muster.api import core, errors, raw, schema
from muster.api.registry import Registry
from muster.runtime.clock import Clock
from muster.server import access, deleting, discovery, logs, paths, reading, writing
from muster.server.access import Attributes, Identity
from muster.server.admitting import Admitting
from muster.server.context import Call, Context
from muster.server.exchange import Answer, Request, Response, json_response
from muster.server.logs import NodeLogs
from muster.server.paths import MISSING, Target
from muster.server.watching import Watching
from muster.store.protocol import Store

_VERBS: Mapping[str, str] = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_INTERACTIVE = ("exec", "attach", "portforward", "proxy")

_Handler: TypeAlias = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class _Routes:
    """Handlers of one place by method."""

    by_method: Mapping[str, _Handler]

    def of(self, call: Call) -> _Handler:
        handler = self.by_method.get(call.request.method)
        if handler is None:
            raise errors.MethodNotAllowed(
                f"the server does not allow this method on the requested resource: {call.request.method}; allowed are "
                f"{', '.join(self.by_method)}"
            )
        return handler


class KubernetesApi:
    def __init__(self, *, store: Store, registry: Registry, clock: Clock, node_logs: NodeLogs) -> None:
        self._context = Context(store, registry, clock)
        self._node_logs = node_logs
        self._discovery = discovery.everything(registry)
        self._admitting = Admitting(store)
        self._watching = Watching(self._context)
        self._collection = _Routes(
            {"GET": self._list_or_watch, "POST": self._create, "DELETE": self._delete_collection}
        )
        self._object = _Routes(
            {"GET": self._get_or_watch, "PUT": self._replace, "PATCH": self._patch, "DELETE": self._delete}
        )
        self._parts: Mapping[str, _Routes] = {
            "status": _Routes({"GET": self._get, "PUT": self._replace, "PATCH": self._patch}),
            "log": _Routes({"GET": self._log}),
            "binding": _Routes({"POST": self._bind}),
            "eviction": _Routes({"POST": self._evict}),
            "finalize": _Routes({"PUT": self._finalize}),
        }

    async def answer(self, request: Request, identity: Identity, parts: tuple[str, ...]) -> Answer:
        """`parts` are the segments of the path below the prefix."""
        if request.method == "GET":
            found = self._non_resource(request, parts)
            if found is not None:
                return found
        versioned = paths.version_of(parts)
        if versioned is None:
            raise errors.NotFound(MISSING)
        group, version, rest = versioned
        if version == "v1" and rest and (group, rest[-1]) in access.REVIEWS:
            return await self._review(request, identity, access.REVIEWS[group, rest[-1]], group)
        target = paths.parse(self._context.registry, group, version, rest)
        call = Call(request, target, identity)
        await self._authorize(call)
        return await self._routes(target).of(call)(call)

    # What is not a resource

    def _non_resource(self, request: Request, parts: tuple[str, ...]) -> Answer | None:
        match parts:
            case ():
                return json_response({"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]})
            case ("api",):
                return self._discovery.root(request, is_core=True)
            case ("apis",):
                return self._discovery.root(request, is_core=False)
            case ("api", version):
                return self._discovery.version("", version)
            case ("apis", group):
                return self._discovery.group(group)
            case ("apis", group, version):
                return self._discovery.version(group, version)
            case ("openapi", "v3", *rest):
                return self._openapi(request, tuple(rest))
        return None

    def _openapi(self, request: Request, parts: tuple[str, ...]) -> Response:
        if not parts:
            return json_response(schema.openapi_index(self._context.registry))
        versioned = paths.version_of(parts)
        if versioned is None or versioned[2]:
            raise errors.NotFound(MISSING)
        group, version, _ = versioned
        wanted = request.query.text("hash")
        headers = (("etag", f'"{wanted}"'), ("cache-control", "public, immutable")) if wanted else ()
        if wanted and request.headers.get("if-none-match") == f'"{wanted}"':
            return Response(304, b"", headers=headers)
        document = schema.openapi(self._context.registry, group, version)
        return Response(200, raw.encode(document), headers=headers)

    async def _review(self, request: Request, identity: Identity, kind: str, group: str) -> Response:
        if request.method != "POST":
            raise errors.MethodNotAllowed("reviews can only be created: POST one")
        if not kind.startswith("Self"):
            access.check(identity, Attributes("create", group, f"{kind.lower()}s"))
        sent = await writing.body(request)
        if sent.get("kind") not in (None, "", kind):
            raise errors.BadRequest(f"this resource takes {kind}, found kind {str(sent['kind'])[:100]!r}")
        reviewed = access.review(kind, {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, **sent}, identity)
        return json_response(reviewed, 201)

    # Resources

    def _routes(self, target: Target) -> _Routes:
        if not target.name:
            return self._collection
        if not target.subresource:
            return self._object
        if target.subresource in _INTERACTIVE and target.kind is core.POD:
            raise errors.MethodNotAllowed(
                f"pods/{target.subresource} is not served: pods run as processes of their node without a terminal; use "
                "kubectl logs to see their output"
            )
        routes = self._parts.get(target.subresource)
        if routes is None or target.subresource not in target.kind.subresources:
            raise errors.NotFound(MISSING)
        return routes

    async def _authorize(self, call: Call) -> None:
        request, target, identity = call.request, call.target, call.identity
        verb = _VERBS.get(request.method, request.method.lower())
        if not target.name:
            verb = {"get": "list", "delete": "deletecollection"}.get(verb, verb)
        if verb in ("get", "list") and request.query.flag("watch") and not target.subresource:
            verb = "watch"
        resource = f"{target.kind.plural}/{target.subresource}" if target.subresource else target.kind.plural
        access.check(identity, Attributes(verb, target.group, resource, target.namespace or "", target.name))
        if identity.role is access.Role.NODE and target.kind is core.POD and verb in ("update", "patch", "delete"):
            access.check_pod(identity, await self._context.store.get(target.kind, target.key), verb)

    async def _list_or_watch(self, call: Call) -> Answer:
        if call.request.query.flag("watch"):
            return self._watching.watch(call)
        return await reading.list_(self._context, call)

    async def _get_or_watch(self, call: Call) -> Answer:
        if call.request.query.flag("watch"):
            return self._watching.watch(call)
        return await reading.get(self._context, call)

    async def _get(self, call: Call) -> Answer:
        return await reading.get(self._context, call)

    async def _create(self, call: Call) -> Answer:
        return await writing.create(self._context, self._admitting, call)

    async def _replace(self, call: Call) -> Answer:
        return await writing.replace(self._context, self._admitting, call)

    async def _patch(self, call: Call) -> Answer:
        return await writing.patch(self._context, self._admitting, call)

    async def _delete(self, call: Call) -> Answer:
        return await deleting.delete(self._context, self._admitting, call)

    async def _delete_collection(self, call: Call) -> Answer:
        return await deleting.delete_collection(self._context, self._admitting, call)

    async def _log(self, call: Call) -> Answer:
        return await logs.read(self._context, self._node_logs, call)

    async def _evict(self, call: Call) -> Answer:
        return await deleting.evict(self._context, call)

    async def _bind(self, call: Call) -> Answer:
        return await writing.bind(self._context, call)

    async def _finalize(self, call: Call) -> Answer:
        return await writing.finalize(self._context, call)
