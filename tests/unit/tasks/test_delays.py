"""What people are told of why their task waits."""

import asyncio

from tests.unit.tasks.service_worlds import ID, World, alive

from muster.api import core, kueue
from muster.api.meta import Condition, ObjectMeta
from muster.engines import pod_reasons
from muster.engines.protocol import AllocationId
from muster.runtime.clock import VirtualClock
from muster.tasks.delays import Delays
from muster.testing.virtual import on_virtual_time


async def told_over_time(clock: VirtualClock, reasons: dict[float, str], until: float) -> list[tuple[float, str]]:
    """By when each was heard: what was told when."""
    told: list[tuple[float, str]] = []
    begun = clock.monotonic()

    async def tell(_allocation: AllocationId, text: str) -> None:
        told.append((round(clock.monotonic() - begun, 3), text))

    delays = Delays(clock, tell)
    running = asyncio.create_task(delays.run())
    for when, reason in reasons.items():
        await clock.sleep(begun + when - clock.monotonic())
        delays.heard(ID, reason)
    await clock.sleep(begun + until - clock.monotonic())
    running.cancel()
    return told


@on_virtual_time
async def test_only_what_has_changed_is_told_and_the_latest_of_it(clock: VirtualClock) -> None:
    reasons = {0.0: "a", 5.0: "b", 6.0: "c", 90.0: "c", 100.0: "d"}
    assert await told_over_time(clock, reasons, 1000) == [(1.0, "waits: a"), (61.0, "waits: c"), (181.0, "waits: d")]


@on_virtual_time
async def test_a_reason_that_changes_all_the_time_fills_no_log(clock: VirtualClock) -> None:
    day = 86_400.0
    told = await told_over_time(clock, {30.0 * number: f"{number} ahead" for number in range(int(day / 30))}, day)
    assert 20 < len(told) < 40


@on_virtual_time
async def test_what_runs_soon_or_ends_is_not_explained(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        life.engine.delay(ID, "somebody was faster")
        await clock.sleep(60)
        assert not [text for _, _, text in world.lines.told if "faster" in text]


def a_condition(type: str, status: str, message: str) -> Condition:
    return Condition(type=type, status=status, message=message)


def test_the_words_of_quota() -> None:
    def words(*found: Condition) -> str:
        return pod_reasons.of_workload(kueue.Workload(status=kueue.WorkloadStatus(conditions=found)))

    missing = a_condition("QuotaReserved", "False", "1 missing")
    assert words() == ""
    assert words(missing) == "1 missing"
    assert words(missing, a_condition("Waiting", "True", "third in line")) == "third in line"
    assert words(a_condition("QuotaReserved", "True", "here"), a_condition("Waiting", "True", "late")) == ""


def test_the_words_of_nodes() -> None:
    def words(node: str, reason: str, message: str = "") -> str:
        waiting = core.ContainerState(waiting=core.ContainerStateWaiting(reason=reason, message=message))
        status = core.PodStatus(container_statuses=(core.ContainerStatus(name="main", state=waiting),))
        return pod_reasons.of_pod(
            core.Pod(metadata=ObjectMeta(name="p"), spec=core.PodSpec(node_name=node), status=status)
        )

    assert words("n1", "ContainerCreating") == ""
    assert words("n1", "CreateContainerConfigError", "no secret") == "p on n1: CreateContainerConfigError: no secret"
    placed = core.PodStatus(conditions=(a_condition("PodScheduled", "False", "0/1 nodes"),))
    assert pod_reasons.of_pod(core.Pod(status=placed)) == "0/1 nodes"
    assert pod_reasons.of_pod(core.Pod()) == ""
