"""What queues and cohorts say about themselves."""

from fractions import Fraction
from typing import Final

import pytest
from tests.unit.controllers.quota_worlds import (
    GROUP,
    World,
    a_check,
    a_flavor,
    a_local_queue,
    a_queue,
    a_workload,
    a_world,
)

from muster.api import kueue, timestamps
from muster.api.raw import JSON, Document
from muster.quota.settings import AdmissionFairSharing, FairSharing, Settings
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time

CQ: Final = kueue.CLUSTER_QUEUE
USAGE_BASED: Final = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}


def a_cohort(name: str, **spec: JSON) -> Document:
    return {"apiVersion": GROUP, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def usage(total: str, borrowed: str | None = None) -> list[Document]:
    entry = {"name": "cpu", "total": total} | ({"borrowed": borrowed} if borrowed is not None else {})
    return [{"name": "f", "resources": [entry]}]


@on_virtual_time
async def test_a_queue_counts_who_waits_holds_quota_and_runs(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        checked = {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}}
        await world.make(a_check("a"))
        await world.activate_check("a")
        names = ("one", "two", "three")
        await world.make(a_queue(cpu="3", cohortName="c", more=checked), a_queue("lender", "10", cohortName="c"))
        await world.make(a_local_queue(), *(a_workload(name, "5") for name in names))
        await clock.sleep(4)
        reserved = {name: (await world.conditions(name=name))["QuotaReserved"][0] for name in names}
        first = next(name for name in names if reserved[name] == "True")
        await world.set_check("a", "Ready", first)
        await clock.sleep(3)

        status = await world.status(CQ, "cq")
        counts = (status["pendingWorkloads"], status["reservingWorkloads"], status["admittedWorkloads"])
        assert counts == (1, 2, 1)
        assert status["flavorsReservation"] == usage("10", "7")
        assert status["flavorsUsage"] == usage("5", "2")
        assert (await world.conditions(CQ, "cq"))["Active"] == ("True", "Ready")
        assert await world.message("Active", CQ, "cq") == "Can admit new workloads"
        assert "fairSharing" not in status
        local = await world.status(kueue.LOCAL_QUEUE, "lq")
        assert (local["pendingWorkloads"], local["reservingWorkloads"], local["admittedWorkloads"]) == (1, 2, 1)
        assert (local["flavorsReservation"], local["flavorsUsage"]) == (usage("10"), usage("5"))

        finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", **_at(clock)}
        for name in names:
            await world.change(kueue.WORKLOAD, name, {"status": {"conditions": [finished]}}, is_status=True)
        await clock.sleep(3)
        status = await world.status(CQ, "cq")
        assert (status["pendingWorkloads"], status["reservingWorkloads"], status["admittedWorkloads"]) == (0, 0, 0)
        assert status["flavorsReservation"] == status["flavorsUsage"] == usage("0", "0")


def _at(clock: VirtualClock) -> Document:
    return {"lastTransitionTime": timestamps.to_text(clock.now())}


CHECKED: Final = {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}
INACTIVE: Final[dict[str, tuple[list[Document], str, str]]] = {
    "a flavor that is missing": (
        [a_queue(flavor="gone")],
        "FlavorNotFound",
        "Can't admit new workloads: references missing ResourceFlavor(s): gone.",
    ),
    "a check that is missing, and one that nobody runs": (
        [a_check("b"), a_queue(more=CHECKED)],
        "AdmissionCheckNotFound",
        "Can't admit new workloads: references missing AdmissionCheck(s): a, references inactive AdmissionCheck(s): b.",
    ),
    "checks that nobody runs": (
        [a_check("a"), a_check("b"), a_queue(more=CHECKED)],
        "AdmissionCheckInactive",
        "Can't admit new workloads: references inactive AdmissionCheck(s): a,b.",
    ),
    "stopped, and a flavor is missing": (
        [a_queue(flavor="gone", stopPolicy="Hold")],
        "Stopped",
        "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): gone.",
    ),
    "a flavor whose topology is missing": (
        [a_flavor("racks", topologyName="gone", nodeLabels={"pool": "gpu"}), a_queue(flavor="racks")],
        "TopologyNotFound",
        "Can't admit new workloads: there is no Topology gone for TAS flavor(s).",
    ),
    "cohorts that are each other's parents": (
        [
            a_cohort("b", parentName="c"),
            a_cohort("c", parentName="a"),
            a_cohort("a", parentName="b"),
            a_cohort("below", parentName="c"),
            a_queue(cohortName="below"),
        ],
        "CohortCycle",
        "Can't admit new workloads: its cohorts form a cycle: a -> b -> c -> a.",
    ),
}


@pytest.mark.parametrize("case", INACTIVE)
@on_virtual_time
async def test_a_queue_that_cannot_admit_says_why_and_others_go_on(clock: VirtualClock, case: str) -> None:
    documents, reason, message = INACTIVE[case]
    async with a_world(clock) as world:
        await world.make(*documents, a_local_queue(), a_queue("other"), a_local_queue("beside", "other"))
        await clock.sleep(1)
        await world.make(a_workload(), a_workload("neighbour", queue="beside"))
        await clock.sleep(5)
        assert (await world.conditions(CQ, "cq"))["Active"] == ("False", reason)
        assert await world.message("Active", CQ, "cq") == message
        active = (await world.conditions(kueue.LOCAL_QUEUE, "lq"))["Active"]
        assert active == ("False", "ClusterQueueIsInactive")
        assert (await world.conditions())["QuotaReserved"] == ("False", "Suspended")
        assert await world.message("QuotaReserved") == "ClusterQueue cq is inactive"
        assert await world.is_admitted("neighbour")


@on_virtual_time
async def test_a_circle_that_is_broken_lets_its_queues_go_on(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cohortName="a"), a_local_queue(), a_workload("before"))
        await clock.sleep(2)
        await world.make(a_cohort("a", parentName="b"), a_cohort("b", parentName="a"))
        await clock.sleep(1)
        await world.make(a_workload("during"))
        await clock.sleep(2)
        assert (await world.conditions(CQ, "cq"))["Active"] == ("False", "CohortCycle")
        assert await world.is_admitted("before")
        assert not await world.is_admitted("during")
        await world.change(kueue.COHORT, "b", {"spec": {"parentName": None}})
        await clock.sleep(3)
        assert (await world.conditions(CQ, "cq"))["Active"] == ("True", "Ready")
        assert await world.is_admitted("during")


@on_virtual_time
async def test_a_local_queue_says_where_it_leads(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_local_queue())
        await clock.sleep(2)
        assert (await world.conditions(kueue.LOCAL_QUEUE, "lq"))["Active"] == ("False", "ClusterQueueDoesNotExist")
        await world.make(a_queue())
        await clock.sleep(2)
        assert (await world.conditions(kueue.LOCAL_QUEUE, "lq"))["Active"] == ("True", "Ready")
        await world.change(kueue.LOCAL_QUEUE, "lq", {"spec": {"stopPolicy": "Hold"}})
        await clock.sleep(2)
        assert (await world.conditions(kueue.LOCAL_QUEUE, "lq"))["Active"] == ("False", "Stopped")


@on_virtual_time
async def test_quota_that_is_taken_away_takes_nothing_from_those_who_run(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="4"), a_local_queue(), a_workload("runs", "3"), a_workload("waits", "2"))
        await clock.sleep(2)
        assert "QuotaExceeded" not in await world.conditions(CQ, "cq")
        await world.change(CQ, "cq", {"spec": a_queue(cpu="2")["spec"]})
        await clock.sleep(5)
        assert await world.is_admitted("runs")
        assert not await world.is_admitted("waits")
        assert (await world.conditions(CQ, "cq"))["Active"] == ("True", "Ready")
        assert (await world.conditions(CQ, "cq"))["QuotaExceeded"] == ("True", "UsageAboveQuota")
        assert (await world.message("QuotaExceeded", CQ, "cq")).endswith("until usage falls by 1 cpu of flavor f")
        await world.delete(kueue.WORKLOAD, "runs")
        await clock.sleep(5)
        assert await world.is_admitted("waits")
        assert (await world.conditions(CQ, "cq"))["QuotaExceeded"] == ("False", "WithinQuota")


@on_virtual_time
async def test_shares_are_told_where_sharing_is_fair(clock: VirtualClock) -> None:
    async with a_world(clock, Settings(fair_sharing=FairSharing())) as world:
        await world.make(a_cohort("team", parentName="all"), a_cohort("all"))
        await world.make(a_queue(cpu="2", cohortName="team"), a_queue("lender", "8", cohortName="all"))
        await world.make(a_local_queue(), a_workload("w", "4"))
        await clock.sleep(4)
        assert await world.is_admitted()
        assert (await world.status(CQ, "cq"))["fairSharing"] == {"weightedShare": 200}
        assert (await world.status(kueue.COHORT, "team"))["fairSharing"] == {"weightedShare": 200}
        assert (await world.status(CQ, "lender"))["fairSharing"] == {"weightedShare": 0}
        await world.delete(kueue.WORKLOAD, "w")
        await clock.sleep(4)
        assert (await world.status(kueue.COHORT, "team"))["fairSharing"] == {"weightedShare": 0}


@on_virtual_time
async def test_past_usage_is_sampled_kept_in_the_status_and_read_again_after_a_restart(clock: VirtualClock) -> None:
    sharing = AdmissionFairSharing(half_life=100, sampling_interval=100, weights={"cpu": Fraction(1)})
    settings = Settings(admission_fair_sharing=sharing)
    async with a_world(clock, settings) as world:
        await world.make(a_queue(more=USAGE_BASED), a_local_queue(), a_workload("w", "2"))
        await clock.sleep(130)
        told = await fair_status(world)
        consumed = _cpu(told)
        assert 1.4 < consumed < 1.6, "a penalty of 1 core at entry, of which half is left, and half of 2 cores"
        await world.delete(kueue.WORKLOAD, "w")
        await clock.sleep(110)
        faded = _cpu(await fair_status(world))
        assert faded == pytest.approx(consumed / 2, rel=0.1)
        assert (await fair_status(world))["lastUpdate"] > told["lastUpdate"]

        restarted = type(world.quota)(world.store, clock, settings)
        door = (await world.get(kueue.LOCAL_QUEUE, "lq")).read(kueue.LocalQueue)
        restarted.engine.local_queue_changed(door, clock.now())
        ledger = restarted.engine.pending.ledger
        assert ledger is not None
        assert ledger.usage("default/lq") == pytest.approx(faded)


async def fair_status(world: World) -> Document:
    found: Document = (await world.status(kueue.LOCAL_QUEUE, "lq"))["fairSharing"]["admissionFairSharingStatus"]
    return found


def _cpu(told: Document) -> float:
    text = str(told["consumedResources"]["cpu"])
    units = {"m": 1e-3, "u": 1e-6, "n": 1e-9}
    return float(text[:-1]) * units[text[-1]] if text[-1] in units else float(text)


@on_virtual_time
async def test_a_burst_of_changes_is_told_in_few_writes(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="100"), a_local_queue())
        await clock.sleep(2)
        revisions = []
        for number in range(50):
            await world.make(a_workload(f"w{number}"))
            await clock.sleep(0.02)
            revisions.append((await world.get(CQ, "cq")).revision)
        assert len(set(revisions)) <= 4
        await clock.sleep(2)
        assert (await world.status(CQ, "cq"))["admittedWorkloads"] == 50
