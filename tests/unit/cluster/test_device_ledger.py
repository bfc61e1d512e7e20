from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from tests.unit.placement.gpu_worlds import gpu_node, gpu_pod

from muster.api import core, objects
from muster.cluster.amounts import GPU, GPU_MILLI, WHOLE_GPU
from muster.cluster.devices import Holding, Wants, choose, format_holdings, parse_holdings, wants
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState

WHOLES, SHARES = st.integers(0, 3), st.sampled_from((0, 0, 100, 250, 400, 500, 600, 750, 1000))


@given(st.lists(st.integers(0, WHOLE_GPU), max_size=8), WHOLES, SHARES.filter(lambda share: share < WHOLE_GPU))
def test_a_choice_fits_and_none_is_made_only_where_nothing_does(free: list[int], whole: int, share: int) -> None:
    chosen = choose(free, Wants(whole, share))
    unused = [device for device, milli in enumerate(free) if milli == WHOLE_GPU]
    opened = [milli for milli in free if share <= milli < WHOLE_GPU]
    assert (chosen is not None) == (len(unused) >= whole and (not share or bool(opened) or len(unused) > whole))
    if chosen is None:
        return
    assert len({one.device for one in chosen}) == len(chosen) == whole + bool(share)
    assert all(free[one.device] >= one.milli for one in chosen)
    assert all(free[one.device] == WHOLE_GPU for one in chosen if one.milli == WHOLE_GPU)
    if share and opened:
        assert free[chosen[-1].device] == min(opened), "the GPU in use that is filled best"


@given(
    st.lists(st.builds(Holding, st.integers(0, 255), st.integers(1, WHOLE_GPU)), min_size=1, unique_by=lambda h: h[0])
)
def test_what_is_written_is_read_again(holdings: list[Holding]) -> None:
    assert parse_holdings(format_holdings(holdings)) == tuple(holdings)


@pytest.mark.parametrize("text", ["", "a", "1,", "1,1", "1:", "1:0", "1:1001", "-1", "256", "1:500:2", "٣", "1e3"])
def test_text_that_names_no_devices_is_not_read(text: str) -> None:
    assert parse_holdings(text) is None


def test_the_form_is_the_documented_one() -> None:
    assert format_holdings([Holding(0, 1000), Holding(3, 1000)]) == "0,3"
    assert format_holdings([Holding(2, 500)]) == "2:500"


@dataclass
class Known:
    placed: dict[str, tuple[PodInfo, str]] = field(default_factory=dict)


class LedgerMachine(RuleBasedStateMachine):
    """Pods come where they fit, are told their devices, come again with what they were told, and go."""

    pods = Bundle("pods")

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ClusterState.of([gpu_node("a", 2), gpu_node("b", 4)])
        self.known = Known()
        self.number = 0

    @rule(target=pods, whole=WHOLES, share=SHARES, where=st.sampled_from("ab"))
    def place(self, whole: int, share: int, where: str) -> Any:
        self.number += 1
        pod = gpu_pod(self.cluster, f"p{self.number}", whole, share)
        free = self.cluster.devices.free_at(self.cluster.slots[where])
        if choose(free, wants(pod)) is None:
            return multiple()
        self.cluster.assign(pod, where)
        self.known.placed[pod.uid] = (pod, where)
        return pod.uid

    @rule(uid=pods)
    def tell_and_see_it_again(self, uid: str) -> None:
        if uid not in self.known.placed:
            return
        pod, where = self.known.placed[uid]
        slot = self.cluster.slots[where]
        told = self.cluster.devices.annotation(pod, slot)
        wanted = wants(pod)
        share = wanted.share
        whole = pod.needs.get(GPU, 0)
        again = gpu_pod(self.cluster, uid, whole, share or (WHOLE_GPU if wanted.whole > whole else 0), told)
        self.cluster.assign(again, where)
        self.known.placed[uid] = (again, where)
        assert self.cluster.devices.annotation(again, slot) == told

    @rule(uid=consumes(pods))
    def remove(self, uid: str) -> None:
        if self.known.placed.pop(uid, None):
            self.cluster.release(uid)

    @rule()
    def lose_a_node_and_get_it_back(self) -> None:
        slot = self.cluster.slots["a"]
        told = {
            uid: self.cluster.devices.annotation(pod, slot)
            for uid, (pod, where) in self.known.placed.items()
            if where == "a"
        }
        self.cluster.node_removed("a")
        self.cluster.node_changed(gpu_node("a", 2))
        after = self._holdings()
        assert all(format_holdings(after[uid]) == devices for uid, devices in told.items())

    def _holdings(self) -> dict[str, tuple[Holding, ...]]:
        slots = self.cluster.slots
        return {
            uid: self.cluster.devices.holdings(pod, slots[where]) for uid, (pod, where) in self.known.placed.items()
        }

    @invariant()
    def nobody_has_what_another_has(self) -> None:
        for name, slot in self.cluster.slots.items():
            used: dict[int, int] = {}
            whole: set[int] = set()
            for uid, holdings in self._holdings().items():
                pod, where = self.known.placed[uid]
                if where != name:
                    continue
                assert sum(one.milli for one in holdings) == wants(pod).whole * WHOLE_GPU + wants(pod).share
                for device, milli in holdings:
                    assert device not in whole, "a whole GPU is shared with nobody"
                    if milli == WHOLE_GPU:
                        assert device not in used
                        whole.add(device)
                    used[device] = used.get(device, 0) + milli
            assert all(milli <= WHOLE_GPU for milli in used.values())
            count = len(self.cluster.devices.free_at(slot))
            assert self.cluster.devices.free_at(slot) == [WHOLE_GPU - used.get(device, 0) for device in range(count)]
            column = self.cluster.devices.free(self.cluster.width)[:, slot]
            assert column[:count].tolist() == self.cluster.devices.free_at(slot)
            assert not column[count:].any()


LedgerMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestLedger = LedgerMachine.TestCase


def test_what_an_annotation_says_moves_those_whom_nobody_told() -> None:
    cluster = ClusterState.of([gpu_node("n", 3)])
    slot = cluster.slots["n"]
    loose, told = gpu_pod(cluster, "loose", share=600), gpu_pod(cluster, "told", whole=1)
    cluster.assign(loose, "n")
    cluster.assign(told, "n")
    assert cluster.devices.annotation(told, slot) == "0"
    assert cluster.devices.holdings(loose, slot) == (Holding(2, 600),)
    cluster.assign(gpu_pod(cluster, "stated", whole=1, devices="2"), "n")
    assert cluster.devices.holdings(loose, slot) == (Holding(1, 600),)
    assert cluster.devices.annotation(told, slot) == "0"


def test_a_pod_keeps_the_devices_it_was_told_while_its_annotation_is_on_its_way() -> None:
    cluster = ClusterState.of([gpu_node("n", 2)])
    slot = cluster.slots["n"]
    cluster.assign(gpu_pod(cluster, "first", share=700), "n")
    second = gpu_pod(cluster, "second", share=500)
    cluster.assign(second, "n")
    assert cluster.devices.annotation(second, slot) == "0:500"
    cluster.release("first")
    cluster.assign(gpu_pod(cluster, "third", share=400), "n")
    cluster.release("third")
    cluster.assign(gpu_pod(cluster, "second", share=500), "n")
    assert cluster.devices.annotation(second, slot) == "0:500"


def test_devices_of_a_pod_that_gave_up_its_place_go_to_others() -> None:
    cluster = ClusterState.of([gpu_node("n", 2)])
    slot = cluster.slots["n"]
    first = gpu_pod(cluster, "first", whole=1)
    cluster.assign(first, "n")
    assert cluster.devices.annotation(first, slot) == "0"
    cluster.release("first")
    cluster.devices.forget("first")
    cluster.assign(gpu_pod(cluster, "second", whole=1, devices="0"), "n")
    cluster.assign(first, "n")
    assert cluster.devices.annotation(first, slot) == "1"


def test_too_much_in_all_leaves_nothing_free_but_breaks_nothing() -> None:
    cluster = ClusterState.of([gpu_node("n", 1)])
    for name in ("a", "b"):
        cluster.assign(gpu_pod(cluster, name, whole=1, devices="0"), "n")
    assert cluster.devices.free_at(cluster.slots["n"]) == [0]
    cluster.release("a")
    assert cluster.devices.free_at(cluster.slots["n"]) == [0]
    cluster.release("b")
    assert cluster.devices.free_at(cluster.slots["n"]) == [WHOLE_GPU]


def test_pods_that_came_before_their_node_get_its_gpus_the_largest_first() -> None:
    cluster = ClusterState()
    small, large = gpu_pod(cluster, "small", share=300), gpu_pod(cluster, "large", whole=2)
    cluster.assign(small, "n")
    cluster.assign(large, "n")
    cluster.node_changed(gpu_node("n", 2))
    slot = cluster.slots["n"]
    assert cluster.devices.annotation(large, slot) == "0,1"
    assert cluster.devices.holdings(small, slot) == ()
    cluster.node_changed(gpu_node("n", 3))
    assert cluster.devices.annotation(small, slot) == "2:300"


def test_a_node_that_claims_absurdly_many_gpus_costs_no_memory() -> None:
    cluster = ClusterState.of([gpu_node("n", 10**12)])
    assert cluster.devices.free(cluster.width).shape[0] <= 256


def test_a_share_that_makes_no_sense_is_no_need() -> None:
    cluster = ClusterState()
    for text in ("", "0", "1001", "half", "-5", "5e2"):
        document = {"metadata": {"name": "p", "annotations": {GPU_MILLI: text}}}
        view = objects.view_of(core.POD, document)
        assert isinstance(view, core.Pod)
        info = cluster.shapes.info(view)
        assert GPU_MILLI not in info.needs
        assert info.shape.gpu_share == text
