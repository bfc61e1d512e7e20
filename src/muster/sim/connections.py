"""A simulated server, and the connections of others to it: real store underneath, faults in between.

What a connection does to its user is no more than a network and a store may do: the promises of `Store` hold.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import TypeGuard

from muster.api import errors
from muster.api.kinds import Kind
from muster.api.managing import take_in
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock
from muster.sim.plans import BotherExtender, Storm
from muster.sim.tape import Tape, Tear
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Event, Page, Patch, Replace, Result, Revision, Selection, Store, Write


class Server:
    """One store after another over the same tape. Tasks of a store that has crashed end with `tasks`."""

    def __init__(self, tape: Tape, clock: Clock, entropy: random.Random, tasks: asyncio.TaskGroup) -> None:
        self.tape = tape
        self.store: EmbeddedStore | None = None
        self._clock = clock
        self._entropy = entropy
        self._tasks = tasks
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._serving is not None:
            await asyncio.wait([self._serving])
        ready = asyncio.Event()
        self._serving = self._tasks.create_task(self._serve(ready), name="simulated server")
        await ready.wait()

    def crash(self, fate: Tear) -> None:
        """Without an answer to anybody; what is being committed has this fate."""
        self.store = None
        self.tape.crash(fate)
        if self._serving is not None:
            self._serving.cancel()

    async def _serve(self, ready: asyncio.Event) -> None:
        made = EmbeddedStore(self.tape, clock=self._clock, entropy=self._entropy, take_in=take_in)
        async with made:
            self.store = made
            ready.set()
            await asyncio.Event().wait()

    def reach(self) -> EmbeddedStore:
        if self.store is None:
            raise OSError("connection refused")
        return self.store


class Weather:
    """How connections are, or an extender: calm, but for what has been called up. Shared by all that suffer it."""

    def __init__(self) -> None:
        self._storms: list[tuple[Storm | BotherExtender, random.Random]] = []

    def begin(self, storm: Storm | BotherExtender) -> None:
        self._storms.append((storm, random.Random(storm.seed)))  # noqa: S311  a simulation

    def end(self, storm: Storm | BotherExtender) -> None:
        self._storms = [pair for pair in self._storms if pair[0] is not storm]

    @property
    def is_calm(self) -> bool:
        return not self._storms

    def strikes(self, what: str) -> bool:
        return bool(self._storms) and any(chance.random() < getattr(storm, what) for storm, chance in self._storms)

    def delay(self) -> float:
        return sum(chance.random() * storm.slow for storm, chance in self._storms if storm.slow)

    def shuffled(self, events: Sequence[Event]) -> Sequence[Event]:
        """Of different objects: a store says of one object everything in order."""
        if len(events) < 2 or not self.strikes("shuffled"):
            return events
        ranks: dict[Key, float] = {}
        chance = self._storms[0][1]
        for event in events:
            if event.object is not None:
                ranks.setdefault(event.object.key, chance.random())
        return sorted(events, key=lambda event: 1.0 if event.object is None else ranks[event.object.key])


class Connection:
    """A `Store` at the far end of a network."""

    def __init__(self, server: Server, weather: Weather) -> None:
        self.is_cut = False
        self.is_dead = False
        """Whoever had it is gone."""
        self._server = server
        self._weather = weather

    async def get(self, kind: Kind, key: Key) -> Object:
        return await (await self._reach()).get(kind, key)

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        return await (await self._reach()).list(selection, limit=limit, token=token)

    async def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        weather = self._weather
        store = await self._reach()
        async for events in store.watch(selection, since=since, bookmarks=bookmarks):
            self._check(store)
            if weather.is_calm:
                yield events
                continue
            if weather.strikes("broken"):
                yield events[: len(events) // 2]
                raise OSError("connection reset")
            if weather.strikes("expired"):
                raise errors.Expired("the simulated store has forgotten")
            if weather.strikes("late"):
                await asyncio.sleep(5 * weather.delay())
                self._check(store)
            yield weather.shuffled(events)
            if weather.strikes("repeated"):
                yield events

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        store, weather = await self._reach(), self._weather
        if weather.is_calm:
            results = await store.write(writes)
            self._check(store)
            return results
        if weather.strikes("refused"):
            raise errors.Unavailable("the simulated store takes no writes now")
        touches = [_touch(write) for write in writes if _may_conflict(write) and weather.strikes("conflicts")]
        results = (await store.write([*touches, *writes]))[len(touches) :]
        self._check(store)
        if weather.strikes("unanswered"):
            raise OSError("connection reset")
        await self._pause()
        self._check(store)
        return results

    async def _reach(self) -> EmbeddedStore:
        await self._pause()
        if self.is_cut or self.is_dead:
            raise OSError("no route to host")
        return self._server.reach()

    async def _pause(self) -> None:
        delay = 0.0 if self._weather.is_calm else self._weather.delay()
        if delay:
            await asyncio.sleep(delay)

    def _check(self, store: EmbeddedStore) -> None:
        """Nothing comes over a line that is cut, nor from the dead."""
        if self.is_cut or self.is_dead or self._server.store is not store:
            raise OSError("connection reset")


def _may_conflict(write: Write) -> TypeGuard[Patch | Replace]:
    return isinstance(write, Replace) or (isinstance(write, Patch) and write.based_on is not None)


def _touch(write: Patch | Replace) -> Patch:
    """Somebody else changes the object first, in a way that means nothing."""
    revision = write.based_on if isinstance(write, Patch) else None
    return Patch(write.kind, write.key, {"metadata": {"annotations": {"sim.muster.dev/touched": str(revision)}}})


def _conforms(connection: Connection) -> Store:
    return connection
