"""The order of fair sharing, against one that works out everything anew for each turn."""

from hypothesis import given
from hypothesis import settings as testing
from hypothesis import strategies as st
from tests.unit.quota.cycle_worlds import World

from muster.quota.amounts import FlavorResource
from muster.quota.entries import Entry
from muster.quota.gates import Gates
from muster.quota.shares import share_of
from muster.quota.state import QueueState
from muster.quota.tournament import Rank, Tournament, rank
from muster.quota.tree import Node, Quota, QuotaTree
from muster.quota.workloads import Usage

CPU = FlavorResource("default", "cpu")
GATES = Gates.default()


def plain_order(entries: list[Entry]) -> list[str]:
    """As Kueue does it: every turn, every share."""
    left, order = list(entries), []
    while left:
        first = left[0]
        assert first.queue is not None
        root = first.queue.node.root()
        if first.queue.node.parent is None:
            winner = first
        else:
            winner = nominee(root, [entry for entry in left if node_of(entry).root() is root])
        left.remove(winner)
        order.append(winner.info.key)
        node_of(winner).add_all(winner.usage.quota)
    for entry in entries:
        node_of(entry).remove_all(entry.usage.quota)
    return order


def node_of(entry: Entry) -> Node:
    assert entry.queue is not None
    return entry.queue.node


def nominee(cohort: Node, entries: list[Entry]) -> Entry:
    best: tuple[Rank, Entry] | None = None
    for child in cohort.children:
        mine = [entry for entry in entries if child is node_of(entry) or child in node_of(entry).ancestors()]
        if not mine:
            continue
        chosen = mine[0] if child.is_queue else nominee(child, mine)
        node_of(chosen).add_all(chosen.usage.quota)
        found = rank(chosen.info, share_of(child), chosen.usage.quota, GATES)
        node_of(chosen).remove_all(chosen.usage.quota)
        if best is None or found < best[0]:
            best = found, chosen
    assert best is not None
    return best[1]


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[tuple[str, int, int]], list[int]]:
    queues = [
        (draw(st.sampled_from(["root", "left", "right", "deep"])), draw(st.integers(0, 5)), draw(st.integers(0, 6)))
        for _ in range(draw(st.integers(1, 7)))
    ]
    return queues, [draw(st.integers(1, 6)) for _ in queues]


@testing(max_examples=80)
@given(trees())
def test_the_order_is_that_of_a_plain_tournament(made: tuple[list[tuple[str, int, int]], list[int]]) -> None:
    queues, asked = made
    tree = QuotaTree()
    for name, parent in (("root", ""), ("left", "root"), ("right", "root"), ("deep", "left")):
        tree.set_cohort(name, parent, {CPU: Quota(2)})
    for number, (cohort, cpus, _) in enumerate(queues):
        tree.set_queue(f"q{number}", cohort, {CPU: Quota(cpus)})
    tree.settle()
    world = World()
    entries = []
    for number, ((_, _, used), wanted) in enumerate(zip(queues, asked, strict=True)):
        world.queue(f"q{number}", 1)
        node = tree.queues[f"q{number}"]
        node.add(CPU, used)
        key = world.workload(f"w{number}", f"q{number}", wanted, priority=number % 2)
        info = world.pending.get(key)
        assert info is not None
        queue = QueueState(world.state.queues[f"q{number}"].policy, node)
        entries.append(Entry(info, queue, usage=Usage({CPU: wanted})))

    wanted_order = plain_order(entries)
    found = []
    for entry in Tournament(entries, GATES):
        found.append(entry.info.key)
        node_of(entry).add_all(entry.usage.quota)

    assert found == wanted_order
