"""The official Python client, unmodified, against the server."""

# mypy: disable-error-code="union-attr,index,operator"
# The client declares every field of every object optional; a missing one fails the test anyway.

import threading
from collections.abc import Iterator

import kubernetes
import pytest
from kubernetes import client, dynamic, watch
from kubernetes.client import ApiException
from tests.integration.threaded_server import Running, running_server

from muster.api import core
from muster.api.objects import Key
from muster.store.protocol import Bind
from muster.testing.servers import write_kubeconfig


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def api(server, tmp_path_factory) -> Iterator[client.ApiClient]:
    config = tmp_path_factory.mktemp("kube") / "config"
    write_kubeconfig(config, server.address)
    made = kubernetes.config.new_client_from_config(str(config))
    with made:
        yield made


def pod(name: str, **labels: str) -> client.V1Pod:
    container = client.V1Container(name="main", image="host", command=["true"])
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels=labels), spec=client.V1PodSpec(containers=[container])
    )


def test_pods_are_made_listed_patched_and_deleted(api):
    v1 = client.CoreV1Api(api)
    made = v1.create_namespaced_pod("default", pod("p1", app="x"))
    assert made.metadata.uid
    assert made.spec.restart_policy == "Always"
    assert [item.metadata.name for item in v1.list_namespaced_pod("default", label_selector="app=x").items] == ["p1"]
    patched = v1.patch_namespaced_pod("p1", "default", {"metadata": {"labels": {"tier": "a"}}})
    assert patched.metadata.labels == {"app": "x", "tier": "a"}
    found = v1.read_namespaced_pod("p1", "default")
    found.metadata.labels["tier"] = "b"
    assert v1.replace_namespaced_pod("p1", "default", found).metadata.labels["tier"] == "b"
    with pytest.raises(ApiException) as stale:
        v1.replace_namespaced_pod("p1", "default", made)
    assert stale.value.status == 409
    v1.delete_namespaced_pod("p1", "default")
    with pytest.raises(ApiException) as gone:
        v1.read_namespaced_pod("p1", "default")
    assert gone.value.status == 404


def test_the_status_and_binding_subresources(api, server):
    v1 = client.CoreV1Api(api)
    v1.create_namespaced_pod("default", pod("p2"))
    target = client.V1ObjectReference(kind="Node", name="n1")
    body = client.V1Binding(metadata=client.V1ObjectMeta(name="p2"), target=target)
    v1.create_namespaced_pod_binding("p2", "default", body, _preload_content=False)
    assert v1.read_namespaced_pod("p2", "default").spec.node_name == "n1"
    shown = v1.patch_namespaced_pod_status("p2", "default", {"status": {"phase": "Running"}})
    assert shown.status.phase == "Running"
    v1.delete_namespaced_pod("p2", "default", grace_period_seconds=0)


def test_logs_are_read_and_followed(api, server):
    v1 = client.CoreV1Api(api)
    v1.create_namespaced_pod("default", pod("talker"))
    server.do(lambda store: store.write([Bind(core.POD, Key("default", "talker"), "n1")]))
    server.logs.chunks["talker", "main"] = [b"one\n", b"two\n"]
    assert v1.read_namespaced_pod_log("talker", "default", tail_lines=10) == "one\ntwo\n"
    lines = list(watch.Watch().stream(v1.read_namespaced_pod_log, name="talker", namespace="default"))
    assert lines == ["one", "two"]
    v1.delete_namespaced_pod("talker", "default", grace_period_seconds=0)


def test_a_watch_resumes_and_ends(api):
    v1 = client.CoreV1Api(api)
    version = v1.list_namespaced_config_map("default").metadata.resource_version
    config_map = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="watched"), data={"k": "v"})

    def change() -> None:
        v1.create_namespaced_config_map("default", config_map)
        v1.patch_namespaced_config_map("watched", "default", {"data": {"k": "w"}})
        v1.delete_namespaced_config_map("watched", "default")

    changing = threading.Thread(target=change)
    changing.start()
    seen = []
    watcher = watch.Watch()
    for event in watcher.stream(v1.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=10):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watcher.stop()
    changing.join()
    assert seen == [("ADDED", "watched"), ("MODIFIED", "watched"), ("DELETED", "watched")]
    quiet = watch.Watch().stream(v1.list_namespaced_secret, "default", timeout_seconds=1)
    assert list(quiet) == []


def test_batch_policy_and_events(api):
    batch = client.BatchV1Api(api)
    template = client.V1PodTemplateSpec(
        spec=client.V1PodSpec(restart_policy="Never", containers=[client.V1Container(name="c", image="host")])
    )
    job = client.V1Job(metadata=client.V1ObjectMeta(name="j"), spec=client.V1JobSpec(template=template, parallelism=2))
    assert batch.create_namespaced_job("default", job).spec.parallelism == 2
    batch.delete_namespaced_job("j", "default", propagation_policy="Background")
    priority = client.V1PriorityClass(metadata=client.V1ObjectMeta(name="high"), value=10)
    assert client.SchedulingV1Api(api).create_priority_class(priority).value == 10
    assert client.CoordinationV1Api(api).list_namespaced_lease("kube-node-lease").items == []
    assert client.EventsV1Api(api).list_namespaced_event("default").items == []


def test_eviction(api):
    v1 = client.CoreV1Api(api)
    v1.create_namespaced_pod("default", pod("evicted"))
    v1.create_namespaced_pod_eviction(
        "evicted", "default", client.V1Eviction(metadata=client.V1ObjectMeta(name="evicted"))
    )
    assert "evicted" not in [item.metadata.name for item in v1.list_namespaced_pod("default").items]


def test_custom_objects(api):
    custom = client.CustomObjectsApi(api)
    place = ("scheduling.volcano.sh", "v1beta1", "queues")
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "gold"},
        "spec": {"weight": 2},
    }
    assert custom.create_cluster_custom_object(*place, body)["spec"]["weight"] == 2
    patched = custom.patch_cluster_custom_object(*place, "gold", {"spec": {"weight": 3}})
    assert patched["spec"]["weight"] == 3
    assert [item["metadata"]["name"] for item in custom.list_cluster_custom_object(*place)["items"]] == ["gold"]
    custom.delete_cluster_custom_object(*place, "gold")


def test_the_dynamic_client_finds_its_way_by_discovery(api):
    found = dynamic.DynamicClient(api)
    maps = found.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dyn"}, "data": {"a": "1"}}
    assert maps.create(body=body, namespace="default").data.a == "1"
    applied = {**body, "data": {"a": "2"}}
    with pytest.raises(dynamic.exceptions.ConflictError):
        maps.server_side_apply(body=applied, name="dyn", namespace="default", field_manager="one")
    taken = maps.server_side_apply(
        body=applied, name="dyn", namespace="default", field_manager="one", force_conflicts=True
    )
    assert taken.data.a == "2"
    assert maps.get(name="dyn", namespace="default").metadata.name == "dyn"
    maps.delete(name="dyn", namespace="default")
    queues = found.resources.get(api_version="kueue.x-k8s.io/v1beta2", kind="ClusterQueue")
    assert list(queues.get().items) == []


def test_errors_carry_the_status(api):
    v1 = client.CoreV1Api(api)
    with pytest.raises(ApiException) as invalid:
        v1.create_namespaced_pod("default", pod("Not_A_Name"))
    assert invalid.value.status == 422
    assert "metadata.name" in invalid.value.body
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="get", resource="pods")
        )
    )
    assert client.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed
    assert client.VersionApi(api).get_code().git_version.startswith("v1.")
