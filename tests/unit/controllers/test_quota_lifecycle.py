"""Workloads from the queue to their end: the real engine and controllers over a store, on virtual time."""

from typing import Final

import pytest
from tests.unit.controllers.quota_worlds import World, a_check, a_flavor, a_local_queue, a_queue, a_workload, a_world

from muster.api import kueue, timestamps
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.quota.settings import PodsReady, Settings
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time

CHECKED = {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}}


def condition(type: str, reason: str, at: str) -> Document:
    return {"type": type, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at}


async def with_check(world: World) -> None:
    """A workload that holds quota and waits for check `a`."""
    await world.make(a_check("a"))
    await world.activate_check("a")
    await world.make(a_queue(more=CHECKED), a_local_queue(), a_workload())
    await world.clock.sleep(3)
    assert (await world.conditions())["QuotaReserved"] == ("True", "QuotaReserved")


@on_virtual_time
async def test_a_workload_starts_once_its_check_agrees(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await with_check(world)
        assert (await world.conditions())["Admitted"] == ("False", "UnsatisfiedAdmissionChecks")
        await world.set_check("a", "Ready")
        await clock.sleep(2)
        assert await world.is_admitted()
        assert (await world.events())["Admitted"] == 1


@on_virtual_time
async def test_a_check_that_is_no_longer_asked_for_is_not_waited_for(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await with_check(world)
        await world.change(kueue.CLUSTER_QUEUE, "cq", {"spec": {"admissionChecksStrategy": None}})
        await clock.sleep(2)
        assert await world.is_admitted()
        assert "admissionChecks" not in await world.status()


@on_virtual_time
async def test_a_check_that_asks_for_another_try_sends_the_workload_to_rest(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await with_check(world)
        await world.set_check("a", "Retry", requeueAfterSeconds=60)
        await clock.sleep(3)
        assert (await world.conditions())["Evicted"] == ("True", "AdmissionCheck")
        assert await world.message("Evicted") == "Evicted due to AdmissionCheck(s) in Retry state: a"
        assert (await world.conditions())["Requeued"] == ("False", "AdmissionCheck")
        assert (await world.conditions())["QuotaReserved"][0] == "False"
        check = (await world.status())["admissionChecks"][0]
        assert (check["state"], check["retryCount"]) == ("Pending", 1)

        await clock.sleep(50)
        assert (await world.conditions())["QuotaReserved"][0] == "False"
        await clock.sleep(15)
        assert (await world.conditions())["Requeued"] == ("True", "BackoffFinished")
        assert (await world.conditions())["QuotaReserved"][0] == "True"
        assert "requeueState" not in await world.status()
        await world.set_check("a", "Ready")
        await clock.sleep(2)
        assert await world.is_admitted()


@on_virtual_time
async def test_a_check_that_says_no_deactivates_the_workload_until_somebody_reactivates_it(
    clock: VirtualClock,
) -> None:
    async with a_world(clock) as world:
        await with_check(world)
        await world.set_check("a", "Rejected")
        await clock.sleep(5)
        found = await world.get(kueue.WORKLOAD, "w")
        assert found.read(kueue.Workload).spec.active is False
        conditions = await world.conditions()
        assert conditions["Evicted"] == ("True", "DeactivatedDueToAdmissionCheck")
        assert "DeactivationTarget" not in conditions
        assert conditions["QuotaReserved"] == ("False", "Deactivated")
        assert (await world.events())["AdmissionCheckRejected"] == 1
        stats = (await world.status())["schedulingStats"]["evictions"]
        assert [(entry["reason"], entry["underlyingCause"]) for entry in stats] == [("Deactivated", "AdmissionCheck")]

        await world.change(kueue.WORKLOAD, "w", {"spec": {"active": True}})
        await clock.sleep(5)
        assert (await world.conditions())["Requeued"] == ("True", "Reactivated")
        assert (await world.conditions())["QuotaReserved"][0] == "True"


@on_virtual_time
async def test_pods_that_do_not_get_ready_cost_the_workload_its_place_again_and_again(clock: VirtualClock) -> None:
    settings = Settings(pods_ready=PodsReady(timeout=100, backoff_base=60, backoff_limit=2))
    async with a_world(clock, settings) as world:
        await world.make(a_queue(), a_local_queue(), a_workload())
        await clock.sleep(98)
        assert await world.is_admitted()
        for count, rest in ((1, 60), (2, 120)):
            await clock.sleep(5)
            assert (await world.conditions())["Evicted"] == ("True", "PodsReadyTimeout"), count
            state = (await world.status())["requeueState"]
            until = timestamps.parse(state["requeueAt"]) - clock.now()
            assert state["count"] == count
            assert rest - 10 < until < rest
            await clock.sleep(rest + 1)
            assert await world.is_admitted(), count
            await clock.sleep(97)
        await clock.sleep(10)
        assert (await world.conditions())["Evicted"] == ("True", "DeactivatedDueToRequeuingLimitExceeded")
        expected = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
        assert await world.message("Evicted") == expected
        assert "requeueState" not in await world.status()


@on_virtual_time
async def test_pods_that_fail_may_take_their_own_time_to_come_back(clock: VirtualClock) -> None:
    settings = Settings(pods_ready=PodsReady(timeout=10, recovery_timeout=200))
    async with a_world(clock, settings) as world:
        await world.make(a_queue(), a_local_queue(), a_workload())
        await clock.sleep(3)
        await world.pods_are("True", "Started")
        await clock.sleep(1000)
        assert await world.is_admitted()
        await world.pods_are("False", "WaitForRecovery")
        await clock.sleep(190)
        assert await world.is_admitted()
        await clock.sleep(20)
        assert (await world.conditions())["Evicted"] == ("True", "PodsReadyTimeout")
        stats = (await world.status())["schedulingStats"]["evictions"]
        assert stats[0]["underlyingCause"] == "WaitForRecovery"


@on_virtual_time
async def test_time_that_a_workload_ran_before_counts_against_its_limit(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(), a_local_queue(), a_workload(maximumExecutionTimeSeconds=100))
        await clock.sleep(60)
        await world.change(kueue.CLUSTER_QUEUE, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await clock.sleep(1000)
        assert 55 <= (await world.status())["accumulatedPastExecutionTimeSeconds"] <= 62
        await world.change(kueue.CLUSTER_QUEUE, "cq", {"spec": {"stopPolicy": "None"}})
        await clock.sleep(30)
        assert await world.is_admitted()
        await clock.sleep(20)
        assert (await world.conditions())["Evicted"] == ("True", "DeactivatedDueToMaximumExecutionTimeExceeded")
        assert (await world.events())["MaximumExecutionTimeExceeded"] == 1

        await world.change(kueue.WORKLOAD, "w", {"spec": {"active": True}})
        await clock.sleep(90)
        assert await world.is_admitted(), "whoever reactivates it gives it its whole time again"


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
@pytest.mark.parametrize("kind", [kueue.CLUSTER_QUEUE, kueue.LOCAL_QUEUE], ids=lambda kind: kind.name)
@on_virtual_time
async def test_a_queue_that_stops(clock: VirtualClock, policy: str, kind: Kind) -> None:
    name = "cq" if kind is kueue.CLUSTER_QUEUE else "lq"
    async with a_world(clock) as world:
        await world.make(a_queue(), a_local_queue(), a_workload("runs", "3"), a_workload("waits", "3"))
        await clock.sleep(3)
        assert await world.is_admitted("runs")
        await world.change(kind, name, {"spec": {"stopPolicy": policy}})
        await clock.sleep(5)
        inactive = {"cq": "ClusterQueue cq is inactive", "lq": "LocalQueue lq is inactive"}[name]
        assert (await world.conditions(name="waits"))["QuotaReserved"] == ("False", "Suspended")
        assert await world.message("QuotaReserved", name="waits") == inactive
        if policy == "Hold":
            assert await world.is_admitted("runs")
            assert "Evicted" not in await world.conditions(name="runs")
        else:
            assert (await world.conditions(name="runs"))["Requeued"] == ("False", f"{kind.name}Stopped")
            assert await world.message("QuotaReserved", name="runs") == inactive
            await clock.sleep(100)
            assert not await world.is_admitted("waits"), "what drains makes no room for others"

        await world.change(kind, name, {"spec": {"stopPolicy": "None"}})
        await clock.sleep(5)
        reserved = {name: (await world.conditions(name=name))["QuotaReserved"] for name in ("runs", "waits")}
        assert sorted(reserved.values()) == [("False", "WaitingForQuota"), ("True", "QuotaReserved")]
        if policy == "HoldAndDrain":
            assert (await world.conditions(name="runs"))["Requeued"] == ("True", f"{kind.name}Restarted")


@pytest.mark.parametrize("kind", [kueue.CLUSTER_QUEUE, kueue.LOCAL_QUEUE], ids=lambda kind: kind.name)
@on_virtual_time
async def test_what_has_only_set_quota_aside_gives_it_back_when_its_queue_stops(
    clock: VirtualClock, kind: Kind
) -> None:
    name = "cq" if kind is kueue.CLUSTER_QUEUE else "lq"
    async with a_world(clock) as world:
        await with_check(world)
        await world.change(kind, name, {"spec": {"stopPolicy": "Hold"}})
        await clock.sleep(3)
        assert (await world.conditions())["QuotaReserved"] == ("False", "Suspended")
        assert "admission" not in await world.status()
        assert "Evicted" not in await world.conditions()


@on_virtual_time
async def test_a_workload_that_is_deactivated_stops_and_comes_back_when_it_is_reactivated(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="1"), a_local_queue(), a_workload("w"), a_workload("next"))
        await clock.sleep(2)
        await world.change(kueue.WORKLOAD, "w", {"spec": {"active": False}})
        await clock.sleep(5)
        assert (await world.conditions())["Evicted"] == ("True", "Deactivated")
        assert (await world.conditions())["QuotaReserved"] == ("False", "Deactivated")
        assert (await world.events())["EvictedDueToDeactivated"] == 1
        assert await world.is_admitted("next")

        await world.change(kueue.WORKLOAD, "w", {"spec": {"active": True}})
        await clock.sleep(5)
        assert (await world.conditions())["Requeued"] == ("True", "Reactivated")
        assert (await world.conditions())["QuotaReserved"] == ("False", "WaitingForQuota")


@on_virtual_time
async def test_a_workload_is_told_which_queue_is_missing_and_starts_when_it_comes(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_workload())
        await clock.sleep(2)
        assert (await world.conditions())["QuotaReserved"] == ("False", "Misconfigured")
        assert await world.message("QuotaReserved") == "LocalQueue lq doesn't exist"
        await world.make(a_local_queue())
        await clock.sleep(2)
        assert await world.message("QuotaReserved") == "ClusterQueue cq doesn't exist"
        await world.make(a_queue(flavor="later"))
        await clock.sleep(2)
        assert await world.message("QuotaReserved") == "ClusterQueue cq is inactive"
        await world.make(a_flavor("later"))
        await clock.sleep(3)
        assert await world.is_admitted()


@on_virtual_time
async def test_a_gate_keeps_a_workload_out_until_it_is_removed(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        gated = a_workload()
        gated["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": "example.com/quiet"}
        await world.make(a_queue(), a_local_queue(), gated)
        await clock.sleep(5)
        assert (await world.conditions())["QuotaReserved"] == ("False", "AdmissionGated")
        await world.change(
            kueue.WORKLOAD, "w", {"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": None}}}
        )
        await clock.sleep(5)
        assert await world.is_admitted()
        assert {"AdmissionGated", "AdmissionGateCleared"} <= set(await world.events())


@on_virtual_time
async def test_a_running_workload_loses_nothing_when_its_queues_are_deleted(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(), a_local_queue(), a_workload())
        await clock.sleep(2)
        await world.delete(kueue.LOCAL_QUEUE, "lq")
        await world.delete(kueue.CLUSTER_QUEUE, "cq")
        await clock.sleep(30)
        assert await world.is_admitted()
        assert "Evicted" not in await world.conditions()


@on_virtual_time
async def test_nothing_is_written_when_nothing_changes(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(), a_local_queue(), a_workload("a", "3"), a_workload("b", "3"), a_workload("c", "9"))
        await clock.sleep(10)
        before = world.store.revision
        await clock.sleep(3600)
        assert world.store.revision == before


UNREADABLE: Final[dict[str, Document]] = {
    "a rest until no time": {"requeueState": {"requeueAt": "soon"}},
    "evicted at no time": {"conditions": [condition("Evicted", "AdmissionCheck", "lately")]},
    "amounts that are none": {
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "lots"}}],
        },
        "conditions": [condition("QuotaReserved", "QuotaReserved", "2023-11-14T22:13:21Z")],
    },
}


@pytest.mark.parametrize("case", UNREADABLE)
@on_virtual_time
async def test_a_status_that_cannot_be_read_harms_no_other_workload(clock: VirtualClock, case: str) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="2"), a_local_queue(), a_workload("bad", "100"))
        await clock.sleep(2)
        await world.change(kueue.WORKLOAD, "bad", {"status": UNREADABLE[case]}, is_status=True)
        await clock.sleep(2)
        await world.make(a_workload("fine"))
        await clock.sleep(3)
        assert await world.is_admitted("fine")
        assert (await world.status(kueue.CLUSTER_QUEUE, "cq"))["admittedWorkloads"] == 1
        assert "Unreadable" in await world.events()
