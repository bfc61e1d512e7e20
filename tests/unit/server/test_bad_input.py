"""Bad input: each gets a Status that names what is wrong, nothing is answered 500, and the server goes on."""

import asyncio
import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.api.everything import REGISTRY
from muster.runtime.clock import SystemClock
from muster.server.exchange import MAX_BODY_BYTES
from muster.store.embedded import EmbeddedStore
from muster.testing.asgi import AsgiClient
from muster.testing.servers import TOKEN, app_for

PODS = "/k8s/api/v1/namespaces/default/pods"
MAPS = "/k8s/api/v1/namespaces/default/configmaps"
MERGE = {"content-type": "application/merge-patch+json"}
YAML = {"content-type": "application/yaml"}


def pod(**changes) -> bytes:
    container = {"name": "main", "image": "host", **changes.pop("container", {})}
    spec = {"containers": [container], **changes.pop("spec", {})}
    return json.dumps({"metadata": {"name": "p", **changes.pop("metadata", {})}, "spec": spec, **changes}).encode()


def asking(**requests) -> bytes:
    return pod(container={"resources": {"requests": requests}})


@pytest.mark.parametrize(
    ("sentence", "method", "path", "body", "headers", "status", "says"),
    [
        ("malformed JSON", "POST", PODS, b'{"metadata": {', {}, 400, "not valid JSON"),
        ("malformed YAML", "POST", PODS, b"metadata: [a", YAML, 400, "not valid YAML"),
        ("not UTF-8", "POST", PODS, b'{"metadata": {"name": "\xff"}}', {}, 400, "JSON"),
        ("no body", "POST", PODS, b"", {}, 400, "no body"),
        ("a list", "POST", PODS, b"[]", {}, 400, "expected a JSON object"),
        ("a string as metadata", "POST", PODS, b'{"metadata": "x"}', {}, 400, "metadata"),
        ("a number as name", "POST", PODS, b'{"metadata": {"name": 5}}', {}, 400, "metadata.name"),
        ("a string as labels", "POST", MAPS, b'{"metadata": {"name": "a", "labels": "x"}}', {}, 422, "metadata.labels"),
        ("a string as spec", "POST", PODS, b'{"metadata": {"name": "p"}, "spec": "x"}', {}, 400, "spec"),
        (
            "a string where a number belongs",
            "POST",
            PODS,
            pod(spec={"terminationGracePeriodSeconds": "soon"}),
            {},
            422,
            "spec.terminationGracePeriodSeconds",
        ),
        ("a number beyond its range", "POST", PODS, pod(spec={"priority": 2**40}), {}, 422, "spec.priority"),
        ("the wrong kind", "POST", PODS, pod(kind="Secret"), {}, 400, "does not match the resource"),
        ("the wrong version", "POST", PODS, pod(apiVersion="v2"), {}, 400, "v2"),
        ("an unknown kind", "POST", "/k8s/apis/example.com/v1/unicorns", b"{}", {}, 404, "could not find"),
        ("an unknown namespace", "POST", PODS.replace("default", "nowhere"), pod(), {}, 404, 'namespaces "nowhere"'),
        ("another namespace", "POST", PODS, pod(metadata={"namespace": "kube-system"}), {}, 400, "namespace"),
        ("an absurd quantity", "POST", PODS, asking(cpu="1e999"), {}, 422, "spec.containers[0].resources.requests"),
        ("a negative quantity", "POST", PODS, asking(memory="-1Gi"), {}, 422, "spec.containers[0].resources.requests"),
        ("no quantity", "POST", PODS, asking(cpu="many"), {}, 422, "spec.containers[0].resources.requests"),
        ("an absurd number", "POST", PODS, pod().replace(b'"host"', b"1e999"), {}, 400, "JSON"),
        ("a name that is no DNS name", "POST", PODS, pod(metadata={"name": "Not_A_Name"}), {}, 422, "metadata.name"),
        ("a name of dots", "POST", PODS, pod(metadata={"name": ".."}), {}, 422, "metadata.name"),
        ("a name that climbs", "POST", PODS, pod(metadata={"name": "../../etc/passwd"}), {}, 422, "metadata.name"),
        ("a path that climbs", "GET", f"{PODS}/..%2f..%2fsecrets%2fs", b"", {}, 400, "segment"),
        ("a path of dots", "GET", f"{PODS}/../secrets", b"", {}, 400, "segment"),
        ("an empty segment", "GET", "/k8s/api/v1/namespaces//pods", b"", {}, 404, "could not find"),
        (
            "a very long name",
            "POST",
            MAPS,
            json.dumps({"metadata": {"name": "a" * 300}}).encode(),
            {},
            422,
            "metadata.name",
        ),
        (
            "an object above the limit",
            "POST",
            MAPS,
            json.dumps({"metadata": {"name": "a"}, "data": {"k": "x" * 2**21}}).encode(),
            {},
            413,
            "limit",
        ),
        ("a body above the limit", "POST", MAPS, b" " * (MAX_BODY_BYTES + 1), {}, 413, "larger than"),
        (
            "a patch of an immutable field",
            "PATCH",
            f"{PODS}/there",
            b'{"spec": {"restartPolicy": "Never"}}',
            MERGE,
            422,
            "spec",
        ),
        ("a patch that is no object", "PATCH", f"{PODS}/there", b"3", MERGE, 400, "object"),
        (
            "a JSON patch that is no list",
            "PATCH",
            f"{PODS}/there",
            b"{}",
            {"content-type": "application/json-patch+json"},
            400,
            "",
        ),
        (
            "a JSON patch of what is not there",
            "PATCH",
            f"{PODS}/there",
            b'[{"op": "remove", "path": "/spec/none"}]',
            {"content-type": "application/json-patch+json"},
            422,
            "",
        ),
        ("a patch of unknown type", "PATCH", f"{PODS}/there", b"{}", {"content-type": "text/css"}, 415, "merge-patch"),
        (
            "a stale version",
            "PUT",
            f"{PODS}/there",
            pod(metadata={"name": "there", "resourceVersion": "1"}),
            {},
            409,
            "modified",
        ),
        ("another name", "PUT", f"{PODS}/there", pod(metadata={"name": "other"}), {}, 400, "does not match the name"),
        (
            "an unknown media type",
            "POST",
            PODS,
            b"<pod/>",
            {"content-type": "application/xml"},
            415,
            "application/json",
        ),
        (
            "nonsense as protobuf",
            "POST",
            PODS,
            b"k8s\x00\xff\xff",
            {"content-type": "application/vnd.kubernetes.protobuf"},
            400,
            "",
        ),
        (
            "apply without a manager",
            "PATCH",
            f"{PODS}/there",
            b"{}",
            {"content-type": "application/apply-patch+yaml"},
            400,
            "fieldManager",
        ),
        (
            "a version that is no number",
            "PUT",
            f"{PODS}/there",
            pod(metadata={"name": "there", "resourceVersion": [1]}),
            {},
            409,
            "",
        ),
    ],
)
async def test_bad_input_is_refused_by_name(client, sentence, method, path, body, headers, status, says):
    there = await client.request("POST", PODS, body=pod(metadata={"name": "there"}))
    assert there.status == 201
    reply = await client.request(method, path, body=body, headers=headers)
    found = reply.json
    assert (reply.status, found["kind"], found["status"], found["code"]) == (status, "Status", "Failure", status), found
    assert says in found["message"]
    assert (await client.request("GET", f"{PODS}/there")).status == 200


async def test_a_failure_of_ours_is_told_with_its_number_and_ends_with_the_request(store, caplog):
    class Broken:
        def __getattr__(self, name):
            raise RuntimeError("no disk")

    reply = await AsgiClient(app_for(Broken()), TOKEN).request("GET", PODS)
    assert (reply.status, reply.json["reason"]) == (500, "InternalError")
    assert reply.header("x-request-id") in reply.json["message"]
    assert "no disk" not in reply.json["message"]
    assert "no disk" in caplog.text


# Fuzzing: whatever comes, the answer is never a failure of ours.

_names = st.sampled_from(["there", "a", "..", "%2e", "A_b", "x" * 300, "ü"]) | st.text(max_size=20)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
_collections = st.sampled_from(
    [
        f"/{'apis/' + kind.group if kind.group else 'api'}/{kind.version}"
        f"{'/namespaces/default' if kind.namespaced else ''}/{kind.plural}"
        for kind in REGISTRY
    ]
)
_documents = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {}, optional={"name": _names | _values, "labels": _values, "finalizers": _values}
        )
        | _values,
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.lists(st.fixed_dictionaries({"name": _values}, optional={"resources": _values}))
                | _values,
                "template": _values,
                "tasks": _values,
                "resourceGroups": _values,
                "selector": _values,
                "finalizers": _values,
                "podSets": _values,
                "levels": _values,
                "replicas": _values,
            },
        )
        | _values,
        "status": _values,
        "data": _values,
        "value": _values,
        "apiVersion": _values,
        "kind": _values,
    },
)
_content_types = st.sampled_from(
    [
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/vnd.kubernetes.protobuf",
        "",
    ]
)
_queries = st.dictionaries(
    st.sampled_from(
        [
            "labelSelector",
            "fieldSelector",
            "limit",
            "continue",
            "resourceVersion",
            "resourceVersionMatch",
            "dryRun",
            "fieldManager",
            "fieldValidation",
            "force",
            "gracePeriodSeconds",
            "propagationPolicy",
            "includeObject",
            "container",
            "tailLines",
            "sinceTime",
            "sinceSeconds",
            "orphanDependents",
        ]
    ),
    st.sampled_from(["", "0", "1", "-1", "true", "All", "Strict", "metadata.name=there", "a in (b,c)", "9" * 40])
    | st.text(max_size=15),
    max_size=4,
)
_methods = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
_operations = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]) | _values},
        optional={
            "path": st.sampled_from(["", "/", "/metadata", "/spec/containers/0", "/metadata/labels/a~1b"]) | _values,
            "from": st.text(max_size=10),
            "value": _values,
        },
    ),
    max_size=3,
)


def _send(method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> None:
    """One request to a fresh server that has an object; and then a look whether it is still well."""

    async def exchange() -> None:
        async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
            client = AsgiClient(app_for(store), TOKEN)
            await client.request("POST", PODS, body=pod(metadata={"name": "there"}))
            await client.request("POST", MAPS, body=b'{"metadata": {"name": "there"}}')
            reply = await client.request(method, path, query=query, headers=headers, body=body)
            assert reply.status != 500, reply.body
            assert 200 <= reply.status < 600
            if reply.status >= 400:
                assert reply.json["kind"] == "Status"
            again = await client.request("GET", f"{PODS}/there")
            assert again.status in (200, 404)

    logging.disable(logging.CRITICAL)
    try:
        asyncio.run(asyncio.wait_for(exchange(), 10))
    finally:
        logging.disable(logging.NOTSET)


_bounded = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@_bounded
@given(
    _methods,
    _collections,
    _names,
    st.sampled_from(["", "/status", "/log", "/binding", "/eviction", "/finalize"]),
    _queries,
    _content_types,
    _documents,
)
def test_documents_of_any_shape_are_answered(method, collection, name, part, query, content_type, document):
    path = f"/k8s{collection}/{quote(name, safe='')}{part}" if method != "POST" or part else f"/k8s{collection}"
    _send(method, path, query, {"content-type": content_type}, json.dumps(document).encode())


@_bounded
@given(_methods, _queries, _content_types, st.binary(max_size=300))
def test_bodies_of_any_bytes_are_answered(method, query, content_type, body):
    for path in (PODS, f"{PODS}/there"):
        _send(method, path, query, {"content-type": content_type}, body)


@_bounded
@given(_methods, st.text(max_size=60), _queries)
def test_paths_of_any_letters_are_answered(method, path, query):
    _send(method, "/k8s/" + quote(path, safe="/%?#"), query, {}, b"")


@_bounded
@given(_operations)
def test_patches_of_any_operations_are_answered(operations):
    headers = {"content-type": "application/json-patch+json"}
    _send("PATCH", f"{PODS}/there", {}, headers, json.dumps(operations).encode())


@_bounded
@given(
    st.sampled_from(["accept", "authorization", "content-type", "user-agent", "if-none-match", "x-muster-based-on"]),
    st.text(max_size=40),
)
def test_headers_of_any_text_are_answered(name, value):
    encoded = value.encode("utf-8").decode("latin-1")
    for method, path in (("GET", PODS), ("PATCH", f"{PODS}/there"), ("GET", "/k8s/apis")):
        _send(method, path, {}, {name: encoded}, b"{}")
