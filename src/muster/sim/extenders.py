"""A simulated extender of the scheduler: what it says makes sense, but for when it is bothered."""

import asyncio
from collections.abc import Sequence

from muster.api import core, errors
from muster.api.objects import Key
from muster.api.raw import Document
from muster.controllers.configured import SchedulerConfiguration
from muster.placement.engine import Engine
from muster.placement.extending import Answered, Ask, ExtenderConfig, Failed, Reply, Verb
from muster.sim.connections import Weather
from muster.sim.plans import ExtenderShape
from muster.store.protocol import Bind, Store, write_one

_TIMEOUT_SECONDS = 5
_BEST = 10


class Extender:
    """Everybody's client at once: the extender is one, whoever asks. `mood` is what bothers it."""

    def __init__(self, store: Store) -> None:
        self.mood = Weather()
        self._store = store

    def connect(self, _: Sequence[ExtenderConfig]) -> "Extender":
        return self

    async def __aenter__(self) -> "Extender":
        return self

    async def __aexit__(self, *_: object) -> None:
        """There is nothing to close."""

    async def ask(self, ask: Ask) -> Reply:
        """As a client does that waits for so long and no longer: what was to be done may be done nevertheless."""
        if self.mood.strikes("failing"):
            return Failed("the simulated extender has failed")
        reply = await self._answer(ask)
        delay = self.mood.delay()
        if delay:
            await asyncio.sleep(min(delay, ask.extender.timeout_seconds))
        return (
            reply if delay < ask.extender.timeout_seconds else Failed("the simulated extender did not answer in time")
        )

    async def _answer(self, ask: Ask) -> Reply:
        if ask.verb is Verb.FILTER:
            objections = {name: "objection" for name in ask.document["NodeNames"] if self.mood.strikes("objecting")}
            passed = [name for name in ask.document["NodeNames"] if name not in objections]
            return Answered({"NodeNames": passed, "FailedNodes": objections})
        if ask.verb is Verb.PRIORITIZE:
            return Answered([_scored(name) for name in ask.document["NodeNames"]])
        if ask.verb is Verb.PREEMPT:
            victims = ask.document["NodeNameToMetaVictims"].items()
            agreed = {node: chosen for node, chosen in victims if not self.mood.strikes("objecting")}
            return Answered({"NodeNameToMetaVictims": agreed})
        return await self._bind(ask.document)

    async def _bind(self, asked: Document) -> Reply:
        if self.mood.strikes("objecting"):
            return Answered({"Error": "objection"})
        key = Key(asked["PodNamespace"], asked["PodName"])
        try:
            await write_one(self._store, Bind(core.POD, key, asked["Node"], asked["PodUID"]))
        except (errors.ApiError, OSError) as error:
            return Answered({"Error": str(error)})
        return Answered({"Error": ""})


def engine(shape: ExtenderShape) -> Engine:
    """A scheduler's, with that extender, by way of a configuration as users write it."""
    settings: Document = {
        "urlPrefix": "http://extender.simulated",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 1,
        "nodeCacheCapable": True,
        "ignorable": shape.is_ignorable,
        "httpTimeout": f"{_TIMEOUT_SECONDS}s",
    }
    if shape.binds:
        settings["bindVerb"] = "bind"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [settings],
    }
    return SchedulerConfiguration(document, "the simulated scheduler's configuration").make_engine()


def _scored(name: str) -> Document:
    """Some nodes are better than others, always the same ones."""
    return {"Host": name, "Score": sum(name.encode()) % (_BEST + 1)}
