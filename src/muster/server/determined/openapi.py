"""The OpenAPI document of all routes, made from the messages that they take and give: there is nothing else to keep up.

What a client may send is described as it is: no field is required but those in the path, since the handlers say what is
missing better than a schema could.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Final

import msgspec

from muster.api.raw import JSON, Document
from muster.server.determined.routing import Message, Route

_BELOW: Final = "/api/v1"
_PACKAGE: Final = "muster.server.determined."
_REF: Final = "#/components/schemas/{name}"
_ERROR: Final[Document] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "reason", "error"],
            "properties": {
                "code": {"type": "integer", "description": "As gRPC numbers them."},
                "reason": {"type": "string", "description": "For programs."},
                "error": {"type": "string", "description": "For people."},
            },
        }
    },
}
_STREAM_ERROR: Final[Document] = {
    "type": "object",
    "properties": {
        "grpcCode": {"type": "integer"},
        "httpCode": {"type": "integer"},
        "message": {"type": "string"},
    },
}
_SECURITY: Final[Document] = {
    "session": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of a login, or an access token.",
    },
    "task": {
        "type": "apiKey",
        "in": "header",
        "name": "Grpc-Metadata-x-allocation-token",
        "description": "`Bearer` and the token of a task, for what concerns that task.",
    },
    "cookie": {"type": "apiKey", "in": "cookie", "name": "auth", "description": "What a login gives a browser."},
}


def document(routes: Sequence[Route], version: str) -> Document:
    types = sorted({type for route in routes for type in (route.request, route.reply)}, key=_qualified)
    references, components = msgspec.json.schema_components(types, ref_template=_REF)
    names = {type: _short(str(each["$ref"]).rpartition("/")[2]) for type, each in zip(types, references, strict=True)}
    components = {_short(name): _renamed(schema) for name, schema in components.items()}
    paths: Document = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, names, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Muster: the API of Determined",
            "version": version,
            "description": "Names of fields may be sent in camelCase or snake_case. Streams are lines of JSON, "
            "one object each.",
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": area} for area in sorted({area(route) for route in routes})],
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {**components, "Error": _ERROR}, "securitySchemes": _SECURITY},
    }


def area(route: Route) -> str:
    """The part of the platform that it belongs to: that of its handler."""
    return _handler(route).__module__.rpartition(".")[2].replace("_", " ")


def _operation(route: Route, names: Mapping[type[Message], str], components: Mapping[str, Document]) -> Document:
    schema = components[names[route.request]]
    properties: Mapping[str, Document] = schema.get("properties", {})
    in_path = _in_path(route)
    operation: Document = {
        "operationId": _operation_id(route),
        "tags": [area(route)],
        "summary": _summary(route),
        "description": _rule(route),
        "parameters": [*_path_parameters(route, properties, in_path)],
        "responses": {
            "200": _reply(route, names),
            "default": {
                "description": "It was refused, or failed; the message says why.",
                "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}},
            },
        },
        "security": [] if route.rule.is_public else _security(route),
    }
    others = {name: found for name, found in properties.items() if name not in in_path.values()}
    if route.method == "GET":
        operation["parameters"] += _query_parameters(others)
    elif others:
        operation["requestBody"] = {
            "required": False,
            "content": {"application/json": {"schema": _body(route, others)}},
        }
    return operation


def _in_path(route: Route) -> Mapping[str, str]:
    """Parameters as the path names them, and as the message does."""
    fields = {name: field.encode_name for field in msgspec.structs.fields(route.request)
              for name in (field.name, field.encode_name)}  # fmt: skip
    named = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return {name: fields.get(name, "") for name in named}


def _path_parameters(
    route: Route, properties: Mapping[str, Document], in_path: Mapping[str, str]
) -> Iterable[Document]:
    for name, field in in_path.items():
        schema = properties.get(field, {"type": "string"})
        yield {"name": name, "in": "path", "required": True, "schema": _without_default(schema)}


def _query_parameters(properties: Mapping[str, Document]) -> Iterable[Document]:
    for name, schema in properties.items():
        yield {"name": name, "in": "query", "required": False, "schema": schema}


def _body(route: Route, properties: Mapping[str, Document]) -> Document:
    if route.body:
        field = next(each for each in msgspec.structs.fields(route.request) if each.name == route.body)
        return properties[field.encode_name]
    return {"type": "object", "properties": dict(properties)}


def _reply(route: Route, names: Mapping[type[Message], str]) -> Document:
    schema: Document = {"$ref": _REF.format(name=names[route.reply])}
    if route.follow is None:
        return {"description": "Done.", "content": {"application/json": {"schema": schema}}}
    line: Document = {"type": "object", "properties": {"result": schema, "error": _STREAM_ERROR}}
    described = "Lines, each with a result; the last may have an error instead."
    return {"description": described, "content": {"application/json": {"schema": line}}}


def _without_default(schema: Document) -> Document:
    return {name: value for name, value in schema.items() if name != "default"}


def _security(route: Route) -> list[Document]:
    found: list[Document] = [{"session": []}, {"cookie": []}]
    return [*found, {"task": []}] if route.rule.own or route.rule.permission is None else found


def _rule(route: Route) -> str:
    """Who may call it."""
    rule = route.rule
    if rule.is_public:
        return "For anybody."
    if rule.permission is None:
        who = "For whoever is logged in."
    else:
        where = "in the whole cluster" if rule.scope is None else "in the workspace that it is about"
        who = f"For those who may {rule.permission} {where}."
    return f"{who} Tasks may call it for themselves." if rule.own else who


def _summary(route: Route) -> str:
    told = inspect.getdoc(_handler(route))
    return told.partition("\n\n")[0].replace("\n", " ") if told else _handler(route).__name__.replace("_", " ").strip()


def _operation_id(route: Route) -> str:
    """Of the path, which is as unique as it must be."""
    below = route.path.removeprefix(_BELOW)
    parts = [part.strip("{}").replace("-", "_") for part in below.strip("/").split("/")]
    return "_".join([route.method.lower(), *([] if below != route.path else ["outside"]), *parts])


def _handler(route: Route) -> MethodType | FunctionType:
    found = route.handle or route.follow
    assert isinstance(found, MethodType | FunctionType), f"{route.path} is handled by something without a name"
    return found


def _short(name: str) -> str:
    """Messages of one name in several areas are told apart by their module, whose beginning says nothing."""
    return name.replace(_PACKAGE, "")


def _renamed(schema: JSON) -> JSON:
    if isinstance(schema, dict):
        return {
            name: _short(value) if name == "$ref" and isinstance(value, str) else _renamed(value)
            for name, value in schema.items()
        }
    return [_renamed(each) for each in schema] if isinstance(schema, list) else schema


def _qualified(type: type[Message]) -> str:
    return f"{type.__module__}.{type.__qualname__}"
