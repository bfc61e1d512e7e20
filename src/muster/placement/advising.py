"""A decision in which extenders have a say: they are asked before it about the nodes that all filters let pass, and in
the middle of it about victims.

Members of a gang that are alike are asked about once. A node that had no room when extenders were asked, and gets it in
the course of the decision (because pods are evicted there), they have not been asked about: the decision says so.
"""

from collections.abc import Callable, Generator, Sequence

import numpy as np

from muster.cluster.pods import PodInfo, PodShape
from muster.placement.engine import Engine, Faulted
from muster.placement.extending import (
    EXTENDER,
    Ask,
    Documents,
    ExtenderConfig,
    Failed,
    Reply,
    Verb,
    consulting,
    filtering,
    prioritizing,
)
from muster.placement.judging import Advice
from muster.placement.profiles import name_of
from muster.placement.queueing.entities import Queued
from muster.placement.scheduling import Decision

_BEFORE = (Verb.FILTER, Verb.PRIORITIZE)
_DURING = (*_BEFORE, Verb.PREEMPT)


def has_say(extenders: Sequence[ExtenderConfig], attempt: Queued) -> bool:
    """Whether any extender is to be asked on where these pods go."""
    kinds = {pod.shape: pod for pod in attempt.pods}.values()
    return any(_is_asked(extender, pod, _DURING) for extender in extenders for pod in kinds)


def deciding(
    engine: Engine, attempt: Queued, now: Callable[[], float], documents: Documents, ignored: Callable[[Failed], None]
) -> Generator[Ask, Reply, Decision | Faulted]:
    """As `Engine.decide`. The engine must not be told of anything until it is done. `now`: extenders take their time,
    so it is asked at the end. `ignored`: told of failures that count for nothing."""
    advice: dict[PodShape, Advice] = {}
    for pod in {pod.shape: pod for pod in attempt.pods}.values():
        if not any(_is_asked(extender, pod, _BEFORE) for extender in engine.extending.extenders):
            continue
        try:
            said = yield from _advised(engine, pod, documents, ignored)
        except Exception as error:  # a plugin's: it judges the pod before extenders do
            plugin = name_of(engine.scheduler.calling)
            return engine.give_up(attempt, plugin, f"{type(error).__name__}: {error}", now())
        if isinstance(said, Failed):
            return engine.give_up(attempt, EXTENDER, said.reason, now())
        advice[pod.shape] = said
    return (
        yield from consulting(
            engine.extending.consultants, lambda: engine.decide(attempt, now(), advice), engine.cluster, documents
        )
    )


def _is_asked(extender: ExtenderConfig, pod: PodInfo, verbs: Sequence[Verb]) -> bool:
    return not extender.verbs.keys().isdisjoint(verbs) and extender.is_interested(pod)


def _advised(
    engine: Engine, pod: PodInfo, documents: Documents, ignored: Callable[[Failed], None]
) -> Generator[Ask, Reply, Advice | Failed]:
    extenders, cluster = engine.extending.extenders, engine.cluster
    asked = engine.scheduler.judge(pod).feasible.copy()
    filtered = yield from filtering(extenders, pod, asked, cluster, documents)
    if isinstance(filtered, Failed):
        return filtered
    failures = list(filtered.ignored)
    bonus = np.zeros(cluster.width, dtype=np.int64)
    if np.count_nonzero(filtered.nodes) > 1:  # else there is nothing to choose
        prioritized = yield from prioritizing(extenders, pod, filtered.nodes, cluster, documents)
        bonus = prioritized.scores
        failures += prioritized.ignored
    for failure in failures:
        ignored(failure)
    return Advice(EXTENDER, asked, asked & ~filtered.nodes, filtered.rejections, bonus)
