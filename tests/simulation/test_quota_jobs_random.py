"""Many jobs, seeded, on virtual time, with pauses, deletions and restarts: quota is never exceeded, and all run."""

import random
from pathlib import Path

import pytest
from tests.simulation.quota_platform import Platform, a_class, a_flavor, a_platform, a_queue

from muster.api import batch, conditions, core, errors, kueue
from muster.runtime.clock import VirtualClock
from muster.runtime.informers import Informer
from muster.store.protocol import Change, Event, Selection
from muster.testing.virtual import on_virtual_time

QUOTA = 6
QUEUES = ("red", "blue")
PRIORITY = "kueue.x-k8s.io/priority-class"
QUEUE = "kueue.x-k8s.io/cluster-queue-name"


class Watchman:
    """Sees every state of every pod: the most CPUs that pods of a queue ever held on nodes."""

    def __init__(self, platform: Platform) -> None:
        self._held: dict[str, tuple[str, int]] = {}
        self.most = dict.fromkeys(QUEUES, 0)
        self._informer = Informer(platform.store, Selection(core.POD), clock=platform.clock)
        self._informer.on_event(self._heard)
        self._task = platform.group.create_task(self._informer.run())

    def _heard(self, event: Event) -> None:
        assert event.object is not None
        pod = event.object.read(core.Pod)
        self._held.pop(event.object.uid, None)
        is_over = event.change is Change.DELETED or pod.status.phase in ("Succeeded", "Failed")
        resources = pod.spec.containers[0].resources
        if pod.spec.node_name and not is_over and resources is not None:
            queue = (pod.metadata.labels or {}).get(QUEUE, "")
            self._held[event.object.uid] = queue, int((resources.requests or {})["cpu"])
        for queue in self.most:
            self.most[queue] = max(self.most[queue], sum(cpu for name, cpu in self._held.values() if name == queue))

    def stop(self) -> None:
        self._task.cancel()


async def something(platform: Platform, entropy: random.Random, names: list[str], *, deletes: bool) -> None:
    """What a user, or the machine, may do."""
    choice = entropy.random()
    name = entropy.choice(names)
    try:
        if choice < 0.1:
            platform.stop_quota()
            await platform.clock.sleep(entropy.uniform(0.1, 3))
            platform.start_quota()
        elif choice < 0.3 and name.startswith("free"):
            await platform.patch(batch.JOB, name, {"spec": {"suspend": True}})
            await platform.clock.sleep(entropy.uniform(0.0, 4))
            await platform.patch(batch.JOB, name, {"spec": {"suspend": False}})
        elif choice < 0.4:
            await platform.delete(kueue.WORKLOAD, (await platform.workload(name)).metadata.name)
        elif choice < 0.5 and deletes:
            names.remove(name)
            await platform.delete(batch.JOB, name)
    except (errors.NotFound, ValueError):
        return  # it is over, or has none yet


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("deletes", [False, True], ids=["", "with deletions"])
def test_quota_is_never_exceeded_and_all_get_to_run(seed: int, deletes: bool, tmp_path: Path) -> None:
    """Not so where jobs are deleted: their quota is free at once, while their pods end."""

    @on_virtual_time
    async def life(clock: VirtualClock) -> None:
        entropy = random.Random(seed)
        async with a_platform(clock, tmp_path) as platform:
            watchman = Watchman(platform)
            await platform.make(a_flavor(), a_class("low", 1), a_class("high", 9))
            for queue in QUEUES:
                await platform.make(*a_queue(queue, QUOTA, preemption={"withinClusterQueue": "LowerPriority"}))
            names: list[str] = []
            for number in range(30):
                queue = entropy.choice(("", *QUEUES))
                names.append(f"{queue or 'free'}-{number}")
                pods = entropy.randint(1, 3)
                await platform.submit(
                    names[-1], "sleep", str(entropy.randint(1, 15)), queue=queue, cpu=entropy.randint(1, 2),
                    metadata={"labels": {PRIORITY: entropy.choice(("low", "high"))}},
                    parallelism=pods, completions=entropy.randint(pods, 4),
                )  # fmt: skip
                await something(platform, entropy, names, deletes=deletes)
                await clock.sleep(entropy.uniform(0, 2))
            await clock.sleep(600)
            watchman.stop()
            assert deletes or max(watchman.most.values()) <= QUOTA
            assert min(watchman.most.values()) > QUOTA // 2
            for name in names:
                assert conditions.is_true((await platform.job(name)).status.conditions, "Complete"), name
            left = [found.read(kueue.Workload) for found in (await platform.workloads()).values()]
            assert {found.metadata.owner_references[0].name for found in left} <= set(names)
            assert all(conditions.is_true(found.status.conditions, "Finished") for found in left)

    life()
