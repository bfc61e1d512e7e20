"""Who may be preempted, in which order, and what the two are told."""

from dataclasses import replace

import msgspec
import pytest
from tests.unit.quota.preempting_worlds import (
    GPU,
    NOW,
    a_holder,
    a_state,
    a_workload,
    an_assignment,
    columns,
    put_cohort,
    put_queue,
)

from muster.api import kueue
from muster.api.meta import Instant
from muster.quota import assuming
from muster.quota.fair_admission import Ledger
from muster.quota.gates import Gates
from muster.quota.preempting import Preemptor, Reason, Target, may_preempt, message, messages
from muster.quota.preempting.policies import Wanted
from muster.quota.preempting.room import Room
from muster.quota.queues import Victims
from muster.quota.ranking import ranking
from muster.quota.settings import AdmissionFairSharing, FairSharing, Settings
from muster.quota.state import QuotaState
from muster.quota.workloads import BOOST_ANNOTATION, WorkloadInfo

PLAIN = Settings()


# Policies


@pytest.mark.parametrize(
    ("policy", "priority", "created", "expected"),
    [
        (Victims.NEVER, -9, 100.0, False),
        (Victims.LOWER, 0, 100.0, False),
        (Victims.LOWER, -1, 0.0, True),
        (Victims.LOWER_OR_NEWER, -1, 0.0, True),
        (Victims.LOWER_OR_NEWER, 0, 51.0, True),
        (Victims.LOWER_OR_NEWER, 0, 50.0, False),
        (Victims.LOWER_OR_NEWER, 1, 100.0, False),
        (Victims.ANY, 9, 0.0, True),
    ],
)
def test_whom_a_policy_lets_go(policy: Victims, priority: int, created: float, expected: bool) -> None:
    preemptor = a_workload("p", PLAIN, requests={"gpu": 1}, created=50.0)
    candidate = a_workload("c", PLAIN, requests={"gpu": 1}, priority=priority, created=created)
    assert may_preempt(preemptor, candidate, policy) is expected


@pytest.mark.parametrize(
    ("text", "boost"),
    [("50", 50), ("-30", -30), ("+5", 5), (" 5", 0), ("1_000", 0), ("5.0", 0), ("2147483648", 0), ("9" * 5000, 0)],
)
def test_a_boost_is_an_integer_of_32_bits_or_nothing(text: str, boost: int) -> None:
    settings = Settings(gates=Gates.default().changed({"PriorityBoost": True}))
    view = msgspec.convert({"metadata": {"name": "w", "annotations": {BOOST_ANNOTATION: text}}}, kueue.Workload)
    assert WorkloadInfo(view, "", settings).priority == boost
    assert WorkloadInfo(view, "", PLAIN).priority == 0


# Order


def names(infos: list[WorkloadInfo]) -> list[str]:
    return [info.view.metadata.name for info in infos]


def ordered(infos: list[WorkloadInfo], *, by_usage: bool = False) -> list[str]:
    return names([info for _, info in ranking(infos, NOW, by_usage=by_usage).all])


def test_evicted_then_less_important_then_younger_then_by_uid() -> None:
    def make(name: str, **said: object) -> WorkloadInfo:
        return a_holder(name, "q", PLAIN, requests={"gpu": 1}, **said)  # type: ignore[arg-type]

    infos = [
        make("b-old", reserved=10.0),
        make("a-old", reserved=10.0),
        make("young", reserved=20.0),
        make("low", priority=-1, reserved=5.0),
        make("evicted", priority=9, is_evicted=True),
    ]
    assert ordered(infos) == ["evicted", "low", "young", "a-old", "b-old"]


def test_who_has_no_time_of_reservation_counts_as_just_reserved() -> None:
    fresh = a_workload("fresh", PLAIN, requests={"gpu": 1})
    older = a_holder("older", "q", PLAIN, requests={"gpu": 1}, reserved=NOW - 1)
    later = a_holder("later", "q", PLAIN, requests={"gpu": 1}, reserved=NOW + 1)
    found = ranking([older, fresh, later], NOW)
    assert names([info for _, info in found.all]) == ["later", "fresh", "older"]
    assert not found.is_lasting


def from_local_queue(name: str, local: str, usage: float | None, priority: int = 0) -> WorkloadInfo:
    info = a_holder(name, "q", PLAIN, requests={"gpu": 1}, priority=priority)
    info.local_queue, info.local_queue_usage = local, usage
    return info


def test_past_usage_comes_before_priority() -> None:
    infos = [from_local_queue("important", "heavy", 9.0, 5), from_local_queue("low", "light", 1.0)]
    assert ordered(infos, by_usage=True) == ["important", "low"]
    assert ordered(infos) == ["low", "important"]


def test_unknown_usage_says_nothing() -> None:
    infos = [from_local_queue("important", "heavy", 9.0, 5), from_local_queue("low", "light", None)]
    assert ordered(infos, by_usage=True) == ["low", "important"]


def test_a_queue_ranks_anew_what_has_changed() -> None:
    state = a_state()
    put_queue(state, "q", quotas={"gpu": {"nominalQuota": 10}})
    state.settle()
    queue = state.queues["q"]
    for number in range(3):
        state.add(a_holder(f"w{number}", "q", PLAIN, requests={"gpu": 1}, priority=number, reserved=1.0))
    first = queue.ranking(NOW)
    assert queue.ranking(Instant(NOW + 5)) is first
    state.add(a_holder("w3", "q", PLAIN, requests={"gpu": 1}, priority=-1, reserved=1.0))
    assert names([info for _, info in queue.ranking(NOW).all])[0] == "w3"
    state.remove("ns/w3")
    queue.put(assuming.evicted(queue.workloads["ns/w2"], "Preempted", "2026-01-01T00:00:00Z", PLAIN))
    assert names([info for _, info in queue.ranking(NOW).all]) == ["w2", "w0", "w1"]


# Which queues


def two_queues(settings: Settings = PLAIN) -> QuotaState:
    """`mine` owns 4 and uses none; `theirs` owns nothing and uses all of it."""
    state = a_state(settings)
    put_queue(state, "mine", "c", {"gpu": {"nominalQuota": 4}}, {"reclaimWithinCohort": "Any"})
    put_queue(state, "theirs", "c", {"gpu": {"nominalQuota": 0}})
    state.settle()
    for number in range(4):
        state.add(a_holder(f"w{number}", "theirs", settings, requests={"gpu": 1}, reserved=float(number)))
    return state


def found(state: QuotaState, requests: int, queue: str = "mine", ledger: Ledger | None = None) -> list[Target]:
    info = a_workload("new", state.settings, requests={"gpu": requests}, priority=9)
    return Preemptor(state, NOW, ledger).targets(info, state.queues[queue], an_assignment(info, [GPU]))


@pytest.mark.parametrize("settings", [PLAIN, Settings(fair_sharing=FairSharing())], ids=["classical", "fair"])
def test_the_youngest_that_are_enough_give_back(settings: Settings) -> None:
    targets = found(two_queues(settings), 2)
    assert names([target.info for target in targets]) == ["w3", "w2"]
    assert {target.reason for target in targets} == {Reason.RECLAMATION}


@pytest.mark.parametrize("settings", [PLAIN, Settings(fair_sharing=FairSharing())], ids=["classical", "fair"])
def test_a_queue_that_is_not_active_is_left_alone(settings: Settings) -> None:
    state = two_queues(settings)
    stopped = {"metadata": {"name": "theirs"}, "spec": {"cohortName": "c", "stopPolicy": "Hold"}}
    state.set_queue(msgspec.convert(stopped, kueue.ClusterQueue))
    state.settle()
    assert found(state, 2) == []


def test_with_past_usage_the_local_queue_that_used_most_gives_first() -> None:
    settings = Settings(admission_fair_sharing=AdmissionFairSharing(half_life=3600.0))
    state = a_state(settings)
    document = {
        "metadata": {"name": "q"},
        "spec": {
            "resourceGroups": [
                {
                    "coveredResources": ["gpu"],
                    "flavors": [{"name": "default", "resources": [{"name": "gpu", "nominalQuota": "2"}]}],
                }
            ],
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        },
    }
    state.set_queue(msgspec.convert(document, kueue.ClusterQueue))
    state.settle()
    for name, priority in (("heavy", 1), ("light", 0)):
        info = a_holder(name, "q", settings, requests={"gpu": 1}, priority=priority)
        info.local_queue = f"ns/{name}"
        state.add(info)
    ledger = Ledger(settings)
    ledger.seed("ns/heavy", {"gpu": "5"}, NOW)
    assert names([target.info for target in found(state, 1, "q")]) == ["light"]
    assert names([target.info for target in found(state, 1, "q", ledger)]) == ["heavy"]


def test_who_asks_for_nothing_lacking_preempts_nobody() -> None:
    state = two_queues()
    info = a_workload("new", PLAIN, requests={"gpu": 1}, priority=9)
    assert Preemptor(state, NOW).targets(info, state.queues["mine"], an_assignment(info, [])) == []


def test_a_trial_that_fails_halfway_takes_everything_back() -> None:
    state = two_queues()
    before = columns(state)
    mine, theirs = state.queues["mine"], state.queues["theirs"]
    info = a_workload("new", PLAIN, requests={"gpu": 4}, priority=9)
    wanted = Wanted(info, mine, frozenset([GPU]), {GPU: 4})

    def fail() -> None:
        with Room(state, wanted, may_borrow=True) as room, room.holding_wanted():
            room.take(theirs, theirs.workloads["ns/w0"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert columns(state) == before


# What is said


def test_both_are_told_who_and_why() -> None:
    state = two_queues(replace(PLAIN, gates=Gates.default().changed({"PriorityBoost": True})))
    put_cohort(state, "c", "root")
    state.settle()
    preemptor = a_workload("new", state.settings, requests={"gpu": 1}, priority=3)
    target = found(state, 1)[0]
    mine = state.queues["mine"]
    told = messages.message_for(preemptor, mine, target)
    assert told == (
        "Preempted to accommodate a workload (UID: uid-new, JobUID: UNKNOWN) due to reclamation within the cohort; "
        "preemptor path: /root/c/mine; preemptee path: /root/c/theirs"
    )
    priorities = (
        "preemptor effective priority: 3 (base: 3, boost: 0); preemptee effective priority: 0 (base: 0, boost: 0)"
    )
    assert messages.victim_event(preemptor, mine, target) == f"{told}; {priorities}"
    assert messages.preemptor_event(preemptor, target) == (
        f"Preempted workload ns/w3 (UID: uid-w3) in ClusterQueue theirs; {priorities}"
    )


@pytest.mark.parametrize(
    ("reason", "grounds"),
    [
        (Reason.IN_QUEUE, "prioritization in the ClusterQueue"),
        (Reason.RECLAMATION, "reclamation within the cohort"),
        (Reason.RECLAIM_WHILE_BORROWING, "reclamation within the cohort while borrowing"),
        (Reason.FAIR_SHARING, "Fair Sharing within the cohort"),
        ("Other", "UNKNOWN"),
    ],
)
def test_grounds(reason: str, grounds: str) -> None:
    assert f"due to {grounds};" in message(kueue.Workload(), reason, "/a", "/b")
