"""The engine and Volcano's queues: their pods go where the queue is for, and wait until it is for something."""

from typing import Any

from muster.api import core, raw, volcano
from muster.api.kinds import Kind
from muster.api.objects import Object
from muster.cluster.queues import NODE_GROUP
from muster.placement.engine import Engine, default_engine
from muster.placement.scheduling import Decision
from muster.testing.builders import Builder, a_node, a_pod, a_pod_group


def an_object(kind: Kind, document: dict[str, Any]) -> Object:
    document["metadata"].setdefault("uid", f"uid-of-{document['metadata']['name']}")
    return Object(kind, raw.encode(document))


def a_queue(*groups: str, allocated: str = "0") -> Object:
    near = {"requiredDuringSchedulingIgnoredDuringExecution": list(groups)}
    return an_object(
        volcano.QUEUE,
        {
            "metadata": {"name": "research"},
            "spec": {"affinity": {"nodeGroupAffinity": near}} if groups else {},
            "status": {"allocated": {"cpu": allocated}},
        },
    )


def an_engine(queue: Object) -> Engine:
    engine = default_engine()
    nodes: list[Builder] = [a_node(f"n-{group}").cpu(8).label(NODE_GROUP, group) for group in ("a", "b")]
    for node in nodes:
        engine.take(None, an_object(core.NODE, node.document()), 0.0)
    engine.take(None, queue, 0.0)
    group = a_pod_group("gang").min_member(1).set("research", "spec", "queue").document()
    engine.take(None, an_object(volcano.POD_GROUP, group), 0.0)
    return engine


def placed(engine: Engine, now: float) -> list[str]:
    found = []
    while (decision := engine.step(now)) is not None:
        assert isinstance(decision, Decision)
        found += [one.node for one in decision.assigned]
    return found


def add_pod(engine: Engine, name: str = "p") -> None:
    pod = a_pod(name).cpu(1).in_group("gang").document()
    engine.take(None, an_object(core.POD, pod), 0.0)


def test_pods_go_to_the_nodes_that_their_queue_is_for() -> None:
    engine = an_engine(a_queue("b"))
    add_pod(engine)
    assert placed(engine, 0.0) == ["n-b"]


def test_a_queue_that_comes_to_be_for_a_group_wakes_its_pods() -> None:
    queue = a_queue()
    engine = an_engine(queue)
    add_pod(engine)
    assert placed(engine, 0.0) == []
    engine.take(queue, a_queue(allocated="3"), 5.0)
    assert placed(engine, 30.0) == []
    engine.take(queue, a_queue("a"), 30.0)
    assert placed(engine, 60.0) == ["n-a"]


def test_what_a_queue_that_has_gone_said_counts_no_more() -> None:
    queue = a_queue("a")
    engine = an_engine(queue)
    engine.take(queue, None, 0.0)
    add_pod(engine)
    assert placed(engine, 0.0) == []


def test_pods_that_are_alike_but_for_their_queue_are_told_apart() -> None:
    engine = an_engine(a_queue("b"))
    for name, queue in (("teaching", "teaching"), ("more", "research")):
        group = a_pod_group(name).min_member(1).set(queue, "spec", "queue").document()
        engine.take(None, an_object(volcano.POD_GROUP, group), 0.0)
        engine.take(None, an_object(core.POD, a_pod(f"of-{name}").cpu(1).in_group(name).document()), 0.0)
    add_pod(engine)
    assert sorted(placed(engine, 0.0)) == ["n-b", "n-b"]
