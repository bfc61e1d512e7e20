"""Cycles: who is admitted, who preempts, who waits, and what each is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.cycle_worlds import World, settings

from muster.quota.cycle import Cycle
from muster.quota.decisions import Admission, Eviction, Replacement, Requeue
from muster.quota.limits import read_limit_ranges
from muster.quota.queueing import RequeueReason
from muster.quota.settings import PodsReady
from muster.quota.workloads import WorkloadInfo

WITHIN = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Never"}


def test_what_fits_is_admitted_and_counts_at_once() -> None:
    world = World()
    world.queue("gold", 4)
    first, second = world.workload("a", "gold", 3), world.workload("b", "gold", 3)

    result = world.run()

    assert world.holders() == {first}
    assert world.condition(first, "Admitted") == ("True", "Admitted")
    assert world.documents[first]["status"]["admission"]["podSetAssignments"] == [
        {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "3"}}
    ]
    assert [event.reason for found in result.admissions() for event in found.events()] == ["QuotaReserved", "Admitted"]

    world.run()
    assert world.condition(second, "QuotaReserved") == ("False", "WaitingForQuota")
    assert world.message(second).endswith("insufficient unused quota for cpu in flavor default, 2 more needed")


def test_who_comes_second_in_a_cohort_may_find_the_room_gone() -> None:
    world = World()
    world.queue("a", 1, "team")
    world.queue("b", 1, "team")
    world.queue("bank", 2, "team")
    important = world.workload("x", "a", 3, priority=1)
    other = world.workload("y", "b", 3)

    world.run()

    assert world.holders() == {important}
    assert world.message(other) == "Workload no longer fits after processing another workload"
    assert [info.key for info in world.pending.active("b")] == [other], "it is tried again at once"


def test_a_victim_is_told_once_and_holds_its_quota_until_it_has_stopped() -> None:
    world = World()
    world.queue("gold", 4, preemption=WITHIN)
    victim = world.workload("low", "gold", 4)
    world.run()
    preemptor = world.workload("high", "gold", 4, priority=10)

    first, second = world.run(), world.run()

    assert [found.info.key for found in first.evictions()] == [victim]
    assert list(second.evictions()) == [], "it has been told already"
    assert world.holders() == {victim}
    assert world.condition(victim, "Evicted") == ("True", "Preempted")
    assert world.condition(victim, "Preempted") == ("True", "InClusterQueue")
    assert world.condition(preemptor, "QuotaReserved") == ("False", "WaitingForPreemptedWorkloads")
    assert world.message(preemptor).endswith("Pending the preemption of 1 workload(s)")
    assert [event.reason for found in first.evictions() for event in found.events()] == [
        "EvictedDueToPreempted",
        "Preempted",
        "PreemptedWorkload",
    ]

    world.leave(victim)
    world.run()
    assert world.holders() == {preemptor}


@pytest.mark.parametrize(("reclaim", "admitted"), [("Never", set()), ("Any", {"ns/low"})])
def test_room_is_kept_for_one_that_waits_unless_it_can_be_claimed_back(reclaim: str, admitted: set[str]) -> None:
    world = World()
    world.queue("a", 4, "team", preemption={"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": reclaim})
    world.queue("b", 0, "team")
    world.workload("held", "a", 2, priority=100)
    world.run()
    world.workload("high", "a", 4, priority=10)
    world.workload("low", "b", 2)

    world.run()

    assert world.holders() == {"ns/held", *admitted}


def test_one_with_a_closed_gate_does_not_preempt() -> None:
    world = World(settings(MultiKueueOrchestratedPreemption=True))
    world.queue("gold", 4, preemption=WITHIN)
    world.workload("low", "gold", 4)
    world.run()
    gated = world.workload("high", "gold", 4, priority=10, spec={"preemptionGates": [{"name": "far"}]})

    result = world.run()

    assert list(result.evictions()) == []
    assert world.condition(gated, "BlockedOnPreemptionGates") == ("True", "PreemptionGated")
    assert world.condition(gated, "QuotaReserved") == ("False", "AdmissionGated")
    assert [info.key for info in world.pending.inadmissible("gold")] == [gated]


def test_nothing_is_admitted_while_pods_are_awaited() -> None:
    world = World(settings(pods_ready=PodsReady(blocks_admission=True)))
    world.queue("gold", 4)
    world.queue("silver", 4)
    world.workload("a", "gold", 1)
    waiting = world.workload("b", "silver", 1)

    world.run()

    assert world.holders() == {"ns/a"}
    assert world.condition(waiting, "QuotaReserved") == ("False", "WaitingForPodsReady")


def test_two_that_need_the_same_victim_do_not_both_preempt() -> None:
    world = World()
    for name in ("a", "b"):
        world.queue(name, 2, "team", preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"})
    world.queue("c", 0, "team")
    world.workload("victim", "c", 4)
    world.run()
    world.workload("x", "a", 2, priority=1)
    deferred = world.workload("y", "b", 2)

    result = world.run()

    assert [found.info.key for found in result.evictions()] == ["ns/victim"]
    assert result.recomputations == {"b": {"deferred_fit": 1}}
    assert world.message(deferred).endswith("but will fit after these preemptions complete")


def test_a_larger_slice_takes_the_place_of_the_one_before() -> None:
    world = World()
    world.queue("gold", 4)
    world.workload("small", "gold", 3)
    world.run()
    grown = {"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/small"}}
    world.workload("large", "gold", 4, metadata=grown)

    result = world.run()

    assert [type(found) for found in result.decisions] == [Replacement, Admission]
    assert world.holders() == {"ns/large"}
    assert world.condition("ns/small", "Finished") == ("True", "WorkloadSliceReplaced")
    assert next(iter(world.usages()[True, "gold"].values())) == 4000


def test_a_variant_moves_to_a_better_flavor() -> None:
    world = World(settings(ConcurrentAdmission=True))
    for name in ("reserved", "spot"):
        world.flavor(name)
    world.queue("gold", 4, flavors=("reserved", "spot"))

    def variant(flavor: str) -> str:
        metadata = {
            "annotations": {"kueue.x-k8s.io/workload-allowed-resource-flavors": flavor},
            "ownerReferences": [
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta2",
                    "kind": "Workload",
                    "name": "parent",
                    "uid": "parent",
                    "controller": True,
                }
            ],
        }
        return world.workload(flavor, "gold", 4, metadata=metadata)

    worse = variant("spot")
    world.run()
    assert world.holders() == {worse}
    better = variant("reserved")

    result = world.run()

    assert [(found.info.key, found.reason) for found in result.evictions()] == [(worse, "FlavorMigration")]
    assert [found.reason for found in result.requeues()] == [RequeueReason.PENDING_MIGRATION]
    world.leave(worse)
    world.run()
    assert world.holders() == {better}


def test_what_the_store_refuses_is_taken_back() -> None:
    world = World()
    world.queue("gold", 4)
    world.workload("a", "gold", 4)
    before = world.usages()
    cycle = Cycle(world.state, world.pending)
    (admission,) = cycle.run(world.pending.heads(lambda name: True), world.now, 1).decisions
    assert isinstance(admission, Admission)
    cycle.roll_back(admission.info.key)
    again = admission.refused()

    assert world.usages() == before
    assert again.reason is RequeueReason.FAILED_AFTER_NOMINATION
    assert again.apply(world.documents["ns/a"]) is world.documents["ns/a"], "it is told nothing"


def test_a_workload_that_may_not_be_here_is_told_so() -> None:
    world = World()
    world.queue("gold", 4, namespaceSelector={"matchLabels": {"team": "gold"}})
    world.queue("silver", 4)
    world.ranges["ns"] = read_limit_ranges(
        [{"spec": {"limits": [{"type": "Container", "max": {"cpu": "3"}, "min": {"cpu": "1"}}]}}]
    )
    world.queue("bronze", 4)
    alien = world.workload("alien", "gold", 1)
    greedy = world.workload("greedy", "silver", 2, resources={"limits": {"cpu": "1"}})
    large = world.workload("large", "bronze", 4)

    result = world.run()

    assert world.message(alien) == "workload namespace doesn't match ClusterQueue selector"
    assert world.message(greedy) == (
        "resources validation failed: spec.podSets[0].template.spec.containers[0]: "
        'Invalid value: ["cpu"]: requests must not exceed its limits'
    )
    assert world.message(large).endswith('Invalid value: ["cpu"]: requests must not be above the limitRange max')
    assert {found.info.key: found.reason for found in result.requeues()} == {
        alien: RequeueReason.NAMESPACE_MISMATCH,
        greedy: RequeueReason.GENERIC,
        large: RequeueReason.GENERIC,
    }


def test_a_circle_of_cohorts_admits_nothing() -> None:
    world = World()
    world.queue("gold", 4, "left")
    for name, parent in (("left", "right"), ("right", "left")):
        world.state.tree.set_cohort(name, parent, {})
    world.state.settle()
    waiting = world.workload("a", "gold", 1)

    world.run()

    assert world.condition(waiting, "QuotaReserved") == ("False", "Suspended")
    assert world.message(waiting) == "ClusterQueue gold is inactive"


def test_one_whose_checks_failed_waits() -> None:
    world = World()
    world.queue("gold", 4)
    waiting = world.workload("a", "gold", 1, admissionChecks=[{"name": "c", "state": "Retry"}])

    world.run()

    assert world.condition(waiting, "QuotaReserved") == ("False", "PendingEvaluation")


def test_the_same_reason_is_written_once() -> None:
    world = World()
    world.queue("gold", 1)
    waiting = world.workload("a", "gold", 2)
    (requeue,) = world.run().decisions
    assert isinstance(requeue, Requeue)
    written = world.documents[waiting]

    assert requeue.apply(written) is written


@st.composite
def histories(draw: st.DrawFn) -> tuple[bool, list[tuple[int, int, int]], list[tuple[str, int, int]]]:
    queues = [
        (draw(st.integers(0, 6)), draw(st.integers(0, 2)), draw(st.sampled_from([0, 1, 2])))
        for _ in range(draw(st.integers(1, 5)))
    ]
    workloads = [
        (f"q{draw(st.integers(0, len(queues) - 1))}", draw(st.integers(1, 6)), draw(st.integers(0, 2)))
        for _ in range(draw(st.integers(1, 12)))
    ]
    return draw(st.booleans()), queues, workloads


@given(histories())
def test_quota_holds_and_only_decisions_change_the_state(
    history: tuple[bool, list[tuple[int, int, int]], list[tuple[str, int, int]]],
) -> None:
    sharing, queues, workloads = history
    world = World(settings(sharing=sharing))
    for number, (cpus, cohort, policy) in enumerate(queues):
        preemption = {
            "withinClusterQueue": ("Never", "LowerPriority", "LowerOrNewerEqualPriority")[policy],
            "reclaimWithinCohort": ("Never", "LowerPriority", "Any")[policy],
        }
        world.queue(f"q{number}", cpus, ("", "x", "y")[cohort], preemption=preemption)
    for number, (queue, cpus, priority) in enumerate(workloads):
        world.workload(f"w{number}", queue, cpus, priority=priority)
        result = world.run()
        held = {key: info.usage.quota for key, info in _infos(world).items()}
        for name, node in world.state.tree.queues.items():
            counted = [quota for key, quota in held.items() if world.state.holders[key] == name]
            assert sum(node.usage.values()) == sum(sum(quota.values()) for quota in counted)
            assert all(node.available(what) >= 0 for what in node.usage)
        for eviction in result.evictions():
            assert isinstance(eviction, Eviction)
            world.leave(eviction.info.key)


def _infos(world: World) -> dict[str, WorkloadInfo]:
    return {key: info for queue in world.state.queues.values() for key, info in queue.workloads.items()}
