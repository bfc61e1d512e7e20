"""The decision log: what the scheduler was told and what it decided, bounded, and enough to decide it all again.

A decision follows from the objects that are known, what is assumed, the pods that are tried, the nodes held back and
the decision's number; the log has all of them. (Where extenders had a say it has the outcome.) It is kept in chapters:
each begins with everything that was known then, and the oldest is dropped when a new one begins. `replay` takes a
chapter and says where the outcome differs.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from muster.api import core, raw
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.registry import Registry
from muster.cluster.columns import NodeMask
from muster.cluster.groups import GroupKey
from muster.placement.advising import has_say
from muster.placement.engine import KINDS, Engine
from muster.placement.queueing.entities import EntityKey, Queued
from muster.placement.scheduling import Decision

CHAPTER = 10_000
CHAPTERS = 2
Line: TypeAlias = Document
"""One entry, as it is written: `{"took": ...}`, `{"decided": ...}` or `{"lost": ...}`; first, `{"began": ...}`."""


class Difference(NamedTuple):
    number: int
    logged: Document
    replayed: Document


class Logbook:
    """Observes an engine from its first moment. Keeps references to encoded objects, not copies."""

    def __init__(self, engine: Engine, chapter: int = CHAPTER) -> None:
        self._engine = engine
        self._size = chapter
        self._objects: dict[tuple[str, Key], Object] = {}
        self._chapters: deque[list[Line]] = deque(maxlen=CHAPTERS)
        self._begin()
        engine.observer = self

    def took(self, old: Object | None, new: Object | None) -> None:
        self._turn()
        found = new or old
        assert found is not None
        place = (found.kind.resource, found.key)
        if new is None:
            self._objects.pop(place, None)
            self._chapters[-1].append({"took": {"kind": found.kind.resource, "gone": found.raw}})
        else:
            self._objects[place] = new
            self._chapters[-1].append({"took": {"kind": found.kind.resource, "object": new.raw}})

    def decided(self, attempt: Queued, held: NodeMask | None, outcome: Decision) -> None:
        slots = [] if held is None else np.flatnonzero(held).tolist()
        entry: Document = {"attempt": _attempt(attempt), "held": slots, "outcome": outcome_of(outcome)}
        if has_say(self._engine.extending.extenders, attempt):
            entry["advised"] = True
        self._chapters[-1].append({"decided": entry})

    def lost(self, uid: str) -> None:
        self._chapters[-1].append({"lost": {"uid": uid}})

    def lines(self) -> Iterator[bytes]:
        """The log as text, oldest chapter first, an entry a line."""
        for chapter in self._chapters:
            for line in chapter:
                yield raw.encode(_readable(line)) + b"\n"

    def _turn(self) -> None:
        if len(self._chapters[-1]) >= self._size:
            self._begin()

    def _begin(self) -> None:
        engine = self._engine
        cluster = engine.cluster
        self._chapters.append(
            [
                {
                    "began": {
                        "number": engine.scheduler.number,
                        "slots": list(cluster.names),
                        "free": list(cluster.free_slots),
                        "objects": list(self._objects.values()),  # as they are: all else would stop the loop
                        "assumed": {uid: cluster.node_of(uid) for uid in engine.assumed},
                    }
                }
            ]
        )


def outcome_of(decision: Decision) -> Document:
    """What of a decision must come out the same."""
    refusal = decision.refusal
    return {
        "number": decision.number,
        "assigned": [[one.pod.uid, one.node, one.devices] for one in decision.assigned],
        "victims": [victim.uid for victim in decision.victims],
        "refused": None if refusal is None else [[pod.uid for pod in refusal.pods], refusal.message],
    }


def replay(lines: Iterable[bytes], engine: Engine, registry: Registry) -> tuple[int, Sequence[Difference]]:
    """Decides everything in one chapter again with a fresh `engine` that is configured alike. How many decisions there
    were, and those that came out otherwise."""
    replayer = _Replayer(engine, registry)
    for line in lines:
        replayer.take(raw.decode_object(line))
    return replayer.decisions, replayer.differences


class _Replayer:
    def __init__(self, engine: Engine, registry: Registry) -> None:
        self._engine = engine
        self._kinds = {kind.resource: kind for kind in registry}
        self._last: dict[tuple[str, Key], Object] = {}
        self.decisions = 0
        self.differences: list[Difference] = []

    def take(self, line: Line) -> None:
        if "began" in line:
            self._begin(line["began"])
        elif "took" in line:
            self._took(line["took"])
        elif "lost" in line:
            self._lost(line["lost"]["uid"])
        else:
            self._decide(line["decided"])

    def _begin(self, began: Document) -> None:
        objects = [self._object(kind, document) for kind, document in began["objects"]]
        order = {kind: place for place, kind in enumerate(KINDS)}
        self._engine.cluster.lay_out(began["slots"], began["free"])
        for found in sorted(objects, key=lambda found: order[found.kind]):
            self._tell(None, found)
        for uid, node in began["assumed"].items():
            self._engine.assume(self._engine.cluster.shapes.info(self._pod(uid)), node)
        self._engine.scheduler.number = began["number"]

    def _took(self, took: Document) -> None:
        found = self._object(took["kind"], took.get("object") or took["gone"])
        place = (took["kind"], found.key)
        if "gone" in took:
            self._last.pop(place, None)
            self._engine.take(found, None, 0.0)
            return
        old = self._last.get(place)
        if old is not None and old.uid != found.uid:
            self._engine.take(old, None, 0.0)
            old = None
        self._tell(old, found)

    def _tell(self, old: Object | None, new: Object) -> None:
        self._last[new.kind.resource, new.key] = new
        self._engine.take(old, new, 0.0)

    def _lost(self, uid: str) -> None:
        self._engine.forget(uid)

    def _decide(self, decided: Document) -> None:
        engine = self._engine
        held = engine.cluster.mask()
        held[decided["held"]] = True
        attempt = self._attempt(decided["attempt"])
        if decided.get("advised"):
            self._take_over(attempt, decided["outcome"])
            return
        outcome = outcome_of(engine.decide_again(attempt, held if decided["held"] else None))
        self.decisions += 1
        if outcome != decided["outcome"]:
            self.differences.append(Difference(outcome["number"], decided["outcome"], outcome))

    def _take_over(self, attempt: Queued, outcome: Document) -> None:
        """What extenders had a say in does not follow from the log: it is taken as it was, so that all else does."""
        nodes = {uid: node for uid, node, _ in outcome["assigned"]}
        for pod in attempt.pods:
            if pod.uid in nodes:
                self._engine.assume(pod, nodes[pod.uid])
        self._engine.scheduler.number = outcome["number"]

    def _attempt(self, told: Document) -> Queued:
        key: EntityKey = GroupKey(*told["group"]) if told.get("group") else told["uid"]
        pods = tuple(self._engine.cluster.shapes.info(self._pod(uid)) for uid in told["pods"])
        return Queued(key, pods, told["arrived"], told["attempts"], told["errors"])

    def _pod(self, uid: str) -> core.Pod:
        found = next(found for found in self._last.values() if found.uid == uid)
        return found.read(core.Pod)

    def _object(self, kind: str, document: Document) -> Object:
        return Object(self._kinds[kind], raw.encode(document))


def _attempt(attempt: Queued) -> Document:
    told: Document = {
        "pods": [pod.uid for pod in attempt.pods],
        "arrived": attempt.arrived,
        "attempts": attempt.attempts,
        "errors": attempt.errors,
    }
    if isinstance(attempt.key, GroupKey):
        return {"group": list(attempt.key), **told}
    return {"uid": attempt.key, **told}


def _readable(line: Line) -> Line:
    """Objects as documents instead of bytes: decoded only when the log is written out."""
    if "began" in line:
        objects = [(found.kind.resource, raw.decode(found.raw)) for found in line["began"]["objects"]]
        return {"began": {**line["began"], "objects": objects}}
    if "took" in line:
        took: Mapping[str, raw.JSON] = line["took"]
        return {"took": {key: raw.decode(value) if isinstance(value, bytes) else value for key, value in took.items()}}
    return line
