"""What is measured while workloads come, wait, start, are preempted and end."""

import re
from pathlib import Path

from tests.unit.controllers.quota_worlds import World, a_local_queue, a_queue, a_workload, a_world

from muster.api import kueue
from muster.quota.settings import FairSharing, Settings
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
_SERIES = re.compile(r"kueue_(\w+)\{(.*)\} (\S+)")


def measured(world: World, name: str, **labels: str) -> dict[tuple[str, ...], float]:
    """Of all series of that name with these labels, the values of the other labels, and the number."""
    found = {}
    for line in world.quota.metrics.text().splitlines():
        match = _SERIES.fullmatch(line)
        if match is None or match[1] != name:
            continue
        has = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
        assert has.pop("replica_role") == "standalone"
        if labels.items() <= has.items():
            found[tuple(value for label, value in has.items() if label not in labels)] = float(match[3])
    return found


async def finish(world: World, name: str) -> None:
    done = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": None}
    done["lastTransitionTime"] = "2030-01-01T00:00:00Z"
    conditions = (await world.status(name=name))["conditions"]
    await world.change(kueue.WORKLOAD, name, {"status": {"conditions": [*conditions, done]}}, is_status=True)


@on_virtual_time
async def test_from_waiting_to_the_end(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="2"), a_local_queue(), a_workload("first", "2"))
        await clock.sleep(3)
        await world.make(a_workload("second", "2"))
        await clock.sleep(3)
        assert measured(world, "pending_workloads", cluster_queue="cq") == {("active",): 0, ("inadmissible",): 1}
        assert measured(world, "admitted_workloads_total") == {("cq", ""): 1}
        assert measured(world, "reserving_active_workloads") == {("cq",): 1}
        assert measured(world, "admitted_active_workloads") == {("cq",): 1}
        assert measured(world, "admission_attempts_total")[("success",)] == 1
        assert measured(world, "admission_attempts_total")[("inadmissible",)] >= 1
        assert measured(world, "admission_attempt_duration_seconds_count") == measured(
            world, "admission_attempts_total"
        )
        await clock.sleep(60)
        await finish(world, "first")
        await clock.sleep(3)
        assert measured(world, "admitted_workloads_total") == {("cq", ""): 2}
        assert measured(world, "quota_reserved_workloads_total") == {("cq", ""): 2}
        assert measured(world, "finished_workloads_total") == {("cq", ""): 1}
        assert measured(world, "admission_wait_time_seconds_count") == {("cq", ""): 2}
        [waited] = measured(world, "quota_reserved_wait_time_seconds_sum").values()
        assert 60 <= waited <= 70
        assert measured(world, "pending_workloads", cluster_queue="cq") == {("active",): 0, ("inadmissible",): 0}


@on_virtual_time
async def test_quotas_and_what_is_used_of_them(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="4500m", cohortName="all"), a_local_queue(), a_workload(cpu="1500m"))
        await clock.sleep(3)
        line = {"cohort": "all", "cluster_queue": "cq", "flavor": "f", "resource": "cpu"}
        assert measured(world, "cluster_queue_nominal_quota", **line) == {(): 4.5}
        assert measured(world, "cluster_queue_resource_reservation", **line) == {(): 1.5}
        assert measured(world, "cluster_queue_resource_usage", **line) == {(): 1.5}
        assert measured(world, "cluster_queue_borrowing_limit", **line) == {(): float("inf")}
        assert measured(world, "cluster_queue_status", cluster_queue="cq") == {
            ("pending",): 0,
            ("active",): 1,
            ("terminating",): 0,
        }


@on_virtual_time
async def test_preemption_is_counted_for_both_sides(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        policy = {"withinClusterQueue": "LowerPriority"}
        await world.make(a_queue(cpu="2", preemption=policy), a_local_queue(), a_workload("low", "2", priority=1))
        await clock.sleep(3)
        await world.make(a_workload("high", "2", priority=5))
        await clock.sleep(5)
        assert await world.is_admitted("high")
        assert measured(world, "preempted_workloads_total") == {("cq", "InClusterQueue"): 1}
        assert measured(world, "evicted_workloads_total", cluster_queue="cq") == {("Preempted", "", ""): 1}
        assert measured(world, "evicted_workloads_once_total") == measured(world, "evicted_workloads_total")


@on_virtual_time
async def test_a_queue_that_borrows_has_a_share(clock: VirtualClock) -> None:
    async with a_world(clock, Settings(fair_sharing=FairSharing())) as world:
        await world.make(a_queue(cpu="1", cohortName="all"), a_queue("other", cpu="3", cohortName="all"))
        await world.make(a_local_queue(), a_workload(cpu="3"))
        await clock.sleep(3)
        assert measured(world, "cluster_queue_weighted_share") == {("cq", "all"): 500.0, ("other", "all"): 0.0}
        assert measured(world, "cohort_weighted_share") == {("all",): 0.0}


@on_virtual_time
async def test_a_queue_that_is_gone_leaves_no_series(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(), a_local_queue(), a_workload())
        await clock.sleep(3)
        assert measured(world, "admitted_workloads_total")
        await world.delete(kueue.WORKLOAD, "w")
        await world.delete(kueue.CLUSTER_QUEUE, "cq")
        await clock.sleep(5)
        assert '"cq"' not in world.quota.metrics.text()


@on_virtual_time
async def test_the_page_names_what_there_is(clock: VirtualClock) -> None:
    async with a_world(clock, Settings(fair_sharing=FairSharing())) as world:
        served = dict(re.findall(r"# TYPE (\w+) (\w+)", world.quota.metrics.text()))
        told = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))
        assert told == served
