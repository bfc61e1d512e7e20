"""lightkube, unmodified, against the server."""

from collections.abc import Iterator

import lightkube
import pytest
from lightkube import ApiError
from lightkube.config.kubeconfig import KubeConfig
from lightkube.generic_resource import create_global_resource
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node, Pod
from lightkube.types import PatchType
from tests.integration.threaded_server import Running, running_server

from muster.api import core
from muster.api.objects import Key
from muster.store.protocol import Bind, Delete
from muster.testing.servers import write_kubeconfig


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def kube(server, tmp_path_factory) -> Iterator[lightkube.Client]:
    path = tmp_path_factory.mktemp("kube") / "config"
    write_kubeconfig(path, server.address)
    with lightkube.Client(config=KubeConfig.from_file(path), field_manager="tests") as client:
        yield client


def pod(name: str) -> Pod:
    container = Container(name="main", image="host", command=["true"])
    return Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=PodSpec(containers=[container]))


def test_objects_are_made_listed_patched_and_deleted(kube):
    assert kube.create(pod("a")).metadata.uid
    assert kube.get(Pod, "a").spec.containers[0].command == ["true"]
    kube.patch(Pod, "a", {"metadata": {"labels": {"x": "y"}}})
    kube.patch(Pod, "a", [{"op": "add", "path": "/metadata/labels/z", "value": "1"}], patch_type=PatchType.JSON)
    assert [found.metadata.name for found in kube.list(Pod, labels={"x": "y", "z": "1"})] == ["a"]
    found = kube.get(Pod, "a")
    found.metadata.labels["x"] = "w"
    assert kube.replace(found).metadata.labels["x"] == "w"
    kube.delete(Pod, "a")
    with pytest.raises(ApiError) as gone:
        kube.get(Pod, "a")
    assert gone.value.status.code == 404
    assert {found.metadata.name for found in kube.list(Namespace)} >= {"default", "kube-system"}


def test_server_side_apply(kube):
    config = ConfigMap(metadata=ObjectMeta(name="applied", namespace="default"), data={"k": "1"})
    kube.apply(config)
    config.data = {"k": "2"}
    with pytest.raises(ApiError) as conflict:
        kube.apply(config, field_manager="other")
    assert conflict.value.status.code == 409
    assert kube.apply(config, field_manager="other", force=True).data == {"k": "2"}


def test_watching_and_waiting(kube, server):
    kube.create(pod("w"))
    version = kube.get(Pod, "w").metadata.resourceVersion
    server.do(lambda store: store.write([Bind(core.POD, Key("default", "w"), "n1")]))
    server.do(lambda store: store.write([Delete(core.POD, Key("default", "w"), grace_seconds=0)]))
    events = kube.watch(Pod, namespace="default", resource_version=version, server_timeout=10)
    seen = [next(events)[0] for _ in range(2)]
    events.close()
    assert seen == ["MODIFIED", "DELETED"]


def test_logs(kube, server):
    kube.create(pod("talker"))
    server.do(lambda store: store.write([Bind(core.POD, Key("default", "talker"), "n1")]))
    server.logs.chunks["talker", "main"] = [b"one\n", b"two\n"]
    assert [line.rstrip("\n") for line in kube.log("talker", follow=True)] == ["one", "two"]


def test_the_status_subresource(kube):
    kube.create(Node(metadata=ObjectMeta(name="n1")))
    node = kube.patch(Node.Status, "n1", {"status": {"capacity": {"cpu": "4"}}})
    assert node.status.capacity == {"cpu": "4"}


def test_generic_resources(kube):
    queue = create_global_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues")
    kube.create(queue(metadata=ObjectMeta(name="gold"), spec={"weight": 2}))
    assert kube.get(queue, "gold").spec == kube.get(queue, "gold")["spec"]
    assert kube.patch(queue, "gold", {"spec": {"weight": 5}}, patch_type=PatchType.MERGE).spec["weight"] == 5
    kube.delete(queue, "gold")
