"""A scheduler over a store in memory, on virtual time: what its tests stage, ask and compare."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from muster.api import conditions, core, errors, volcano
from muster.api.objects import Key, Object
from muster.cluster.amounts import allocatable_of, needs_of
from muster.cluster.groups import GroupKey
from muster.cluster.state import FINISHED, ClusterState
from muster.controllers.scheduling import SchedulingController
from muster.placement.engine import Engine, Faulted, default_engine
from muster.placement.framework import Plugin
from muster.placement.in_tree import Shared, default_profile
from muster.placement.profiles import Profile
from muster.placement.queueing.entities import Queued
from muster.placement.scheduling import NO_ADVICE, Advices, Decision
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Delete, Patch, Refused, Result, Selection, Store, Write, write_one
from muster.testing.builders import PodBuilder, a_pod
from muster.testing.staging import stage

Refuse = Callable[[Write], errors.ApiError | None]


def important(name: str, priority: int = 10) -> PodBuilder:
    return a_pod(name).set(priority, "spec", "priority")


class Spy:
    """A store that counts writes, refuses what it is told to, and can be away."""

    def __init__(self, inner: EmbeddedStore) -> None:
        self.inner = inner
        self.refuse: Refuse | None = None
        self.batches: list[Sequence[Write]] = []
        self.is_away = False

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        if self.is_away:
            raise errors.Unavailable("away")
        self.batches.append(writes)
        refused = {n: error for n, write in enumerate(writes) if self.refuse and (error := self.refuse(write))}
        accepted = iter(await self.inner.write([write for n, write in enumerate(writes) if n not in refused]))
        return [Refused(refused[n]) if n in refused else next(accepted) for n in range(len(writes))]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    @property
    def binds(self) -> int:
        return sum(isinstance(write, Bind) for batch in self.batches for write in batch)


def refusing_once(name: str, error: errors.ApiError) -> Refuse:
    """Of the pod's binds, the first."""
    left = [error]

    def refuse(write: Write) -> errors.ApiError | None:
        return left.pop() if left and isinstance(write, Bind) and write.key.name == name else None

    return refuse


class World:
    """`plugins` are added to the default profile; with `binds_first`, in front of it."""

    def __init__(
        self,
        inner: EmbeddedStore,
        clock: VirtualClock,
        plugins: Sequence[Plugin] = (),
        reserve_after: float | None = 60.0,
        binds_first: bool = False,
    ) -> None:
        self.store = Spy(inner)
        self.clock = clock
        self.plugins = plugins
        self.binds_first = binds_first
        self.reserve_after = reserve_after
        self.engine: Engine = default_engine()
        self.decisions: list[Decision | Faulted] = []

    @asynccontextmanager
    async def scheduling(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.controller().run())
            failure: BaseException | None = None
            try:
                yield
            except BaseException as error:
                failure = error
            task.cancel()
        if failure is not None:
            raise failure

    def controller(self) -> SchedulingController:
        store: Store = self.store  # type: ignore[assignment]
        return SchedulingController(store, self.clock, self._make_engine, uses_threads=False)

    def _make_engine(self) -> Engine:
        shared = Shared()
        usual = default_profile(shared)
        weights = {weighted.plugin.name: weighted.weight for weighted in usual.score}  # type: ignore[attr-defined]
        plugins = [*self.plugins, *usual.plugins] if self.binds_first else [*usual.plugins, *self.plugins]
        profile = Profile.of(plugins, weights, placement_weights=weights)
        world = self

        class Watched(Engine):
            def decide(self, attempt: Queued, now: float, advice: Advices = NO_ADVICE) -> Decision | Faulted:
                outcome = super().decide(attempt, now, advice)
                world.decisions.append(outcome)
                return outcome

        self.engine = Watched(
            {profile.scheduler_name: profile}, ClusterState(), shared.groups, reserve_after=self.reserve_after
        )
        return self.engine

    # Questions

    async def pods(self) -> list[Object]:
        return list((await self.store.inner.list(Selection(core.POD))).items)

    async def nodes(self) -> dict[str, str]:
        return {pod.key.name: pod.read(core.Pod).spec.node_name or "" for pod in await self.pods()}

    async def pod(self, name: str) -> core.Pod:
        return (await self.store.inner.get(core.POD, Key("default", name))).read(core.Pod)

    async def reason(self, name: str) -> tuple[str, str]:
        """Of the condition that the pod has no node; empty where there is none."""
        found = conditions.find((await self.pod(name)).status.conditions, "PodScheduled")
        return (found.reason or "", found.message or "") if found and found.status == "False" else ("", "")

    async def told(self, name: str, reason: str) -> dict[str, int]:
        """Messages of the object's events of that reason, and how often each came."""
        found = [item.read(core.Event) for item in (await self.store.inner.list(Selection(core.EVENT))).items]
        mine = [event for event in found if (event.involved_object.name, event.reason) == (name, reason)]
        return {event.message or "": event.count or 0 for event in mine}

    # What others do

    async def stage(self, *wanted: object) -> None:
        await stage(self.store.inner, *wanted)  # type: ignore[arg-type]

    async def finish(self, name: str, phase: str = "Succeeded") -> None:
        patch = Patch(core.POD, Key("default", name), {"status": {"phase": phase}}, subresource="status")
        await write_one(self.store.inner, patch)

    async def delete(self, name: str) -> None:
        await self.store.inner.write([Delete(core.POD, Key("default", name), grace_seconds=0)])

    async def patch_node(self, name: str, body: object) -> None:
        await write_one(self.store.inner, Patch(core.NODE, Key("", name), body))

    async def end_terminating(self) -> None:
        """As agents do, once the processes are gone."""
        for pod in await self.pods():
            if pod.is_terminating:
                await self.store.inner.write([Delete(core.POD, pod.key, grace_seconds=0)])

    # What must hold

    async def check_capacity(self) -> None:
        """Of the store alone: pods that are bound and have not finished fit their nodes."""
        used: Counter[tuple[str, str]] = Counter()
        for pod in await self.pods():
            view = pod.read(core.Pod)
            if view.spec.node_name and view.status.phase not in FINISHED:
                for resource, amount in needs_of(view.spec).items():
                    used[view.spec.node_name, resource] += amount
        for node in (await self.store.inner.list(Selection(core.NODE))).items:
            for resource, most in allocatable_of(node.read(core.Node)).items():
                assert used[node.key.name, resource] <= most, (node.key.name, resource)

    async def check_engine(self) -> None:
        """At rest: what the engine believes is what one built afresh from the store would."""
        nodes = [node.read(core.Node) for node in (await self.store.inner.list(Selection(core.NODE))).items]
        pods = [pod.read(core.Pod) for pod in await self.pods()]
        assert picture(self.engine.cluster) == picture(ClusterState.of(nodes, pods))
        living = [pod for pod in pods if pod.status.phase not in FINISHED]
        pending = [pod for pod in living if not pod.spec.node_name and pod.metadata.deletion_timestamp is None]
        assert self.engine.queue.counts().pods == len(pending)
        for group in (await self.store.inner.list(Selection(volcano.POD_GROUP))).items:
            members = self.engine.groups.members(GroupKey(*group.key))
            mine = [pod for pod in living if (pod.metadata.annotations or {}).get(GROUP) == group.key.name]
            assert not members.assumed
            assert members.bound.keys() == {pod.metadata.uid for pod in mine if pod.spec.node_name}

    async def rest(self) -> None:
        """Until nothing is being written any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(120):
                while True:
                    count = len(self.store.batches)
                    await self.clock.sleep(15)
                    if len(self.store.batches) == count:
                        return


GROUP = "scheduling.k8s.io/group-name"


def picture(state: ClusterState) -> object:
    """What is where, whatever the order in which it came."""
    return {
        name: (
            {resource: (int(state.allocatable[row, slot]), int(state.used[row, slot]))
             for resource, row in state.resources.items() if state.allocatable[row, slot] or state.used[row, slot]},
            (int(state.nonzero[0, slot]), int(state.nonzero[1, slot])),
            bool(state.unschedulable[slot]),
            state.taint_sets[state.taint_code[slot]],
            sorted(state.pods_on[slot]),
        )
        for name, slot in state.slots.items()
    }  # fmt: skip
