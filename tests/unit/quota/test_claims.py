"""Victims that others have claimed: gone for those who ask later, and there again when the cycle is over."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.quota.preempting_worlds import (
    GPU,
    NOW,
    a_holder,
    a_state,
    a_workload,
    an_assignment,
    columns,
    put_queue,
)

from muster.quota import assuming
from muster.quota.claims import Claims
from muster.quota.preempting import Preemptor, Reason, Target
from muster.quota.ranking import ranking
from muster.quota.settings import Settings
from muster.quota.state import QuotaState

PLAIN = Settings()


def a_scene() -> QuotaState:
    """`theirs` owns nothing and uses all that `mine` owns."""
    state = a_state()
    put_queue(state, "mine", "c", {"gpu": {"nominalQuota": 4}}, {"reclaimWithinCohort": "Any"})
    put_queue(state, "theirs", "c", {"gpu": {"nominalQuota": 0}})
    state.settle()
    for number in range(4):
        state.add(a_holder(f"w{number}", "theirs", PLAIN, requests={"gpu": 1}, priority=number, reserved=1.0))
    return state


def targets_of(state: QuotaState, *names: str) -> list[Target]:
    queue = state.queues["theirs"]
    return [Target(queue.workloads[f"ns/{name}"], Reason.RECLAMATION, queue) for name in names]


def searched(state: QuotaState, amount: int) -> list[str]:
    info = a_workload("new", PLAIN, requests={"gpu": amount}, priority=9)
    found = Preemptor(state, NOW).targets(info, state.queues["mine"], an_assignment(info, [GPU]))
    return [target.info.view.metadata.name for target in found]


def test_what_is_claimed_is_found_by_nobody_else_and_free_for_others() -> None:
    state = a_scene()
    before = columns(state)
    claims = Claims(state)
    claims.add(targets_of(state, "w0", "w1"))
    claims.take_out()
    assert state.queues["theirs"].node.used(GPU) == 2
    assert searched(state, 3) == ["w2"]
    claims.add(targets_of(state, "w2"))
    assert state.queues["theirs"].node.used(GPU) == 1
    assert claims.overlap(targets_of(state, "w3", "w2"))
    assert [target.info.key for target in claims.unclaimed(targets_of(state, "w3", "w2"))] == ["ns/w3"]
    claims.put_back()
    claims.show()
    assert columns(state) == before
    assert searched(state, 2) == ["w0", "w1"]


def test_what_was_evicted_meanwhile_comes_back_as_evicted() -> None:
    state = a_scene()
    claims, queue = Claims(state), state.queues["theirs"]
    queue.ranking(NOW)
    claims.add(targets_of(state, "w2"))
    queue.put(assuming.evicted(queue.workloads["ns/w2"], "Preempted", "2026-01-01T00:00:00Z", PLAIN))
    claims.show()
    assert searched(state, 1) == ["w2"]
    claims.hide()
    assert searched(state, 1) == ["w0"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["put", "evict", "drop", "hide", "show"]), st.integers(0, 5), st.integers(0, 3)))
)
def test_a_ranking_that_follows_changes_is_the_one_made_anew(changes: list[tuple[str, int, int]]) -> None:
    state = a_scene()
    queue = state.queues["theirs"]
    hidden: set[str] = set()
    for change, number, priority in changes:
        key = f"ns/w{number}"
        held = queue.workloads.get(key)
        if change == "show":
            queue.show_all()
            hidden.clear()
        elif change == "put":
            queue.put(a_holder(f"w{number}", "theirs", PLAIN, requests={"gpu": 1}, priority=priority, reserved=1.0))
        elif held is not None and change == "evict":
            queue.put(assuming.evicted(held, "Preempted", "2026-01-01T00:00:00Z", PLAIN))
        elif held is not None and change == "drop":
            queue.drop(key)
            hidden.discard(key)
        elif held is not None:
            queue.hide(key)
            hidden.add(key)
        anew = ranking((info for key, info in queue.workloads.items() if key not in hidden), NOW)
        assert queue.ranking(NOW).all == anew.all
        assert queue.ranking(NOW).evicted == anew.evicted
