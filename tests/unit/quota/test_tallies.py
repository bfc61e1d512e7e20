"""What queues hold, kept up with changes, against a plain count."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from muster.api import kueue
from muster.api.raw import Document
from muster.quota.amounts import FlavorResource
from muster.quota.settings import Settings
from muster.quota.tallies import Tallies, Tally

NAMES = ("a", "b", "c")
STATES = st.one_of(
    st.none(),  # it is gone
    st.tuples(
        st.sampled_from(("waits", "holds", "runs", "over")),
        st.sampled_from(("cq", "other")),
        st.sampled_from(("lq", "")),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
)


def a_workload(name: str, state: str, queue: str, local: str, count: int, done: int) -> Document:
    """`count` pods of 2 cores, of which some are done."""
    true = {"waits": [], "holds": ["QuotaReserved"], "runs": ["QuotaReserved", "Admitted"]}
    listed = true.get(state, ["QuotaReserved", "Admitted", "Finished"])
    given_ = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(2 * count)}, "count": count}
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queueName": local, "podSets": [{"name": "main", "count": count}]},
        "status": {
            "conditions": [{"type": type, "status": "True"} for type in listed],
            "reclaimablePods": [{"name": "main", "count": min(count, done)}],
            **({"admission": {"clusterQueue": queue, "podSetAssignments": [given_]}} if listed else {}),
        },
    }


@given(st.lists(st.tuples(st.sampled_from(NAMES), STATES), max_size=12))
def test_tallies_are_what_a_count_would_find(changes: list) -> None:
    tallies = Tallies(Settings())
    now: dict[str, tuple] = {}
    for name, state in changes:
        before = now.pop(name, None)
        if state is None:
            touched = tallies.drop(f"ns/{name}")
        else:
            now[name] = state
            touched = tallies.put(_view(a_workload(name, *state)))
        held = {found[1] for found in (before, state) if found is not None and found[0] in ("holds", "runs")}
        assert touched <= held
        if before != state and before is None:
            assert touched == held, "whose tally changes is told"
    for queue in ("cq", "other"):
        _same(tallies.queue(queue), [state for state in now.values() if state[1] == queue])
    for local in ("lq", ""):
        _same(tallies.local_queue(f"ns/{local}"), [state for state in now.values() if state[2] == local])


def _view(document: Document) -> kueue.Workload:
    return msgspec.convert(document, kueue.Workload)


def _same(tally: Tally, states: list) -> None:
    holding = [state for state in states if state[0] in ("holds", "runs")]
    running = [state for state in holding if state[0] == "runs"]
    assert (tally.reserving, tally.admitted) == (len(holding), len(running))
    for amounts, counted in ((tally.reserved, holding), (tally.used, running)):
        total = sum(2000 * (count - min(count, done)) for *_, count, done in counted)
        assert amounts == ({FlavorResource("f", "cpu"): total} if total else {})
