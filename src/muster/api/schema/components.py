"""Component schemas of OpenAPI documents: one for each view, under the names Kubernetes gives its types."""

from collections.abc import Mapping

from muster.api import meta
from muster.api.meta import View
from muster.api.raw import Document
from muster.api.schema import shapes
from muster.api.schema.shapes import Form, Shape

_META_PREFIX = "io.k8s.apimachinery.pkg.apis.meta.v1"
_BUILT_IN_PACKAGES = frozenset({"core", "batch", "scheduling", "coordination", "policy"})

INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
STATUS = f"{_META_PREFIX}.Status"
LIST_META = f"{_META_PREFIX}.ListMeta"
DELETE_OPTIONS = f"{_META_PREFIX}.DeleteOptions"
PATCH = f"{_META_PREFIX}.Patch"

_STRING: Document = {"type": "string"}
_INT32: Document = {"type": "integer", "format": "int32"}
_INT64: Document = {"type": "integer", "format": "int64"}

FIXED: Mapping[str, Document] = {
    INT_OR_STRING: {
        "description": "A number, or text such as a percentage or the name of a port.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    },
    QUANTITY: {
        "description": "An exact amount of a resource: 2, 500m, 1.5Gi, 1e3.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
        "x-kubernetes-int-or-string": True,
    },
    LIST_META: {
        "description": "Where a list stands: its version, and how to ask for the rest of it.",
        "type": "object",
        "properties": {
            "resourceVersion": _STRING, "continue": _STRING, "remainingItemCount": _INT64, "selfLink": _STRING,
        },
    },
    STATUS: {
        "description": "The outcome of a request that returns no other object.",
        "type": "object",
        "properties": {
            "apiVersion": _STRING, "kind": _STRING, "metadata": {"$ref": f"#/components/schemas/{LIST_META}"},
            "status": _STRING, "message": _STRING, "reason": _STRING, "code": _INT32,
            "details": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Status", "version": "v1"}],
    },
    DELETE_OPTIONS: {
        "description": "How to delete an object.",
        "type": "object",
        "properties": {
            "apiVersion": _STRING, "kind": _STRING, "gracePeriodSeconds": _INT64,
            "orphanDependents": {"type": "boolean"},
            "propagationPolicy": {"type": "string", "enum": ["Background", "Foreground", "Orphan"]},
            "dryRun": {"type": "array", "items": _STRING},
            "preconditions": {"type": "object", "properties": {"uid": _STRING, "resourceVersion": _STRING}},
        },
    },
    PATCH: {"description": "A patch; the content type says of which sort.", "type": "object"},
}  # fmt: skip


def reference(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


def name_of_kind(group: str, version: str, kind: str) -> str:
    """`io.k8s.api.core.v1.Pod`; for other groups the reversed name of the group, as Kubernetes does for CRDs."""
    first, _, rest = group.partition(".")
    if rest in ("", "k8s.io"):
        return f"io.k8s.api.{first or 'core'}.{version}.{kind}"
    return f"{'.'.join(reversed(group.split('.')))}.{version}.{kind}"


def _name_of_view(view: type[View]) -> str:
    if view.__module__ == meta.__name__:
        return f"{_META_PREFIX}.{view.__name__}"
    package = view.__module__.removeprefix("muster.api.").partition(".")[0]
    prefix = f"io.k8s.api.{package}.v1" if package in _BUILT_IN_PACKAGES else f"dev.muster.{package}"
    return f"{prefix}.{view.__name__}"


def described(view: type[View]) -> Document:
    written = view.__dict__.get("__doc__")  # its own: an inherited one would describe something else
    return {"description": " ".join(written.split())} if written else {}


class Components:
    """Collects the schemas that a document refers to, each once."""

    def __init__(self) -> None:
        self.schemas: Document = {}
        self._views: dict[str, type[View]] = {}

    def add_fixed(self, name: str) -> Document:
        self.schemas.setdefault(name, FIXED[name])
        return reference(name)

    def add_kind(self, name: str, view: type[View], group_version_kind: Document) -> Document:
        schema = self._struct(view)
        schema["x-kubernetes-group-version-kind"] = [group_version_kind]
        self.schemas[name] = schema
        return reference(name)

    def add_list(self, name: str, item: Document, group_version_kind: Document) -> Document:
        self.schemas[name] = {
            "description": f"A list of {group_version_kind['kind'].removesuffix('List')} objects.",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": self.add_fixed(LIST_META),
                "items": {"type": "array", "items": item},
            },
            "x-kubernetes-group-version-kind": [group_version_kind],
        }
        return reference(name)

    def _add_view(self, view: type[View]) -> Document:
        name = _name_of_view(view)
        while self._views.setdefault(name, view) is not view:
            name += "_"  # two modules of one package may each have a class of this name
        if name not in self.schemas:
            self.schemas[name] = {}  # before its fields: a view may contain itself
            self.schemas[name] = self._struct(view)
        return reference(name)

    def _struct(self, view: type[View]) -> Document:
        schema: Document = {"type": "object"} | described(view)
        properties = {name: self._schema(shape) for name, shape in shapes.fields_of(view).items()}
        if properties:
            schema["properties"] = properties
        if shapes.of_view(view).is_atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        return schema

    def _schema(self, shape: Shape) -> Document:
        extensions = dict(shape.extensions)
        match shape.form:
            case Form.STRUCT:
                assert shape.view is not None
                referred = self._add_view(shape.view)
                extensions = described(shape.view) | extensions
                # OpenAPI 3.0 ignores what stands next to a $ref.
                return {"allOf": [referred], **extensions} if extensions else referred
            case Form.MAP:
                return {"type": "object", "additionalProperties": self._schema(shape.element), **extensions}
            case Form.LIST:
                extensions.setdefault("x-kubernetes-list-type", "atomic")
                return {"type": "array", "items": self._schema(shape.element), **extensions}
            case Form.SCALAR:
                return self._scalar(shape, extensions)
            case Form.ANYTHING:
                return {"type": "object", **extensions} if extensions else {}

    def _scalar(self, shape: Shape, extensions: Document) -> Document:
        if extensions.get("x-kubernetes-int-or-string"):
            is_plain = extensions.get("format") == "int-or-string"
            return self.add_fixed(INT_OR_STRING if is_plain else QUANTITY)
        options: list[Document] = [dict(_SCALARS[scalar]) for scalar in shape.types]
        return {**options[0], **extensions} if len(options) == 1 else {"oneOf": options, **extensions}


_SCALARS: Mapping[type, Document] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number", "format": "double"},
}
