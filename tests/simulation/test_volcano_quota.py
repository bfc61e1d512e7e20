"""Volcano Jobs that queue, on virtual time: they wait, run, grow and shrink as quota comes and goes."""

from pathlib import Path

from tests.simulation.volcano_quota_platform import a_task, a_volcano_platform, holds

from muster.api.raw import Document
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time


def a_priority_class(name: str, value: int) -> Document:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


@on_virtual_time
async def test_a_second_job_waits_for_the_first(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=3) as up:
        await up.submit("a", a_task("w", 3, "sleep", "20"))
        await clock.sleep(1)
        await up.submit("b", a_task("w", 2, "sleep", "20"))
        await clock.sleep(5)
        assert await up.phases("a") == {"Running": 3}
        assert await up.phase("a") == ("Running", None)
        assert await up.phase("b") == ("Pending", "WaitingForQuota")
        assert await up.group("b") == "Pending"
        assert not await up.pods("b")
        await clock.sleep(20)
        assert await up.phase("a") == ("Completed", None)
        assert await up.phase("b") == ("Running", None)
        await clock.sleep(25)
        assert await up.phase("b") == ("Completed", None)
        assert await up.workloads("a") == await up.workloads("b") == ([], [])


@on_virtual_time
async def test_an_elastic_job_grows_and_shrinks_with_quota(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=4, preemption={"withinClusterQueue": "LowerPriority"}) as up:
        await up.platform.make(a_priority_class("high", 100))
        await up.submit("first", a_task("w", 2, "sleep", "20"))
        await clock.sleep(2)
        await up.submit("elastic", a_task("w", 4, "sleep", "1000", minAvailable=1), minAvailable=1)
        await clock.sleep(3)
        assert await up.phases("elastic") == {"Running": 2}, "as many as there is quota for"
        (base,), parts = await up.workloads("elastic")
        assert holds(base, "Admitted")
        assert sorted(holds(part, "Admitted") for part in parts) == [False, False, True]

        await clock.sleep(20)
        assert await up.phases("elastic") == {"Running": 4}, "grown, since the first job is over"

        await up.submit("urgent", a_task("w", 2, "sleep", "30"), priorityClassName="high")
        await clock.sleep(10)
        assert await up.phases("urgent") == {"Running": 2}
        assert sorted(await up.pods("elastic")) == ["elastic-w-0", "elastic-w-1"], "the highest numbers have gone"
        assert await up.phase("elastic") == ("Running", None)
        await clock.sleep(40)
        assert await up.phases("elastic") == {"Running": 4}


@on_virtual_time
async def test_a_preempted_job_ends_its_pods_and_runs_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=2, preemption={"withinClusterQueue": "LowerPriority"}) as up:
        await up.platform.make(a_priority_class("high", 100))
        await up.submit("low", a_task("w", 2, "sleep", "60"))
        await clock.sleep(5)
        await up.submit("high", a_task("w", 2, "sleep", "30"), priorityClassName="high")
        await clock.sleep(10)
        assert await up.phase("low") == ("Pending", "WaitingForQuota")
        assert await up.group("low") == "Pending"
        assert await up.phases("low") == {}
        assert await up.phases("high") == {"Running": 2}
        await clock.sleep(40)
        assert await up.phases("low") == {"Running": 2}
        assert not (await up.job("low")).status.retry_count
        await clock.sleep(70)
        assert await up.phase("low") == ("Completed", None)


@on_virtual_time
async def test_an_aborted_job_gives_its_quota_back_and_queues_when_it_is_resumed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=2) as up:
        await up.submit("a", a_task("w", 2, "sleep", "100"))
        await clock.sleep(3)
        await up.submit("b", a_task("w", 2, "sleep", "20"))
        await clock.sleep(3)
        await up.command("a", "AbortJob")
        await clock.sleep(8)
        assert (await up.phase("a"))[0] == "Aborted"
        assert await up.phases("b") == {"Running": 2}
        await up.command("a", "ResumeJob")
        await clock.sleep(5)
        assert await up.phase("a") == ("Pending", "WaitingForQuota")
        await clock.sleep(30)
        assert await up.phases("a") == {"Running": 2}
        assert (await up.job("a")).status.retry_count == 1

        await up.submit("c", a_task("w", 2, "sleep", "20"))
        await clock.sleep(3)
        await up.command("c", "AbortJob")
        await clock.sleep(3)
        assert (await up.phase("c"))[0] == "Aborted", "also while it waits"
        await up.command("c", "ResumeJob")
        await up.command("a", "TerminateJob")
        await clock.sleep(10)
        assert (await up.phase("a"))[0] == "Terminated"
        assert await up.phases("c") == {"Running": 2}


@on_virtual_time
async def test_a_running_job_is_resized_without_being_stopped(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_volcano_platform(clock, tmp_path, cpu=6) as up:
        await up.submit("j", a_task("w", 2, "sleep", "1000"))
        await clock.sleep(3)
        before = {name: pod.metadata.uid for name, pod in (await up.pods("j")).items()}
        await up.resize("j", {"w": 4})
        await clock.sleep(5)
        assert await up.phases("j") == {"Running": 4}
        (base,), parts = await up.workloads("j")
        assert (base.spec.pod_sets[0].count, len(parts)) == (2, 2), "what it needs is what it was"

        await up.resize("j", {"w": 2})
        await clock.sleep(10)
        assert await up.phases("j") == {"Running": 2}
        (base,), parts = await up.workloads("j")
        assert (base.spec.pod_sets[0].count, len(parts)) == (2, 0)

        await up.resize("j", {"w": 5}, minimum=5)
        await clock.sleep(5)
        assert await up.phases("j") == {"Running": 5}
        (base,), parts = await up.workloads("j")
        assert (base.spec.pod_sets[0].count, len(parts)) == (5, 0), "a slice that has taken the place of the first"

        await up.resize("j", {"w": 7}, minimum=7)
        await clock.sleep(5)
        assert await up.phases("j") == {"Running": 5}, "there is no quota for seven"
        await up.resize("j", {"w": 1}, minimum=1)
        await clock.sleep(10)
        assert await up.phases("j") == {"Running": 1}
        (base,), parts = await up.workloads("j")
        assert (base.spec.pod_sets[0].count, len(parts)) == (1, 0)
        after = {name: pod.metadata.uid for name, pod in (await up.pods("j")).items()}
        assert after["j-w-0"] == before["j-w-0"], "never stopped"
