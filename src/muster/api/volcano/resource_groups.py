"""Resource groups: pods of certain namespaces, or with a certain annotation, are steered to certain nodes.

The configuration is that of Volcano's admission service (`resourceGroups` of its file), read as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from muster.api import fields, raw
from muster.api.documents import child, made_child, text
from muster.api.errors import BadRequest, FieldError
from muster.api.raw import JSON, Document

ANNOTATION = "volcano.sh/resource-group"
_BY = ("namespace", "annotation")


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """`values`: namespaces, or annotations as `key: value`. Without any, pods name the group in an annotation."""

    name: str
    by: str = "annotation"
    values: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    affinity: Document | None = None
    tolerations: tuple[Document, ...] = ()
    scheduler: str = ""

    def has(self, pod: Document) -> bool:
        metadata = child(pod, "metadata")
        if self.by == "namespace":
            return text(metadata, "namespace") in self.values
        annotations = child(metadata, "annotations")
        wanted = self.values or (f"{ANNOTATION}: {self.name}",)
        return any(_annotation(value) in annotations.items() for value in wanted)

    def steer(self, pod: Document) -> None:
        """Changes the pod in place. What the pod says itself about labels of nodes stays beside it."""
        spec = made_child(pod, "spec")
        if self.labels:
            made_child(spec, "nodeSelector").update(self.labels)
        if self.affinity is not None:
            spec["affinity"] = raw.copy(self.affinity)
        if self.tolerations:
            listed = spec.get("tolerations")
            added = [raw.copy(toleration) for toleration in self.tolerations]
            spec["tolerations"] = [*(listed if isinstance(listed, list) else ()), *added]
        if self.scheduler:
            spec["schedulerName"] = self.scheduler


def _annotation(value: str) -> tuple[str, str]:
    key, _, wanted = value.partition(":")
    return key.strip(), wanted.strip()


def steer(pod: Document, groups: tuple[ResourceGroup, ...]) -> None:
    """Into the first group that has the pod."""
    for group in groups:
        if group.has(pod):
            group.steer(pod)
            return


def read(configuration: JSON) -> tuple[ResourceGroup, ...]:
    """Raises BadRequest that names all fields that cannot be understood."""
    listed = raw.dig(configuration, "resourceGroups")
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise BadRequest("resourceGroups: expected a list")
    problems = [error for index, entry in enumerate(listed) for error in _problems(f"resourceGroups[{index}]", entry)]
    if problems:
        raise BadRequest("; ".join(map(str, problems)), causes=problems)
    return tuple(_group(entry) for entry in listed)


def _group(entry: Document) -> ResourceGroup:
    return ResourceGroup(
        name=entry["resourceGroup"],
        by=text(child(entry, "object"), "key") or "annotation",
        values=tuple(child(entry, "object").get("value") or ()),
        labels=dict(child(entry, "labels")),
        affinity=_affinity(entry.get("affinity")),
        tolerations=tuple(entry.get("tolerations") or ()),
        scheduler=text(entry, "schedulerName"),
    )


def _affinity(found: JSON) -> Document | None:
    """Volcano takes it as JSON in a text; an object does as well."""
    if not found:
        return None
    return raw.decode_object(found.encode()) if isinstance(found, str) else raw.as_object(found)


def _problems(path: str, entry: JSON) -> Iterator[FieldError]:
    if not isinstance(entry, dict):
        yield fields.invalid(path, entry, "expected an object")
        return
    if not text(entry, "resourceGroup"):
        yield fields.required(f"{path}.resourceGroup")
    yield from fields.one_of(f"{path}.object.key", text(child(entry, "object"), "key") or None, _BY)
    values = child(entry, "object").get("value") or ()
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        yield fields.invalid(f"{path}.object.value", values, "expected a list of texts")
    elif values and text(child(entry, "object"), "key") != "namespace" and not all(":" in value for value in values):
        yield fields.invalid(f"{path}.object.value", values, "expected annotations, each as `key: value`")
    labels = entry.get("labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        yield fields.invalid(f"{path}.labels", labels, "expected texts by name")
    tolerations = entry.get("tolerations") or ()
    if not isinstance(tolerations, list | tuple) or not all(isinstance(found, dict) for found in tolerations):
        yield fields.invalid(f"{path}.tolerations", tolerations, "expected a list of tolerations")
    try:
        _affinity(entry.get("affinity"))
    except BadRequest as error:
        yield fields.invalid(f"{path}.affinity", entry.get("affinity"), f"is not an affinity in JSON: {error}")
