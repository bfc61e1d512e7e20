import pytest
import schemathesis

from muster.api import core, errors, everything, raw, schema
from muster.api.kinds import Conversion, Kind
from muster.api.registry import Registry

WIDGET = Kind(
    "example.x-k8s.io", "v2", "Widget", "widgets", core.Pod, namespaced=False, conversions=(Conversion("v1"),)
)
REGISTRY = Registry((*everything.REGISTRY, WIDGET))
GROUP_VERSIONS = [tuple(path.removeprefix("apis/").removeprefix("api").rpartition("/")[::2])
                  for path in schema.openapi_index(REGISTRY)["paths"]]  # fmt: skip


def _walk(value):
    yield value
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _walk(item)


def _resolve(document, found):
    """The schema itself, behind `$ref` and `allOf`."""
    if "allOf" in found:
        found = found["allOf"][0]
    return document["components"]["schemas"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found


def test_the_index_lists_every_served_version_with_a_hash():
    paths = schema.openapi_index(REGISTRY)["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/events.k8s.io/v1", "apis/example.x-k8s.io/v1"} <= set(paths)
    for path, found in paths.items():
        assert found["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")


def test_the_hash_follows_the_content():
    other = Registry((core.POD,))
    one, two = (schema.openapi_index(r)["paths"]["api/v1"]["serverRelativeURL"] for r in (REGISTRY, other))
    assert one != two
    assert schema.openapi_index(Registry((core.POD,))) == schema.openapi_index(other)


def test_a_version_nobody_serves_is_not_found():
    with pytest.raises(errors.NotFound, match=r"example\.com/v9"):
        schema.openapi(REGISTRY, "example.com", "v9")


@pytest.mark.parametrize(("group", "version"), GROUP_VERSIONS)
def test_every_reference_resolves_and_every_operation_has_its_own_id(group, version):
    document = schema.openapi(REGISTRY, group, version)
    schemas = document["components"]["schemas"]
    references = {found["$ref"] for found in _walk(document) if isinstance(found, dict) and "$ref" in found}
    assert {reference.removeprefix("#/components/schemas/") for reference in references} <= set(schemas)
    assert all(schemas.values()), "a component was named but never written"
    ids = [found["operationId"] for found in _walk(document) if isinstance(found, dict) and "operationId" in found]
    assert len(ids) == len(set(ids)) > 0
    assert not any("nullable" in found or "default" in found.get("schema", {}) for found in _walk(document)
                   if isinstance(found, dict))  # fmt: skip


@pytest.mark.parametrize(("group", "version"), [("batch", "v1"), ("kueue.x-k8s.io", "v1beta2"), ("policy", "v1")])
def test_schemathesis_reads_it_and_can_make_requests_from_it(group, version):
    loaded = schemathesis.openapi.from_dict(schema.openapi(REGISTRY, group, version))
    operations = [found.ok() for found in loaded.get_all_operations()]  # type: ignore[union-attr]
    assert {"GET", "POST", "PUT", "PATCH", "DELETE"} == {operation.method.upper() for operation in operations}
    loaded.validate()


def test_a_pod_is_described_down_to_its_ports():
    document = schema.openapi(REGISTRY, "", "v1")
    pod = document["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    spec = _resolve(document, pod["properties"]["spec"])
    containers = spec["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    container = _resolve(document, containers["items"])
    ports = container["properties"]["ports"]
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    port = _resolve(document, ports["items"])["properties"]["containerPort"]
    assert port == {"type": "integer", "format": "int32"}


def test_quantities_and_numbers_or_names_are_their_own_components():
    document = schema.openapi(REGISTRY, "", "v1")
    schemas = document["components"]["schemas"]
    limits = schemas["io.k8s.api.core.v1.ResourceRequirements"]["properties"]["limits"]
    assert limits["additionalProperties"]["$ref"].endswith("io.k8s.apimachinery.pkg.api.resource.Quantity")
    either = schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
    assert either["oneOf"] == [{"type": "integer"}, {"type": "string"}]
    assert either["x-kubernetes-int-or-string"] is True


WRITES = [
    ("post", "/api/v1/namespaces/{namespace}/pods"),
    ("put", "/api/v1/namespaces/{namespace}/pods/{name}"),
    ("patch", "/api/v1/namespaces/{namespace}/pods/{name}"),
    ("patch", "/api/v1/nodes/{name}/status"),
]


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_writes_take_the_parameter_by_which_kubectl_knows_that_we_validate(method, path):
    operation = schema.openapi(REGISTRY, "", "v1")["paths"][path][method]
    assert "fieldValidation" in [parameter["name"] for parameter in operation["parameters"]]
    assert operation["x-kubernetes-action"] == method
    assert operation["x-kubernetes-group-version-kind"]["kind"] in ("Pod", "Node")


def test_only_built_in_kinds_offer_strategic_merge():
    pods = schema.openapi(REGISTRY, "", "v1")["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    root = "/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/{name}"
    jobs = schema.openapi(REGISTRY, "kubeflow.org", "v1")["paths"][root]
    strategic = "application/strategic-merge-patch+json"
    assert strategic in pods["patch"]["requestBody"]["content"]
    assert strategic not in jobs["patch"]["requestBody"]["content"]


def test_another_served_version_has_its_own_document():
    for version in ("v1", "v2"):
        document = schema.openapi(REGISTRY, "example.x-k8s.io", version)
        widget = document["components"]["schemas"][f"io.x-k8s.example.{version}.Widget"]
        assert widget["x-kubernetes-group-version-kind"][0]["version"] == version
        assert f"/apis/example.x-k8s.io/{version}/widgets/{{name}}/status" in document["paths"]


def test_documents_are_plain_json():
    assert raw.decode(raw.encode(schema.openapi(REGISTRY, "", "v1"))) == schema.openapi(REGISTRY, "", "v1")
