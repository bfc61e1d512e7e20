"""Which pods are not to be evicted for others, and that the engine heeds it."""

import pytest

from muster.api import core, raw
from muster.api.objects import Object
from muster.placement.engine import default_engine
from muster.placement.preempting import is_kept
from muster.placement.scheduling import Decision
from muster.testing.builders import PodBuilder, a_node, a_pod


def view(pod: PodBuilder) -> core.Pod:
    return stored(pod).read(core.Pod)


def stored(pod: PodBuilder) -> Object:
    document = pod.document()
    document["metadata"].setdefault("uid", document["metadata"]["name"])
    return Object(core.POD, raw.encode(document))


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (a_pod("p"), False),
        (a_pod("p").annotation("volcano.sh/preemptable", "false"), True),
        (a_pod("p").annotation("volcano.sh/preemptable", "true"), False),
        (a_pod("p", "kube-system"), True),
        (a_pod("p").set("system-node-critical", "spec", "priorityClassName"), True),
        (a_pod("p", "kube-system").set(2_000_000_000, "spec", "priority"), False),
    ],
    ids=["any", "marked", "marked otherwise", "of the system", "critical", "important enough by itself"],
)
def test_who_is_kept(pod: PodBuilder, expected: bool) -> None:
    assert is_kept(view(pod)) is expected


def test_nobody_takes_the_place_of_the_systems_pods() -> None:
    engine = default_engine()
    for name in ("n1", "n2"):
        engine.take(None, Object(core.NODE, raw.encode(a_node(name).cpu(1).document())), 0.0)
    engine.take(None, stored(a_pod("dns", "kube-system").cpu(1).on_node("n1").phase("Running")), 0.0)
    engine.take(None, stored(a_pod("other").cpu(1).on_node("n2").phase("Running")), 0.0)
    engine.take(None, stored(a_pod("new").cpu(1).set(1000, "spec", "priority")), 0.0)
    decision = engine.step(0.0)
    assert isinstance(decision, Decision)
    assert [victim.key.name for victim in decision.victims] == ["other"]
