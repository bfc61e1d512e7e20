"""Which flavor is chosen, from where the search starts, and what is said of those that were not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.flavor_worlds import World, admission, pods, settings

from muster.quota.amounts import FlavorResource
from muster.quota.assignments import Mode, NoFitReason
from muster.quota.flavors import Pins, Possibility, is_outdated, total_requests
from muster.quota.gates import Gates
from muster.quota.workloads import ScanPosition, WorkloadInfo

CPU = "cpu"


def test_the_first_flavor_with_room_is_taken() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}, "two": {"cpu": 4}})
    found = world.assign(world.workload(pods(cpu=3)))
    assert found.mode is Mode.FIT
    assert found.pod_sets[0].flavors[CPU].flavor == "one"
    assert found.usage.quota == {FlavorResource("one", CPU): 3000}
    assert world.oracle.asked == []


def test_what_the_first_pod_set_takes_the_second_cannot_have() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}, "two": {"cpu": 4}})
    found = world.assign(world.workload(pods("a", cpu=3), pods("b", cpu=3)))
    assert [given.flavors[CPU].flavor for given in found.pod_sets] == ["one", "two"]


def test_pod_sets_of_one_group_share_a_flavor() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}, "two": {"cpu": 8}})
    group = {"podSetGroupName": "g"}
    found = world.assign(world.workload(pods("a", cpu=3, topology=group), pods("b", cpu=3, topology=group)))
    assert [given.flavors[CPU].flavor for given in found.pod_sets] == ["two", "two"]


def test_members_of_a_group_keep_the_order_of_the_workload() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 40}})
    group = {"podSetGroupName": "g"}
    info = world.workload(pods("a", cpu=1, topology=group), pods("b", cpu=1), pods("c", cpu=1, topology=group))
    assert [given.name for given in world.assign(info).pod_sets] == ["a", "b", "c"]


def test_shortfalls_say_where_there_is_no_more() -> None:
    world = World()
    world.queue("other", {"one": {"cpu": 10}}, cohortName="team")
    world.queue("cq", {"one": {"cpu": {"nominalQuota": "2", "borrowingLimit": "3"}}}, cohortName="team")
    world.use("cq", "one", CPU, 4000)
    attempt = world.assign(world.workload(pods(cpu=2))).pod_sets[0].attempts[0]
    lacking = attempt.shortfalls[0]
    assert (lacking.resource, lacking.missing, lacking.level) == (CPU, 1000, "/team/cq")
    assert not lacking.is_permanent
    # Now it is the cohort that has no more.
    world.use("other", "one", CPU, 8000)
    attempt = world.assign(world.workload(pods(cpu=2))).pod_sets[0].attempts[0]
    assert (attempt.shortfalls[0].missing, attempt.shortfalls[0].level) == (2000, "/team")
    never = world.assign(world.workload(pods(cpu=6))).pod_sets[0].attempts[0]
    assert (never.shortfalls[0].missing, never.shortfalls[0].is_permanent) == (1000, True)
    assert never.no_fit_reason is NoFitReason.EXCEEDS


def test_the_oracle_is_not_asked_about_a_flavor_that_is_lost() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4, "memory": 4}})
    world.use("cq", "one", "memory", 4)
    found = world.assign(world.workload(pods(cpu=5, memory=1)))
    assert found.mode is Mode.NO_FIT
    assert world.oracle.asked == []
    assert len(found.pod_sets[0].reasons) == 2


@pytest.mark.parametrize(("sharing", "wanted"), [(False, Mode.NO_FIT), (True, Mode.PREEMPT)])
def test_under_fair_sharing_one_may_preempt_while_borrowing(sharing: bool, wanted: Mode) -> None:
    world = World(settings(sharing=sharing))
    world.queue("cq", {"one": {"cpu": 0}}, cohortName="team", preemption={"reclaimWithinCohort": "Any"})
    world.queue("other", {"one": {"cpu": 4}}, cohortName="team")
    world.use("other", "one", CPU, 4000)
    world.oracle.answers = {FlavorResource("one", CPU): (Possibility.RECLAIM, 1)}
    found = world.assign(world.workload(pods(cpu=2)))
    assert found.mode is wanted
    assert found.borrows is sharing


def test_without_fungibility_the_first_that_fits_wins_and_the_search_always_starts_over() -> None:
    world = World(settings(FlavorFungibility=False))
    fungibility = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
    world.queue("cq", {"one": {"cpu": 1}, "two": {"cpu": 4}}, cohortName="team", flavorFungibility=fungibility)
    world.queue("other", {"one": {"cpu": 4}}, cohortName="team")
    info = world.workload(pods(cpu=2))
    info.scan = ScanPosition([{CPU: 0}])
    found = world.assign(info)
    assert found.pod_sets[0].flavors[CPU].flavor == "one"
    assert found.scan is not None
    assert not found.scan.has_untried


def test_the_search_goes_on_after_the_flavor_that_was_tried_last() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}, "two": {"cpu": 4}, "three": {"cpu": 4}})
    info = world.workload(pods(cpu=2))
    seen = []
    for cycle in range(4):
        found = world.assign(info, cycle=cycle)
        seen.append(found.pod_sets[0].flavors[CPU].flavor)
        info.scan = found.scan
    assert seen == ["one", "two", "three", "one"]


def test_a_record_is_dropped_once_there_may_be_room() -> None:
    world = World()
    queue = world.queue("cq", {"one": {"cpu": 4}, "two": {"cpu": 4}})
    info = world.workload(pods(cpu=2))
    info.scan = world.assign(info, cycle=1).scan
    queue.generation += 1
    assert world.assign(info, cycle=3).pod_sets[0].flavors[CPU].flavor == "one"
    assert info.scan is None


def test_a_record_that_points_past_the_last_flavor_is_no_dead_end() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}})
    info = world.workload(pods(cpu=2))
    info.scan = ScanPosition([{CPU: 3}], shape=info.shape)
    assert world.assign(info).mode is Mode.FIT


@pytest.mark.parametrize(
    ("scan", "outdated"),
    [
        pytest.param(ScanPosition([], 0, 4, "a"), False, id="of the last cycle"),
        pytest.param(ScanPosition([], 0, 3, "a"), True, id="older than that"),
        pytest.param(ScanPosition([], 1, 3, "a"), False, id="older, but nothing has changed"),
        pytest.param(ScanPosition([], 1, 5, "b"), True, id="of another shape"),
        pytest.param(ScanPosition([], 1, 5, "unknown"), False, id="of a shape that is not known"),
    ],
)
def test_how_long_a_record_stands(scan: ScanPosition, outdated: bool) -> None:
    assert is_outdated(scan, generation=1, cycle=5, shape="a", gates=Gates.default()) is outdated


def test_pinned_flavors_are_kept_even_where_another_fits() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}, "two": {"cpu": 4}})
    info = world.workload(pods(cpu=2))
    pins = Pins.of(world.assign(info))
    world.use("cq", "one", CPU, 4000)
    world.oracle.answers = {FlavorResource("one", CPU): (Possibility.PREEMPT, 0)}
    found = world.assign(info, pinned=pins)
    assert found.mode is Mode.PREEMPT
    assert found.pod_sets[0].flavors[CPU].flavor == "one"
    skipped = "skipping flavor two as it is not found in the nomination mapping for resource cpu"
    assert skipped in found.pod_sets[0].reasons


def test_only_allowed_flavors_are_tried() -> None:
    world = World(settings(ConcurrentAdmission=True))
    world.queue("cq", {"one": {"cpu": 4}, "two": {"cpu": 4}})
    info = world.workload(pods(cpu=2), annotations={"kueue.x-k8s.io/workload-allowed-resource-flavors": "two"})
    assert world.assign(info).pod_sets[0].flavors[CPU].flavor == "two"


def test_a_resource_that_the_queue_does_not_cover() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}})
    found = world.assign(world.workload(pods(cpu=1, memory=1)))
    assert found.mode is Mode.NO_FIT
    assert found.pod_sets[0].reasons == ["resource memory unavailable in ClusterQueue"]
    assert found.no_fit_reason is NoFitReason.NO_FLAVOR
    lenient = World(settings(ignores_undeclared=True))
    lenient.queue("cq", {"one": {"cpu": 4}})
    found = lenient.assign(lenient.workload(pods(cpu=1, memory=1)))
    assert found.mode is Mode.FIT
    assert list(found.pod_sets[0].flavors) == [CPU]


def test_the_number_of_pods_counts_where_the_queue_covers_it() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 40, "pods": 3}})
    assert world.assign(world.workload(pods(count=4, cpu=1))).mode is Mode.NO_FIT
    found = world.assign(world.workload(pods(count=4, cpu=1)), counts=[3])
    assert found.usage.quota[FlavorResource("one", "pods")] == 3
    assert (found.pod_sets[0].count, found.pod_sets[0].requests[CPU]) == (3, 3000)


def test_nothing_is_taken_for_granted_after_a_pod_set_that_does_not_fit() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}})
    found = world.assign(world.workload(pods("a", cpu=9), pods("b", cpu=1)))
    assert [given.name for given in found.pod_sets] == ["a"]


def test_a_flavor_that_changes_is_judged_anew() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}})
    info = world.workload(pods(cpu=1))
    assert world.assign(info).mode is Mode.FIT
    world.flavor("one", nodeTaints=[{"key": "spot", "effect": "NoSchedule"}])
    found = world.assign(info)
    assert found.mode is Mode.NO_FIT
    assert found.pod_sets[0].reasons == ["untolerated taint {spot  NoSchedule <nil>} in flavor one"]


# Slices of a job that grows


def _slice(world: World, flavor: str, count: int) -> WorkloadInfo:
    given = {"name": "main", "count": count, "flavors": {CPU: flavor}, "resourceUsage": {CPU: str(count)}}
    held = world.workload(pods(count=count, cpu=1), **admission(given))
    world.state.add(held)
    return held


def test_a_slice_is_charged_only_for_what_it_has_more() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}})
    held = _slice(world, "one", 3)
    found = world.assign(world.workload(pods(count=4, cpu=1)), replaced=held)
    assert found.mode is Mode.FIT
    assert found.usage.quota == {FlavorResource("one", CPU): 1000}
    assert found.pod_sets[0].requests == {CPU: 4000}


def test_a_slice_stays_on_the_flavor_of_the_one_before() -> None:
    world = World()
    world.queue("cq", {"one": {"cpu": 4}, "two": {"cpu": 4}})
    held = _slice(world, "two", 2)
    info = world.workload(pods(count=4, cpu=1))
    found = world.assign(info, replaced=held)
    assert found.pod_sets[0].flavors[CPU].flavor == "two"
    assert total_requests(found, info, held) == {FlavorResource("two", CPU): 2000}
    world.use("cq", "two", CPU, 1000)
    found = world.assign(info, replaced=held)
    assert "could not assign one flavor since the original workload is assigned: two" in found.pod_sets[0].reasons


# Whatever the numbers


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[World, list[dict[str, object]]]:
    amounts = st.integers(0, 6)
    fungibility = {
        "whenCanBorrow": draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
        "whenCanPreempt": draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
    }
    world = World()
    names = ("one", "two", "three")
    for queue in ("cq", "other"):
        group = {name: {"gpu": draw(amounts), "disk": draw(amounts)} for name in names}
        world.queue(queue, group, cohortName="team", flavorFungibility=fungibility)
    for queue in ("cq", "other"):
        for name in names:
            world.use(queue, name, "gpu", draw(amounts))
    asked = [
        pods(f"p{number}", draw(st.integers(1, 2)), gpu=draw(amounts), disk=draw(amounts))
        for number in range(draw(st.integers(1, 3)))
    ]
    return world, asked


@given(_worlds())
def test_what_fits_can_be_taken_and_what_does_not_says_why(made: tuple[World, list[dict[str, object]]]) -> None:
    world, asked = made
    queue = world.state.queues["cq"]
    before = {name: dict(node.usage) for name, node in world.state.tree.queues.items()}
    info = world.workload(*asked)
    found = world.assign(info)
    assert {name: dict(node.usage) for name, node in world.state.tree.queues.items()} == before
    if found.mode is Mode.FIT:
        assert world.state.fits_quota(queue, found.usage.quota)
        asked_for = sum(value for totals in info.pod_sets for value in totals.requests.values())
        assert sum(found.usage.quota.values()) == asked_for
        assert found.message() == ""
    else:
        worst = min(found.pod_sets, key=lambda given: given.mode)
        assert worst.reasons
        assert found.mode is Mode.PREEMPT or not worst.flavors
        assert (found.no_fit_reason is NoFitReason.NONE) is (found.mode is Mode.PREEMPT)


@given(_worlds())
def test_no_flavor_is_left_out_that_has_room_without_borrowing(made: tuple[World, list[dict[str, object]]]) -> None:
    world, asked = made
    node = world.state.queues["cq"].node
    info = world.workload(asked[0])
    totals = info.pod_sets[0].requests
    roomy = [
        name
        for name in ("one", "two", "three")
        if all(
            value <= min(node.nominal(what) - node.used(what), max(0, node.available(what)))
            for resource, value in totals.items()
            for what in (FlavorResource(name, resource),)
        )
    ]
    if roomy:
        assert world.assign(info).mode is Mode.FIT
