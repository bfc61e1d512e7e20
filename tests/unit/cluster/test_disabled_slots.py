"""Slots that are not to be used: what their annotation says, what it leaves of a node, and who is not given them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.gpu_worlds import gpu_pod

from muster.api import core, objects
from muster.api.muster.node_slots import DISABLED_SLOTS, format_disabled, left, parse_disabled
from muster.cluster.amounts import GPU, GPU_MILLI, WHOLE_GPU
from muster.cluster.state import ClusterState


@given(st.dictionaries(st.integers(0, 4095), st.booleans(), max_size=5))
def test_what_is_written_is_read_again(disabled: dict[int, bool]) -> None:
    assert parse_disabled(format_disabled(disabled)) == disabled


@pytest.mark.parametrize("text", [None, "", "x", "-1", "99999999999", "1:later", "٣", "1;2"])
def test_nonsense_disables_nothing(text: str | None) -> None:
    assert parse_disabled(text) == {}


def test_what_is_left_of_a_node() -> None:
    gpus = {"cpu": "8", GPU: "2", GPU_MILLI: "2000"}
    assert left(gpus, {}) == gpus
    assert left(gpus, {1: False, 7: False}) == {"cpu": "8", GPU: "1", GPU_MILLI: "1000"}
    assert left({"cpu": "3500m"}, {0: True, 3: False}) == {"cpu": "2500m"}


def a_node(disabled: str | None, allocatable: int) -> core.Node:
    annotations = {} if disabled is None else {DISABLED_SLOTS: disabled}
    document = {
        "metadata": {"name": "n", "annotations": annotations},
        "status": {"capacity": {GPU: "3"}, "allocatable": {"pods": "9", GPU: str(allocatable)}},
    }
    view = objects.view_of(core.NODE, document)
    assert isinstance(view, core.Node)
    return view


def test_a_disabled_gpu_is_chosen_for_nobody_and_what_runs_there_stays() -> None:
    cluster = ClusterState.of([a_node(None, 3)])
    cluster.assign(gpu_pod(cluster, "before", 1, devices="1"), "n")
    cluster.node_changed(a_node("0,1:drain", 1))
    assert cluster.devices.free_at(0) == [0, 0, WHOLE_GPU]
    assert cluster.devices.annotation(gpu_pod(cluster, "after", 1), 0) == "2"
    assert cluster.devices.holdings(gpu_pod(cluster, "many", 2), 0) == ()
    cluster.node_changed(a_node(None, 3))
    assert cluster.devices.free_at(0) == [WHOLE_GPU, 0, WHOLE_GPU]


def test_queue_priority_is_read_from_what_makes_sense() -> None:
    cluster = ClusterState()
    for text, found in (("41", 41), ("-57", -57), ("", 0), ("100", 0), ("x", 0), ("--1", 0)):
        document = {"metadata": {"name": "p", "annotations": {"muster.dev/queue-priority": text}}}
        assert cluster.shapes.info(msgspec.convert(document, core.Pod)).queue_priority == found
