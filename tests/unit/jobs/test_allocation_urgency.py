"""The pods of an allocation say how urgent it is, also when that changes while they wait."""

import msgspec

from muster.api import core, muster
from muster.api.meta import Instant
from muster.api.muster.names import QUEUE_PRIORITY
from muster.api.raw import Document
from muster.cluster.state import ClusterState
from muster.jobs.allocations import Seen, make_pods, plan
from muster.placement.plugins.priority_sort import PrioritySort


def an_allocation(priority: int | None) -> Document:
    containers = [{"name": "main", "image": "x"}]
    spec = {"taskId": "t", "taskType": "COMMAND", "pods": 1, "template": {"spec": {"containers": containers}}}
    if priority is not None:
        spec["priority"] = priority
    return {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "spec": spec, "status": {"phase": "Pending"}}


def seen(priority: int | None, pods: list[Document]) -> Seen:
    document = an_allocation(priority)
    found = [msgspec.convert(pod, core.Pod) for pod in pods]
    return Seen(msgspec.convert(document, muster.Allocation), document, found)


def made(priority: int | None, **spec: str) -> Document:
    document = an_allocation(priority)
    (pod,) = make_pods(msgspec.convert(document, muster.Allocation), document, [0])
    return {**pod, "metadata": {**pod["metadata"], "uid": "p"}, "spec": {**pod["spec"], **spec}}


def test_a_pod_is_made_with_the_urgency_of_its_allocation() -> None:
    assert made(1)["metadata"]["annotations"][QUEUE_PRIORITY] == "41"
    assert made(99)["metadata"]["annotations"][QUEUE_PRIORITY] == "-57"
    assert QUEUE_PRIORITY not in made(42)["metadata"]["annotations"]
    assert QUEUE_PRIORITY not in made(None)["metadata"]["annotations"]


def test_it_follows_while_the_pod_waits_and_only_then() -> None:
    now = Instant(0.0)
    assert [pod.metadata.name for pod in plan(seen(1, [made(42)]), now).reranked] == ["a-0"]
    assert [pod.metadata.name for pod in plan(seen(42, [made(1)]), now).reranked] == ["a-0"]
    assert plan(seen(1, [made(1)]), now).reranked == []
    assert not plan(seen(1, [made(42, nodeName="n")]), now).reranked


def test_the_scheduler_takes_the_more_urgent_first_among_equals() -> None:
    shapes = ClusterState().shapes
    pods = {priority: shapes.info(msgspec.convert(made(priority), core.Pod)) for priority in (1, 42, 99)}
    keys = [PrioritySort().sort_key(pods[priority], Instant(float(at))) for at, priority in enumerate((99, 42, 1))]
    assert sorted(keys) == keys[::-1]
