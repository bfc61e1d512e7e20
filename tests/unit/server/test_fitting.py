import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import quantity
from muster.server import fitting
from muster.server.fitting import Largest

NODES = {
    "cpu": Largest(quantity.parse("8"), "big"),
    "memory": Largest(quantity.parse("16Gi"), "big"),
    "nvidia.com/gpu": Largest(quantity.parse("2"), "gpus"),
}


def pod(containers=(), init=(), **spec) -> dict:
    return {"spec": {"containers": list(containers), "initContainers": list(init), **spec}}


def asks(**requests) -> dict:
    return {"resources": {"requests": {name.replace("_", "."): value for name, value in requests.items()}}}


def gpus(count) -> dict:
    return {"resources": {"limits": {"nvidia.com/gpu": count}}}


@pytest.mark.parametrize(
    ("sentence", "document", "fields"),
    [
        ("fits", pod([asks(cpu="8", memory="16Gi")]), []),
        ("too much of one", pod([asks(cpu="8001m")]), ["spec.containers[0].resources.requests[cpu]"]),
        (
            "too much of two",
            pod([asks(cpu="9", memory="17Gi")]),
            ["spec.containers[0].resources.requests[cpu]", "spec.containers[0].resources.requests[memory]"],
        ),
        (
            "containers add up, the largest is named",
            pod([asks(cpu="3"), asks(cpu="6")]),
            ["spec.containers[1].resources.requests[cpu]"],
        ),
        ("init containers do not add up", pod([asks(cpu="6")], init=[asks(cpu="8")]), []),
        (
            "one init container is too large",
            pod([asks(cpu="6")], init=[asks(cpu="9")]),
            ["spec.initContainers[0].resources.requests[cpu]"],
        ),
        (
            "sidecars add up",
            pod([asks(cpu="6")], init=[asks(cpu="3") | {"restartPolicy": "Always"}]),
            ["spec.containers[0].resources.requests[cpu]"],
        ),
        (
            "overhead counts",
            pod([asks(cpu="8")], overhead={"cpu": "1"}),
            ["spec.containers[0].resources.requests[cpu]"],
        ),
        ("limits are requests", pod([gpus(4)]), ["spec.containers[0].resources.limits[nvidia.com/gpu]"]),
        (
            "a resource that nobody has",
            pod([asks(example_com="1")]),
            ["spec.containers[0].resources.requests[example.com]"],
        ),
        ("none of a resource that nobody has", pod([asks(example_com="0")]), []),
        ("no requests", pod([{}]), []),
        ("wrong shapes are left to validation", {"spec": {"containers": {"a": 1}, "initContainers": [None, 3]}}, []),
        ("wrong amounts are left to validation", pod([asks(cpu="many", memory=True)]), []),
    ],
)
def test_what_exceeds_every_node_is_named(sentence, document, fields):
    assert [problem.path for problem in fitting.excesses(document, NODES)] == fields


def test_the_message_says_what_was_asked_what_there_is_and_what_to_do():
    (problem,) = fitting.excesses(pod([gpus(8)]), NODES)
    for part in ("asks for 8 nvidia.com/gpu", '"gpus", has 2', "ask for less", fitting.WAIT_FOR_NODES):
        assert part in problem.message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_documents_of_any_shape_pass_without_a_failure(value):
    for document in (
        {"spec": value},
        {"spec": {"containers": value}},
        {"spec": {"containers": [{"resources": value}]}},
    ):
        fitting.excesses(document, NODES)
