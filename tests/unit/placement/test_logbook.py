"""The log of a random history decides everything again, and notices where something else would come out."""

import random

from muster.api import core, raw, volcano
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.objects import Object
from muster.api.raw import Document
from muster.placement.engine import Engine, default_engine
from muster.placement.logbook import Logbook, replay
from muster.placement.queueing.entities import Queued
from muster.placement.scheduling import Decision
from muster.testing.builders import PodBuilder, a_node, a_pod, a_pod_group


class History:
    """A scheduler's life: nodes and pods come and go, decisions are made, some cannot be bound."""

    def __init__(self, seed: int, chapter: int = 10_000) -> None:
        self.chance = random.Random(seed)
        self.engine = default_engine(seed=seed)
        self.logbook = Logbook(self.engine, chapter)
        self.objects: dict[tuple[Kind, str], Object] = {}
        self.versions = 0
        self.now = 0.0

    def put(self, kind: Kind, document: Document) -> None:
        self.versions += 1
        name = document["metadata"]["name"]
        metadata = {**document["metadata"], "uid": f"{kind.plural}/{name}", "resourceVersion": str(self.versions)}
        head = {"apiVersion": kind.api_version, "kind": kind.name}
        new = Object(kind, raw.encode({**head, **document, "metadata": metadata}))
        old = self.objects.get((kind, name))
        self.objects[kind, name] = new
        self.engine.take(old, new, self.now)

    def remove(self, kind: Kind, name: str) -> None:
        old = self.objects.pop((kind, name))
        self.engine.take(old, None, self.now)

    def decide(self) -> None:
        while (attempt := self.engine.queue.pop(self.now)) is not None:
            outcome = self.engine.decide(attempt, self.now)
            assert isinstance(outcome, Decision)
            self.carry_out(attempt, outcome)

    def carry_out(self, attempt: Queued, decision: Decision) -> None:
        for victim in decision.victims:
            self.remove(core.POD, victim.key.name)
        for assigned in decision.assigned:
            name = assigned.pod.key.name
            chance = self.chance.random()
            if chance < 0.1:
                found = self.objects.get((core.POD, name))
                self.engine.binding_failed(assigned.pod, attempt, found, self.now)
            elif chance < 0.9 and (core.POD, name) in self.objects:
                document = self.objects[core.POD, name].document()
                document["spec"]["nodeName"] = assigned.node
                self.put(core.POD, document)

    def live(self, steps: int) -> None:
        for step in range(steps):
            self.now += self.chance.random() * 5
            self.happen(step)
            self.decide()

    def happen(self, step: int) -> None:
        what, pods = self.chance.random(), [name for kind, name in self.objects if kind is core.POD]
        nodes = [name for kind, name in self.objects if kind is core.NODE]
        if what < 0.15 or len(nodes) < 2:
            self.put(core.NODE, a_node(f"n{self.chance.randrange(8)}").cpu("4").memory("8Gi").gpus(4).document())
        elif what < 0.2:
            self.remove(core.NODE, self.chance.choice(nodes))
        elif what < 0.45 and pods:
            self.remove(core.POD, self.chance.choice(pods))
        elif what < 0.6:
            self.put(volcano.POD_GROUP, a_pod_group(f"g{step}").min_member(2).document())
            for number in range(3):
                self.put(core.POD, self.pod(f"p{step}-{number}").in_group(f"g{step}").document())
        else:
            self.put(core.POD, self.pod(f"p{step}").document())

    def pod(self, name: str) -> PodBuilder:
        made = a_pod(name).cpu(self.chance.choice(["500m", "1", "2"]))
        made = made.gpus(1) if self.chance.random() < 0.4 else made
        return made.set(self.chance.choice([0, 0, 10]), "spec", "priority")


def replayed(lines: list[bytes], engine: Engine) -> tuple[int, int]:
    decisions, differences = replay(lines, engine, REGISTRY)
    return decisions, len(differences)


def test_a_log_decides_everything_again() -> None:
    for seed in range(12):
        history = History(seed)
        history.live(80)
        decisions, differences = replayed(list(history.logbook.lines()), default_engine(seed=seed))
        assert decisions > 40
        assert differences == 0, seed


def test_a_later_chapter_stands_alone() -> None:
    history = History(3, chapter=60)
    history.live(150)
    lines = list(history.logbook.lines())
    begins = [number for number, line in enumerate(lines) if line.startswith(b'{"began"')]
    assert len(begins) == 2
    assert b'"objects":[]' not in lines[begins[1]]
    decisions, differences = replayed(lines[begins[1] :], default_engine(seed=3))
    assert decisions > 0
    assert differences == 0


def test_another_seed_shows_as_differences() -> None:
    history = History(5)
    history.live(80)
    _, differences = replayed(list(history.logbook.lines()), default_engine(seed=6))
    assert differences > 0
