"""The example of an admission check in the guide, run beside the real controllers."""

from typing import Final

from examples import admission_check
from examples.admission_check import Approval
from tests.unit.controllers.quota_worlds import GROUP, World, a_local_queue, a_queue, a_workload, a_world

from muster.api import kueue
from muster.api.raw import Document
from muster.runtime.clock import VirtualClock
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

CHECKED: Final[Document] = {"admissionChecksStrategy": {"admissionChecks": [{"name": "boss"}]}}


async def set_up(world: World) -> None:
    check = {"metadata": {"name": "boss"}, "spec": {"controllerName": admission_check.CONTROLLER}}
    await world.make({"apiVersion": GROUP, "kind": "AdmissionCheck", **check})
    await world.make(a_queue(more=CHECKED), a_local_queue(), a_workload())
    await world.clock.sleep(5)


async def answer(world: World, text: str) -> None:
    body = {"metadata": {"annotations": {admission_check.ANSWER: text}}}
    await world.change(kueue.WORKLOAD, "w", body)
    await world.clock.sleep(5)


async def state(world: World) -> str:
    return str((await world.status())["admissionChecks"][0]["state"])


@on_virtual_time
async def test_a_workload_waits_for_its_approval(clock: VirtualClock) -> None:
    async with a_world(clock) as world, running(Approval(world.store, clock).run):
        await set_up(world)
        assert (await world.conditions(kueue.CLUSTER_QUEUE, "cq"))["Active"] == ("True", "Ready")
        assert (await world.conditions())["QuotaReserved"][0] == "True"
        assert not await world.is_admitted()

        await answer(world, "later")
        assert (await world.conditions())["Evicted"] == ("True", "AdmissionCheck")
        assert (await world.conditions())["QuotaReserved"][0] == "False"
        await answer(world, "yes")
        assert not await world.is_admitted(), "it rests first"
        await clock.sleep(admission_check.LATER_SECONDS)
        assert await world.is_admitted()
        assert await state(world) == "Ready"


@on_virtual_time
async def test_a_workload_that_is_not_approved_is_deactivated(clock: VirtualClock) -> None:
    async with a_world(clock) as world, running(Approval(world.store, clock).run):
        await set_up(world)
        await answer(world, "no")
        assert (await world.get(kueue.WORKLOAD, "w")).read(kueue.Workload).spec.active is False
        assert (await world.conditions())["Evicted"] == ("True", "DeactivatedDueToAdmissionCheck")
