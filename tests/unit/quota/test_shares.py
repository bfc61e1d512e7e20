"""Dominant resource shares: the worked example, ties, weights, and a plain recomputation."""

from collections.abc import Mapping
from fractions import Fraction
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from muster.quota.amounts import MOST, FlavorResource
from muster.quota.shares import Share, share_of
from muster.quota.tree import Node, Quota, QuotaTree

CPU = FlavorResource("default", "cpu")
SPOT_CPU = FlavorResource("spot", "cpu")
GPU = FlavorResource("default", "gpu")


def flat(weight: int = 1, **used: int) -> Node:
    """A queue with 10 cpu and 10 gpu beside one with 30 cpu and 10 gpu to lend."""
    tree = QuotaTree()
    tree.set_queue("q", "c", {CPU: Quota(10), GPU: Quota(10)}, Fraction(weight))
    tree.set_queue("lender", "c", {CPU: Quota(30), GPU: Quota(10)})
    tree.settle()
    queue = tree.queues["q"]
    queue.add_all({CPU: used.get("cpu", 0), GPU: used.get("gpu", 0)})
    return queue


def test_the_worked_example() -> None:
    tree = QuotaTree()
    tree.set_queue("a", "c", {CPU: Quota(10, lending_limit=4)})
    tree.set_queue("b", "c", {CPU: Quota(10, borrowing_limit=2)})
    tree.settle()
    tree.queues["a"].add(CPU, 7)
    tree.queues["b"].add(CPU, 11)
    share = share_of(tree.queues["b"])
    assert share.value == 1000 / 14
    assert share.shown == 72
    assert share.resource == "cpu"


def test_the_resource_of_which_the_largest_part_is_borrowed_counts() -> None:
    share = share_of(flat(cpu=14, gpu=14))
    assert (share.resource, share.value) == ("gpu", 4 * 1000 / 20)
    assert share.borrows_any([CPU])


def test_of_two_alike_the_first_name_is_told() -> None:
    assert share_of(flat(cpu=14, gpu=12)).resource == "cpu"


def test_who_borrows_nothing_has_no_share() -> None:
    share = share_of(flat(cpu=10))
    assert share == Share()
    assert not share.borrowed


def test_a_root_has_no_share_whatever_it_uses() -> None:
    root = flat(cpu=1000).root()
    assert share_of(root) == Share()


def test_weight_divides() -> None:
    assert share_of(flat(weight=2, cpu=14)).value == share_of(flat(cpu=14)).value / 2


def test_without_weight_any_borrowing_is_more_than_all_others() -> None:
    light, lighter = share_of(flat(weight=0, cpu=11)), share_of(flat(weight=0, cpu=12))
    assert light.value == inf
    assert light.shown == MOST
    assert share_of(flat(cpu=40)) < light < lighter
    assert share_of(flat(weight=0, cpu=10)) == Share()


def test_more_is_counted_on_top_and_less_taken_off() -> None:
    assert share_of(flat(cpu=10), {CPU: 4}) == share_of(flat(cpu=14))
    assert share_of(flat(cpu=14), {CPU: -4}) == Share()


amounts = st.integers(0, 30)


@given(amounts, amounts, amounts, st.integers(1, 4), st.dictionaries(st.sampled_from([CPU, SPOT_CPU, GPU]), amounts))
def test_as_recomputed(cpu: int, spot: int, gpu: int, weight: int, more: Mapping[FlavorResource, int]) -> None:
    tree = QuotaTree()
    tree.set_cohort("root", "", {GPU: Quota(7)})
    tree.set_cohort("c", "root", {CPU: Quota(3)})
    tree.set_queue("q", "c", {CPU: Quota(10), SPOT_CPU: Quota(2), GPU: Quota(5)}, Fraction(weight))
    tree.set_queue("lender", "root", {CPU: Quota(9), SPOT_CPU: Quota(4)})
    tree.settle()
    queue = tree.queues["q"]
    queue.add_all({CPU: cpu, SPOT_CPU: spot, GPU: gpu})
    beyond = {what: max(0, queue.used(what) + more.get(what, 0) - queue.nominal(what)) for what in (CPU, SPOT_CPU, GPU)}
    borrowed = {"cpu": beyond[CPU] + beyond[SPOT_CPU], "gpu": beyond[GPU]}
    lendable = {"cpu": 10 + 3 + 9 + 2 + 4, "gpu": 5 + 7}
    found = share_of(queue, more)
    assert found.value == max(1000 * borrowed[name] / lendable[name] for name in borrowed) / weight
    assert found.borrowed == {what for what, amount in beyond.items() if amount}
