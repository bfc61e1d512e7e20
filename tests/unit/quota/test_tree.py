"""The quota tree against a plain recomputation, and the worked examples of the specification."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.quota.amounts import FlavorResource
from muster.quota.tree import Node, Quota, QuotaTree

CPU = FlavorResource("default", "cpu")
GPU = FlavorResource("spot", "gpu")
WHATS = (CPU, GPU)


def example_1() -> QuotaTree:
    tree = QuotaTree()
    tree.set_queue("a", "c", {CPU: Quota(10, lending_limit=4)})
    tree.set_queue("b", "c", {CPU: Quota(10)})
    tree.settle()
    tree.queues["a"].add(CPU, 7)
    return tree


def example_2() -> QuotaTree:
    tree = QuotaTree()
    tree.set_queue("a", "c", {CPU: Quota(10, lending_limit=4)})
    tree.set_queue("b", "c", {CPU: Quota(10, borrowing_limit=2)})
    tree.settle()
    tree.queues["a"].add(CPU, 7)
    tree.queues["b"].add(CPU, 11)
    return tree


def test_what_is_not_lent_is_not_seen_by_the_cohort() -> None:
    tree = example_1()
    a, b, c = tree.queues["a"], tree.queues["b"], tree.cohorts["c"]
    assert a.guaranteed[CPU] == 6
    assert c.owned(CPU) == 14
    assert c.used(CPU) == 1
    assert (a.available(CPU), b.available(CPU)) == (13, 13)
    assert (a.potentially_available(CPU), b.potentially_available(CPU)) == (20, 14)


def test_a_borrowing_limit_caps_what_the_cohort_has() -> None:
    tree = example_2()
    assert tree.cohorts["c"].used(CPU) == 12
    assert tree.cohorts["c"].available(CPU) == 2
    assert tree.queues["b"].available(CPU) == 1


def test_the_lender_of_a_flat_cohort_is_one_level_up() -> None:
    assert example_1().queues["a"].borrow_height(CPU, 5) == (1, False)


@pytest.mark.parametrize(
    ("more", "height"),
    [(4, (0, True)), (5, (1, True)), (9, (2, False)), (1000, (2, False))],
    ids=["within its own", "its cohort lends", "the root lends", "nobody could lend as much"],
)
def test_how_high_up_the_lender_is(more: int, height: tuple[int, bool]) -> None:
    tree = QuotaTree()
    tree.set_cohort("root", "", {CPU: Quota(100)})
    tree.set_cohort("left", "root", {CPU: Quota(4)})
    tree.set_queue("q", "left", {CPU: Quota(4)})
    tree.settle()
    assert tree.queues["q"].borrow_height(CPU, more) == height


def test_a_queue_without_cohort_borrows_from_nobody() -> None:
    tree = QuotaTree()
    tree.set_queue("q", "", {CPU: Quota(4)})
    tree.settle()
    assert tree.queues["q"].borrow_height(CPU, 9) == (0, False)
    assert tree.queues["q"].available(CPU) == 4


def test_a_quota_lowered_below_its_usage_leaves_less_than_nothing() -> None:
    tree = QuotaTree()
    tree.set_queue("q", "", {CPU: Quota(4)})
    tree.settle()
    tree.queues["q"].add(CPU, 4)
    tree.set_queue("q", "", {CPU: Quota(1)})
    tree.settle()
    assert tree.queues["q"].available(CPU) == -3
    assert tree.queues["q"].borrows(CPU)


def test_what_could_be_lent_follows_a_changed_quota() -> None:
    tree = example_1()
    assert tree.cohorts["c"].lendable() == {"cpu": 14}
    tree.set_queue("b", "c", {CPU: Quota(20)})
    tree.settle()
    assert tree.cohorts["c"].lendable() == {"cpu": 24}


def test_cohorts_in_a_circle_admit_nothing_and_others_go_on() -> None:
    tree = QuotaTree()
    tree.set_cohort("x", "y", {})
    tree.set_cohort("y", "x", {})
    tree.set_queue("q", "x", {CPU: Quota(4)})
    tree.set_queue("free", "z", {CPU: Quota(4)})
    tree.settle()
    assert tree.is_in_cycle("q")
    assert not tree.is_in_cycle("free")
    assert tree.queues["free"].available(CPU) == 4


def test_a_removed_cohort_that_is_still_named_has_no_quota_of_its_own() -> None:
    tree = QuotaTree()
    tree.set_cohort("c", "", {CPU: Quota(5)})
    tree.set_queue("q", "c", {CPU: Quota(4)})
    tree.settle()
    assert tree.queues["q"].available(CPU) == 9
    tree.remove_cohort("c")
    tree.settle()
    assert tree.queues["q"].available(CPU) == 4
    assert tree.queues["q"].path() == "/c/q"


# Against a plain recomputation

limits = st.none() | st.integers(0, 12)
quotas = st.builds(Quota, st.integers(0, 12), limits, limits)
quotas_by_what = st.fixed_dictionaries({}, optional={what: quotas for what in WHATS})


@dataclass(frozen=True, slots=True)
class Step:
    queue: int
    what: FlavorResource
    amount: int


steps = st.lists(st.builds(Step, st.integers(0, 9), st.sampled_from(WHATS), st.integers(0, 15)), max_size=20)


@st.composite
def trees(draw: Callable) -> QuotaTree:
    tree = QuotaTree()
    cohorts = draw(st.integers(0, 4))
    for number in range(cohorts):
        above = draw(st.sampled_from(["", *(f"c{other}" for other in range(number))]))
        tree.set_cohort(f"c{number}", above, draw(quotas_by_what))
    for number in range(draw(st.integers(1, 5))):
        above = draw(st.sampled_from(["", *(f"c{other}" for other in range(cohorts)), "implicit"]))
        tree.set_queue(f"q{number}", above, draw(quotas_by_what), Fraction(draw(st.integers(0, 3))))
    tree.settle()
    return tree


def queue_of(tree: QuotaTree, step: Step) -> Node:
    listed = list(tree.queues.values())
    return listed[step.queue % len(listed)]


def plain_subtree(node: Node, what: FlavorResource) -> int:
    own = node.quotas[what].nominal if what in node.quotas else 0
    return own + sum(plain_subtree(child, what) - plain_guaranteed(child, what) for child in node.children)


def plain_guaranteed(node: Node, what: FlavorResource) -> int:
    limit = node.quotas[what].lending_limit if what in node.quotas else None
    return 0 if limit is None else max(0, plain_subtree(node, what) - limit)


def plain_usage(node: Node, what: FlavorResource) -> int:
    if node.is_queue:
        return node.usage.get(what, 0)
    return sum(max(0, plain_usage(child, what) - plain_guaranteed(child, what)) for child in node.children)


def plain_available(node: Node, what: FlavorResource) -> int:
    owned, used, kept = plain_subtree(node, what), plain_usage(node, what), plain_guaranteed(node, what)
    if node.parent is None:
        return owned - used
    above = plain_available(node.parent, what)
    limit = node.quotas[what].borrowing_limit if what in node.quotas else None
    if limit is not None:
        above = min(above, (owned - kept) - max(0, used - kept) + limit)
    return max(0, kept - used) + above


def plain_potential(node: Node, what: FlavorResource) -> int:
    owned = plain_subtree(node, what)
    if node.parent is None:
        return owned
    found = plain_guaranteed(node, what) + plain_potential(node.parent, what)
    limit = node.quotas[what].borrowing_limit if what in node.quotas else None
    return found if limit is None else min(found, owned + limit)


def usages(tree: QuotaTree) -> dict[tuple[bool, str], dict[FlavorResource, int]]:
    nodes = (*tree.queues.values(), *tree.cohorts.values())
    return {(node.is_queue, node.name): {what: node.used(what) for what in WHATS} for node in nodes}


@given(trees(), steps)
def test_numbers_kept_up_to_date_are_those_of_a_recomputation(tree: QuotaTree, taken: list[Step]) -> None:
    for step in taken:
        queue_of(tree, step).add(step.what, step.amount)
    for node in (*tree.queues.values(), *tree.cohorts.values()):
        for what in WHATS:
            assert node.used(what) == plain_usage(node, what)
            assert node.owned(what) == plain_subtree(node, what)
            assert node.available(what) == plain_available(node, what)
            assert node.potentially_available(what) == plain_potential(node, what)


@given(trees(), steps, st.randoms(use_true_random=False))
def test_taking_back_in_any_order_leaves_what_there_was(tree: QuotaTree, taken: list[Step], chance) -> None:
    kept, tried = taken[: len(taken) // 2], taken[len(taken) // 2 :]
    for step in kept:
        queue_of(tree, step).add(step.what, step.amount)
    before = usages(tree)
    for step in tried:
        queue_of(tree, step).add(step.what, step.amount)
    chance.shuffle(tried)
    for step in tried:
        queue_of(tree, step).remove(step.what, step.amount)
    assert usages(tree) == before


@given(trees(), steps, st.integers(0, 9), st.sampled_from(WHATS))
def test_what_is_removed_frees_at_most_itself(
    tree: QuotaTree, taken: list[Step], asked: int, what: FlavorResource
) -> None:
    """What the search for victims relies on to skip measuring."""
    for step in taken:
        queue_of(tree, step).add(step.what, step.amount)
    queue = list(tree.queues.values())[asked % len(tree.queues)]
    for step in taken:
        before = queue.available(what)
        queue_of(tree, step).remove(step.what, step.amount)
        freed = queue.available(what) - before
        assert 0 <= freed <= (step.amount if step.what == what else 0)


@given(trees(), steps)
def test_a_changed_quota_counts_usage_anew(tree: QuotaTree, taken: list[Step]) -> None:
    for step in taken:
        queue_of(tree, step).add(step.what, step.amount)
    name, node = next(iter(tree.queues.items()))
    parent = node.parent.name if node.parent is not None else ""
    tree.set_queue(name, parent, {CPU: Quota(3, lending_limit=1)}, node.weight)
    tree.settle()
    for cohort in tree.cohorts.values():
        assert cohort.used(CPU) == plain_usage(cohort, CPU)
