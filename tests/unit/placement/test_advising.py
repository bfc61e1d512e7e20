"""Decisions in which extenders have a say, without HTTP: what they answer is made up here."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, raw
from muster.api.everything import REGISTRY
from muster.api.objects import Object
from muster.cluster.pods import PodInfo
from muster.placement import advising
from muster.placement.configured import configured_engine
from muster.placement.engine import Engine, Faulted
from muster.placement.extending import EXTENDER, Answered, Ask, Failed, FromColumns, Reply, Verb
from muster.placement.judging import INFEASIBLE
from muster.placement.logbook import Logbook, replay
from muster.placement.scheduling import Decision
from muster.testing.builders import Builder, a_node, a_pod

WIDTH = 6
ALL_VERBS = {"filterVerb": "f", "prioritizeVerb": "p", "preemptVerb": "e", "weight": 1}
Say = Callable[[Ask], Reply]


def extended_engine(**fields: Any) -> Engine:
    extender = {"urlPrefix": "http://x", "nodeCacheCapable": True, **ALL_VERBS, **fields}
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    found = configured_engine({**head, "extenders": [extender]}, lambda _: None, seed=3)
    assert isinstance(found, tuple), found
    return found[0]


class Life:
    """An engine with a log of all that it is told and decides."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.logbook = Logbook(engine)
        self.ignored: list[Failed] = []
        self.asked: list[Verb] = []

    def put(self, *wanted: Builder) -> None:
        for builder in wanted:
            document = builder.document()
            kind = REGISTRY.by_document(document["apiVersion"], document["kind"])
            document["metadata"]["uid"] = document["metadata"]["name"]
            new = Object(kind, raw.encode(document))
            self.logbook.took(None, new)
            self.engine.take(None, new, 0.0)

    def decide(self, say: Say) -> Decision | Faulted:
        attempt = self.engine.queue.pop(0.0)
        assert attempt is not None
        documents = FromColumns(self.engine.cluster)
        talk = advising.deciding(self.engine, attempt, lambda: 0.0, documents, self.ignored.append)
        try:
            ask = next(talk)
            while True:
                self.asked.append(ask.verb)
                ask = talk.send(say(ask))
        except StopIteration as stop:
            outcome: Decision | Faulted = stop.value
            return outcome

    def differences(self) -> object:
        return replay(self.logbook.lines(), extended_engine(), REGISTRY)[1]


def nodes(count: int = WIDTH) -> list[Builder]:
    return [a_node(f"n{number}").cpu(4).memory("8Gi") for number in range(count)]


@given(st.lists(st.booleans(), min_size=WIDTH, max_size=WIDTH), st.lists(st.integers(0, 10), min_size=WIDTH))
def test_the_best_of_what_is_left_is_taken(passes: list[bool], scores: list[int]) -> None:
    life = Life(extended_engine())
    life.put(*nodes(), a_pod("load").cpu(2).on_node("n1"), a_pod("p").cpu(1))
    cluster = life.engine.cluster
    left = {f"n{number}" for number in range(WIDTH) if passes[number]}

    def say(ask: Ask) -> Reply:
        named = ask.document["NodeNames"]
        if ask.verb is Verb.FILTER:
            return Answered({"NodeNames": [name for name in named if name in left]})
        assert set(named) == left
        return Answered([{"Host": name, "Score": scores[int(name[1:])]} for name in named])

    judgement = life.engine.scheduler.judge(_pending(life.engine))
    totals = {name: 0 for name in left}
    for name in left:
        only = cluster.mask()
        for other in left:
            only[cluster.slots[other]] = True
        sums = judgement._totals(only)
        assert sums is not None
        assert sums[cluster.slots[name]] != INFEASIBLE
        totals[name] = int(sums[cluster.slots[name]]) + (scores[int(name[1:])] * 10 if len(left) > 1 else 0)
    outcome = life.decide(say)
    assert isinstance(outcome, Decision)
    if left:
        assert totals[outcome.assigned[0].node] == max(totals.values())
        assert not outcome.unasked
    else:
        assert outcome.refusal is not None
        assert EXTENDER in outcome.refusal.plugins
    assert life.differences() == []


def _pending(engine: Engine) -> PodInfo:
    return engine.cluster.shapes.info(Object(core.POD, raw.encode(a_pod("p").cpu(1).document())).read(core.Pod))


def test_what_extenders_said_is_forgotten_after_the_decision() -> None:
    life = Life(extended_engine())
    life.put(*nodes(1), a_pod("p").cpu(1))
    life.decide(lambda _: Answered({"NodeNames": []}))
    judgement = life.engine.scheduler.judge(_pending(life.engine))
    assert judgement.best(0) is not None
    assert not judgement.rejected_by()


def test_a_failure_gives_up_the_attempt_and_one_of_a_rating_does_not() -> None:
    life = Life(extended_engine())
    life.put(*nodes(2), a_pod("p"), a_pod("q"))
    outcome = life.decide(lambda _: Failed("away"))
    assert isinstance(outcome, Faulted)
    assert (outcome.plugin, outcome.error) == (EXTENDER, "away")

    def say(ask: Ask) -> Reply:
        return Answered({"NodeNames": ask.document["NodeNames"]}) if ask.verb is Verb.FILTER else Failed("no idea")

    outcome = life.decide(say)
    assert isinstance(outcome, Decision)
    assert outcome.assigned
    assert [failure.reason for failure in life.ignored] == ["no idea"]
    assert outcome.number == 1
    assert life.differences() == []


def test_victims_are_agreed_upon_and_the_node_is_to_be_asked_about() -> None:
    life = Life(extended_engine())
    life.put(*nodes(3), *(a_pod(f"low{number}").cpu(4).on_node(f"n{number}") for number in range(3)))
    life.put(a_pod("high").cpu(4).set(10, "spec", "priority"))

    def say(ask: Ask) -> Reply:
        victims = ask.document["NodeNameToMetaVictims"]
        return Answered({"NodeNameToMetaVictims": {"n2": victims["n2"]}})

    outcome = life.decide(say)
    assert isinstance(outcome, Decision)
    assert life.asked == [Verb.PREEMPT]
    assert [victim.uid for victim in outcome.victims] == ["low2"]
    assert [one.node for one in outcome.assigned] == ["n2"]
    assert outcome.unasked == {"high"}
    assert outcome.number == life.engine.scheduler.number == 1


def test_a_node_that_it_refused_is_not_emptied() -> None:
    life = Life(extended_engine(preemptVerb=""))
    life.put(*nodes(2), a_pod("low").cpu(1).on_node("n0"))
    life.put(a_pod("big").cpu(4).set(99, "spec", "priority").on_node("n1"))
    life.put(a_pod("high").cpu(3).set(10, "spec", "priority"))
    outcome = life.decide(lambda _: Answered({"NodeNames": [], "FailedNodes": {"n0": "too noisy"}}))
    assert isinstance(outcome, Decision)
    assert not outcome.victims
    assert outcome.refusal is not None
    assert outcome.refusal.counts == {"too noisy": 1, "Insufficient cpu": 1}
