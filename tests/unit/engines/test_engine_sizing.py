"""How slots become pods, and what stands for a request in the store."""

import base64

import pytest

from muster.api import core, errors, kueue, muster, raw
from muster.api.objects import Object, view_of
from muster.api.raw import Document
from muster.engines import pod_documents
from muster.engines.protocol import Request
from muster.engines.sizing import Auxiliary, Ground, Shape, pools, shape
from muster.testing.builders import NodeBuilder, a_node
from muster.testing.engines import a_request


def a_queue(name: str = "default", covered: tuple[str, ...] = (), *flavors: str) -> kueue.ClusterQueue:
    quotas = [
        {"name": flavor, "resources": [{"name": resource, "nominalQuota": "8"} for resource in covered]}
        for flavor in flavors
    ]
    groups = [{"coveredResources": list(covered), "flavors": quotas}] if flavors else []
    document: Document = {"metadata": {"name": name}, "spec": {"resourceGroups": groups}}
    return Object(kueue.CLUSTER_QUEUE, raw.encode(document)).read(kueue.ClusterQueue)


def a_flavor(name: str, **labels: str) -> kueue.ResourceFlavor:
    document: Document = {"metadata": {"name": name}, "spec": {"nodeLabels": labels}}
    return Object(kueue.RESOURCE_FLAVOR, raw.encode(document)).read(kueue.ResourceFlavor)


def a_ground(*nodes: NodeBuilder, queues: tuple[kueue.ClusterQueue, ...] = (a_queue(),)) -> Ground:
    flavors = {found.metadata.name: found for found in (a_flavor("fast", kind="fast"), a_flavor("any"))}
    read = [Object(core.NODE, raw.encode(node.document())).read(core.Node) for node in nodes]
    return Ground(queues, flavors, read)


def of(request: Request, ground: Ground) -> Shape:
    return shape(request, ground, Auxiliary())


TWO = a_ground(a_node("a").cpu(16).gpus(4), a_node("b").cpu(16).gpus(4))


@pytest.mark.parametrize(
    ("slots", "pods", "each"), [(1, 1, "1"), (4, 1, "4"), (6, 2, "3"), (8, 2, "4"), (5, 5, "1"), (16, 4, "4")]
)
def test_as_few_equal_pods_as_nodes_can_hold(slots: int, pods: int, each: str) -> None:
    found = of(a_request(slots=slots), TWO)
    assert (found.pods, found.requests, found.limits) == (pods, {"nvidia.com/gpu": each}, {"nvidia.com/gpu": each})
    assert bool(found.caveats) == (slots > 8)


def test_without_gpus_a_slot_is_a_cpu() -> None:
    found = of(a_request(slots=2), a_ground(a_node("a").cpu("2500m")))
    assert (found.requests, found.limits) == ({"cpu": "2"}, {})
    assert [(pool.slot_resource, pool.slots) for pool in pools(a_ground(a_node("a").cpu("2500m")))] == [("cpu", 2)]


def test_a_task_without_slots_asks_for_a_little_of_what_its_queue_counts() -> None:
    assert of(a_request(), TWO).requests == {"cpu": "100m", "memory": "128Mi"}
    counted = a_ground(a_node("a").gpus(1), queues=(a_queue("default", ("nvidia.com/gpu", "cpu"), "any"),))
    assert of(a_request(), counted).requests == {"cpu": "100m"}


def test_a_pool_has_the_nodes_of_its_flavors() -> None:
    ground = a_ground(
        a_node("a").cpu(2).label("kind", "fast"),
        a_node("b").cpu(4),
        queues=(a_queue("quick", ("cpu",), "fast"), a_queue()),
    )
    assert {pool.name: (pool.nodes, pool.slots) for pool in pools(ground)} == {
        "quick": (("a",), 2),
        "default": (("a", "b"), 6),
    }


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (a_request(slots=5, is_single_node=True), "the largest of pool"),
        (a_request(slots=6, slots_per_pod=4), "a multiple of"),
        (a_request(slots=-1), "greater than or equal to 0"),
        (a_request(slots=1, slots_per_pod=0), "max_slots_per_pod"),
    ],
)
def test_what_can_never_run_is_refused(request_: Request, told: str) -> None:
    with pytest.raises(errors.Invalid, match=told):
        of(request_, TWO)
    with pytest.raises(errors.NotFound, match="there are: default"):
        of(a_request(pool="nowhere"), TWO)


def test_an_empty_pool_takes_what_it_may_have_one_day() -> None:
    found = of(a_request(slots=64, is_single_node=True), a_ground())
    assert (found.pods, list(found.caveats)) == (1, ["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"])


def test_the_objects_of_a_request_hold_its_secrets_in_one_place_only() -> None:
    asked = a_request(slots=2, priority=40, owner="ann")
    made = pod_documents.allocation(asked, of(asked, TWO), {"DET_SESSION_TOKEN": "hush"})
    assert "hush" not in str(made)
    muster.ALLOCATION.default(made)
    assert not muster.ALLOCATION.validate(view_of(muster.ALLOCATION, made))
    container = made["spec"]["template"]["spec"]["containers"][0]
    env = {variable["name"]: variable for variable in container["env"]}
    reference = env["DET_SESSION_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert (reference, env["DET_SLOT_IDS"]["value"]) == ({"name": "t.1", "key": "DET_SESSION_TOKEN"}, "[0,1]")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert made["metadata"]["annotations"] == {"volcano.sh/preemptable": "false"}
    secret = pod_documents.secret(asked, {"DET_SESSION_TOKEN": "hush"})
    assert base64.b64decode(secret["data"]["DET_SESSION_TOKEN"]) == b"hush"
    assert pod_documents.priority_class(40)["value"] == 2
    assert pod_documents.priority_class(42)["value"] == 0


def test_what_the_template_asks_for_itself_stays() -> None:
    template: Document = {
        "spec": {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "3"}}}]}
    }
    asked = a_request(template=template)
    made = pod_documents.allocation(asked, of(asked, TWO), {})
    resources = made["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "3", "memory": "128Mi"}}
