"""Structural schemas of all our custom resources, by the rules that an API server holds definitions to."""

from collections.abc import Iterator

import pytest

from muster.api import kubeflow, kueue, volcano
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.raw import Document, dig
from muster.api.schema import structural

CUSTOM = [kind for kind in REGISTRY if not kind.built_in]
ALLOWED = {
    "type", "format", "description", "properties", "additionalProperties", "items", "required", "default", "anyOf",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
}  # fmt: skip


def parts(schema: Document, path: str = "") -> Iterator[tuple[str, Document]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from parts(below, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from parts(schema[name], f"{path}[]")


def problems(schema: Document) -> Iterator[str]:
    yield from (f"{key} is not allowed" for key in schema.keys() - ALLOWED)
    if "x-kubernetes-int-or-string" in schema:
        return
    if "type" not in schema and "x-kubernetes-preserve-unknown-fields" not in schema:
        yield "no type"
    if "properties" in schema and "additionalProperties" in schema:
        yield "properties and additionalProperties exclude each other"
    if schema.get("type") == "array" and "items" not in schema:
        yield "a list of nothing"
    for key in schema.get("x-kubernetes-list-map-keys", ()):
        item = schema["items"]
        if key not in item["properties"]:
            yield f"key {key} is no property"
        elif key not in item.get("required", ()) and "default" not in item["properties"][key]:
            yield f"key {key} may be missing"


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.resource)
def test_every_custom_resource_has_a_structural_schema(kind: Kind) -> None:
    found = [f"{path}: {wrong}" for path, part in parts(structural.schema(kind.view)) for wrong in problems(part)]
    assert found == []


def at(kind: Kind, path: str) -> Document:
    found = structural.schema(kind.view)
    for step in path.split("."):
        found = found["items"]["properties"][step] if found.get("type") == "array" else found["properties"][step]
    return found


def test_quantities_are_numbers_or_texts() -> None:
    schema = at(kueue.CLUSTER_QUEUE, "spec.resourceGroups.flavors.resources.nominalQuota")
    assert schema["x-kubernetes-int-or-string"] is True


def test_lists_merge_by_the_keys_that_server_side_apply_goes_by() -> None:
    schema = at(kueue.CLUSTER_QUEUE, "spec.resourceGroups.flavors")
    assert schema["x-kubernetes-list-type"] == "map"
    assert schema["x-kubernetes-list-map-keys"] == ["name"]
    assert schema["items"]["required"] == ["name"]


def test_fields_of_pods_that_are_not_known_yet_are_kept() -> None:
    pod = at(volcano.JOB, "spec.tasks.template.spec")
    assert pod["x-kubernetes-preserve-unknown-fields"] is True
    assert at(volcano.JOB, "spec.tasks.template.metadata") == {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_a_template_may_set_a_variable_twice_as_a_pod_may() -> None:
    env = at(kubeflow.PYTORCH_JOB, "spec")["properties"]["pytorchReplicaSpecs"]["additionalProperties"]
    found = dig(env, "properties", "template", "properties", "spec", "properties", "containers", "items", "properties")
    assert found["env"]["x-kubernetes-list-type"] == "atomic"


def test_versions_that_no_view_describes_keep_their_sections() -> None:
    schema = structural.opaque(kueue.CLUSTER_QUEUE.view)
    assert schema["properties"]["spec"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
