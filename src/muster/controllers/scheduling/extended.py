"""Extenders as the scheduler's shell meets them: asked over HTTP, while the event loop is free for others.

Nothing here raises: what an extender does or fails to do is the affair of the pods it is asked about.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

from muster.api import core, errors
from muster.api.errors import FieldError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.cluster.pods import PodInfo
from muster.controllers.extenders import ExtenderClient
from muster.placement import advising, extending
from muster.placement.engine import Engine, Faulted
from muster.placement.extending import Ask, Documents, ExtenderConfig, Failed, FromColumns, Reply
from muster.placement.queueing.entities import Queued
from muster.placement.scheduling import Decision
from muster.runtime.clock import Clock

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Client(Protocol):
    """Whoever carries questions to extenders; an async context manager."""

    async def ask(self, ask: Ask) -> Reply: ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *raised: object) -> None: ...


Connect: TypeAlias = Callable[[Sequence[ExtenderConfig]], Client | list[FieldError]]
"""Makes a client for these extenders, or says what is wrong with their settings."""


class _Whole:
    """Objects as the store shows them, with fields that the scheduler has no use for but an extender may."""

    def __init__(self, engine: Engine, objects: Mapping[tuple[Kind, Key], Object]) -> None:
        self._objects = objects
        self._names = engine.cluster.names
        self._otherwise = FromColumns(engine.cluster)

    def pod(self, pod: PodInfo) -> Document:
        found = self._objects.get((core.POD, pod.key))
        return found.document() if found is not None and found.uid == pod.uid else self._otherwise.pod(pod)

    def node(self, slot: int) -> Document:
        found = self._objects.get((core.NODE, Key("", self._names[slot])))
        return found.document() if found is not None else self._otherwise.node(slot)


@dataclass(frozen=True, slots=True)
class _Result(Generic[T]):
    value: T


class Extenders:
    """Use as an async context manager."""

    def __init__(
        self,
        engine: Engine,
        client: Client,
        clock: Clock,
        documents: Documents,
        uses_threads: bool,
    ) -> None:
        self._engine = engine
        self._all = engine.extending.extenders
        self._client = client
        self._clock = clock
        self._documents = documents
        self._uses_threads = uses_threads

    @classmethod
    def of(
        cls,
        engine: Engine,
        clock: Clock,
        objects: Mapping[tuple[Kind, Key], Object],
        uses_threads: bool,
        connect: Connect = ExtenderClient.of,
    ) -> "Extenders | None":
        """Those of the engine; None where it has none. `objects`: all that is known, kept up to date."""
        if not engine.extending.extenders:
            return None
        client = connect(engine.extending.extenders)
        if isinstance(client, list):
            raise errors.invalid("KubeSchedulerConfiguration", "extenders", client)
        return cls(engine, client, clock, _Whole(engine, objects), uses_threads)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._client.__aexit__(*raised)

    # Deciding

    def have_say(self, attempt: Queued) -> bool:
        return advising.has_say(self._all, attempt)

    async def decide(self, attempt: Queued) -> Decision | Faulted:
        """As the engine's, which must be left alone meanwhile."""
        ignored: list[Failed] = []
        outcome = await self._talk(
            advising.deciding(self._engine, attempt, self._clock.monotonic, self._documents, ignored.append)
        )
        for failure in ignored:
            _log.warning("%s has no say on %s: %s", extending.EXTENDER, attempt.key, failure.reason)
        return outcome

    # Binding

    async def objection(self, pod: PodInfo, node: str) -> str | None:
        """Why the pod may not go to the node, which had no room for it when the extenders were asked; None: it may."""
        cluster = self._engine.cluster
        slot = cluster.slots.get(node)
        if slot is None:
            return f"node {node} is gone"
        mask = cluster.mask()
        mask[slot] = True
        outcome = await self._talk(extending.filtering(self._all, pod, mask, cluster, self._documents))
        if isinstance(outcome, Failed):
            return outcome.reason
        if outcome.nodes.any():
            return None
        return ", ".join(rejection.reason for rejection in outcome.rejections) or "rejected the node"

    def binds(self, pod: PodInfo) -> bool:
        return extending.binder_of(self._all, pod) is not None

    async def bind(self, pod: PodInfo, node: str) -> str | None:
        """Empty: an extender says that it has bound the pod. Text: why it has not. None: others may."""
        extender = extending.binder_of(self._all, pod)
        if extender is None:
            return None
        reply = await self._ask(extending.bind_request(extender, pod, node))
        failed = extending.apply_bind_answer(extender, reply)
        if failed is not None and extender.is_ignorable:
            _log.warning("%s does not bind %s: %s", extending.EXTENDER, pod.key, failed.reason)
            return None
        return failed.reason if failed is not None else ""

    # Talking

    async def _talk(self, conversation: Generator[Ask, Reply, T]) -> T:
        reply: Reply | None = None
        while True:
            if self._uses_threads:  # thousands of nodes take a while to write down
                step = await asyncio.to_thread(_step, conversation, reply)
            else:
                step = _step(conversation, reply)
            if isinstance(step, _Result):
                return step.value
            reply = await self._ask(step)

    async def _ask(self, ask: Ask) -> Reply:
        try:
            return await self._client.ask(ask)
        except Exception as error:
            _log.exception("extender %s cannot be asked", ask.extender.name)
            return Failed(f"extender {ask.extender.name} cannot be asked: {type(error).__name__}: {error}")


def _step(conversation: Generator[Ask, Reply, T], reply: Reply | None) -> Ask | _Result[T]:
    """What is to be asked next, or what came out of it all."""
    try:
        return next(conversation) if reply is None else conversation.send(reply)
    except StopIteration as stop:
        value: T = stop.value
        return _Result(value)
