"""Leader election on virtual time: two candidates, one store, and everything that goes wrong between them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import coordination, errors
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.runtime.clock import VirtualClock, run_virtual
from muster.runtime.leases import LeaderElector
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Event, Page, Result, Revision, Selection, Store, Write
from muster.testing.virtual import on_virtual_time

KEY = Key("kube-system", "muster")


@dataclass
class Link:
    """One candidate's way to the store: it can hang (nothing comes back, writes may still arrive) or refuse."""

    inner: Store
    clock: VirtualClock
    mode: str = "up"

    async def get(self, kind: Kind, key: Key) -> Object:
        await self._pass()
        return await self.inner.get(kind, key)

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        if self.mode == "answers lost":
            await self.inner.write(writes)
            await asyncio.Event().wait()
        await self._pass()
        return await self.inner.write(writes)

    async def _pass(self) -> None:
        if self.mode == "hangs":
            await asyncio.Event().wait()
        if self.mode == "refuses":
            raise errors.Unavailable("away")

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        return await self.inner.list(selection, limit=limit, token=token)

    def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        return self.inner.watch(selection, since=since, bookmarks=bookmarks)


@dataclass
class Scene:
    clock: VirtualClock
    leaders: set[str] = field(default_factory=set)
    history: list[tuple[float, str]] = field(default_factory=list)

    async def candidate(self, name: str, link: Link) -> None:
        elector = LeaderElector(link, self.clock, name=KEY.name, namespace=KEY.namespace, identity=name)

        async def lead() -> None:
            self.leaders.add(name)
            self.history.append((self.clock.monotonic(), name))
            assert self.leaders == {name}, "two leaders at once"
            assert elector.is_leading
            try:
                await asyncio.Event().wait()
            finally:
                self.leaders.discard(name)

        await elector.run(lead)


@on_virtual_time
async def test_one_leads_and_the_other_takes_over_at_once_when_it_leaves(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as group:
        scene = Scene(clock)
        first = group.create_task(scene.candidate("a", Link(store, clock)), name="a")
        await clock.sleep(1)
        second = group.create_task(scene.candidate("b", Link(store, clock)), name="b")
        await clock.sleep(120)
        assert scene.leaders == {"a"}
        left = clock.monotonic()
        first.cancel()
        await clock.sleep(5)
        assert scene.leaders == {"b"}
        assert scene.history[-1][0] - left < 3, "a released lease need not be waited out"
        lease = (await store.get(coordination.LEASE, KEY)).read(coordination.Lease).spec
        assert (lease.holder_identity, lease.lease_transitions, lease.lease_duration_seconds) == ("b", 1, 15)
        second.cancel()


@pytest.mark.parametrize("mode", ["hangs", "refuses", "answers lost"])
def test_a_leader_that_cannot_renew_steps_down_before_the_other_takes_over(mode: str) -> None:
    async def main(clock: VirtualClock) -> None:
        async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as group:
            scene, link = Scene(clock), Link(store, clock)
            tasks = [group.create_task(scene.candidate("a", link), name="a")]
            await clock.sleep(1)
            tasks.append(group.create_task(scene.candidate("b", Link(store, clock)), name="b"))
            await clock.sleep(60)
            link.mode = mode
            await clock.sleep(12)
            assert "a" not in scene.leaders
            await clock.sleep(60)
            assert scene.leaders == {"b"}
            link.mode = "up"
            await clock.sleep(60)
            assert scene.leaders == {"b"}
            for task in tasks:
                task.cancel()

    run_virtual(main)


@on_virtual_time
async def test_a_process_that_was_stopped_knows_that_it_does_not_lead(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        elector = LeaderElector(store, clock, name="muster", namespace="kube-system", identity="a")
        seen = []

        async def lead() -> None:
            seen.append(elector.is_leading)
            loop = asyncio.get_running_loop()
            loop.virtual_time += 20  # type: ignore[attr-defined]  # the whole process stood still
            seen.append(elector.is_leading)

        await elector.run(lead)
        assert seen == [True, False]


@on_virtual_time
async def test_run_ends_with_what_it_ran_and_releases(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        elector = LeaderElector(store, clock, name="muster", namespace="kube-system", identity="a")
        await elector.run(lambda: clock.sleep(30))
        assert not elector.is_leading
        assert not (await store.get(coordination.LEASE, KEY)).read(coordination.Lease).spec.holder_identity

        async def fail() -> None:
            raise ValueError("broken")

        with pytest.raises(ExceptionGroup) as caught:
            await elector.run(fail)
        assert caught.group_contains(ValueError, match="broken")
        assert not (await store.get(coordination.LEASE, KEY)).read(coordination.Lease).spec.holder_identity


_MODES = st.sampled_from(["up", "hangs", "refuses", "answers lost"])


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from("ab"), _MODES, st.floats(0.1, 40)), max_size=15))
def test_there_are_never_two_leaders_and_one_again_once_the_links_are_up(steps: list[tuple[str, str, float]]) -> None:
    async def main(clock: VirtualClock) -> None:
        async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as group:
            scene = Scene(clock)
            links = {name: Link(store, clock) for name in "ab"}
            tasks = [group.create_task(scene.candidate(name, links[name]), name=name) for name in "ab"]
            for name, mode, seconds in steps:
                links[name].mode = mode
                await clock.sleep(seconds)
            for link in links.values():
                link.mode = "up"
            await clock.sleep(60)
            assert len(scene.leaders) == 1
            for task in tasks:
                task.cancel()

    run_virtual(main)
