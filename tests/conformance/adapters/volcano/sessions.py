"""Cases that run Volcano's scheduler for one session: here the engine steps until nothing is due (FORMAT.md §4)."""

from collections import Counter
from collections.abc import Collection
from typing import Any, Protocol

import numpy as np

from muster.cluster.columns import NodeMask
from muster.placement.engine import Faulted
from muster.placement.scheduling import Decision
from tests.conformance.adapters.volcano import building, limits
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

_MOST_STEPS = 1000


class Result(Protocol):
    """What one session of a case came to."""

    @property
    def world(self) -> building.World: ...
    @property
    def binds(self) -> dict[str, str]: ...
    @property
    def promised(self) -> dict[str, str]:
        """Pods that have a node as soon as those evicted for them are gone: Volcano calls them pipelined."""
        ...

    @property
    def evicted(self) -> list[str]: ...


class Session:
    """What placement makes of a case."""

    def __init__(self, case: Case, admitted: Collection[str] | None = None) -> None:
        """`admitted`: see `building.world`."""
        self.world = building.world(case, admitted)
        self.binds: dict[str, str] = {}
        self.promised: dict[str, str] = {}
        self.evicted: list[str] = []
        for mask in self._passes(case):
            self._run(mask)

    def _passes(self, case: Case) -> list[NodeMask | None]:
        """Soft sharding tries the scheduler's own nodes first, and then all; hard sharding only its own."""
        mode, names = case.get("shardingMode") or "none", case.get("nodesInShard") or ()
        if mode == "none":
            return [None]
        cluster = self.world.engine.cluster
        own = np.isin(np.array(cluster.names), names)
        return [own] if mode == "hard" else [own, None]

    def _run(self, within: NodeMask | None) -> None:
        engine, left = self.world.engine, _MOST_STEPS
        engine.queue.activate([pod.uid for pod in self.world.pending], 0.0)
        while (attempt := engine.queue.pop(0.0)) is not None:
            left -= 1
            assert left, "the engine goes round in a circle"
            decision = engine.scheduler.decide(attempt, within)
            placed = [one.pod.uid for one in decision.assigned]
            if decision.refusal is None:
                engine.queue.placed(attempt, placed, 0.0)
            else:
                engine.queue.rejected(attempt, decision.refusal.plugins, 0.0, placed=placed)
            self._note(decision)

    def _note(self, decision: Decision | Faulted) -> None:
        assert isinstance(decision, Decision), decision
        self.evicted += [str(victim.key) for victim in decision.victims]
        for one in decision.assigned:
            (self.promised if decision.victims else self.binds)[str(one.pod.key)] = one.node


def run(case: Case) -> Outcome:
    if case["kind"] != "session" or not case.get("checks"):
        return NotApplicable(limits.INTERNAL)
    unknown = limits.unheard_of(case)
    if unknown:
        return Failed(f"the adapter knows no {unknown}")
    missing = limits.of_session(case)
    if missing:
        return NotApplicable(missing)
    return outcome_of(case, Session(case))


def outcome_of(case: Case, session: Result) -> Outcome:
    return (
        _compare_binds(case, session)
        or _compare_evictions(case, session)
        or _compare_promises(case, session)
        or _compare_counts(case, session)
        or Passed()
    )


def _compare_binds(case: Case, session: Result) -> Failed | None:
    if "expectBindNumsInHyperNode" in case:
        failed = compare("binds in HyperNodes", _per_hypernode(case, session), case["expectBindNumsInHyperNode"])
        if failed:
            return failed
    if case.get("minimalBindCheck"):
        found = len(session.binds)
        wanted = case["expectBindsNum"]
        return None if found == wanted else Failed(f"binds: found {session.binds}, wanted {wanted}")
    if "expectBindMap" not in case:
        return None
    return compare("binds", session.binds, case["expectBindMap"] or {})


def _per_hypernode(case: Case, session: Result) -> list[int]:
    by_tier, real = case.get("hyperNodesSetByTier") or {}, case.get("realNodesByHyperNode") or {}
    lowest = by_tier[min(by_tier, key=int)]
    counts = Counter(name for node in session.binds.values() for name in lowest if node in real.get(name, ()))
    return sorted(counts.values())


def _compare_evictions(case: Case, session: Result) -> Failed | None:
    if "expectEvicted" not in case:
        return None
    return compare("evicted", sorted(session.evicted), sorted(case["expectEvicted"] or ()))


def _compare_promises(case: Case, session: Result) -> Failed | None:
    for job, nodes in (case.get("expectPipelined") or {}).items():
        found = [node for pod, node in session.promised.items() if session.world.jobs[pod] == job]
        if not found or not set(found) <= set(nodes):
            return Failed(f"{job} promised: found {found}, wanted only {nodes}")
    return None


def _compare_counts(case: Case, session: Result) -> Failed | None:
    """Of the statuses that tasks end a session in, those that placement gives."""
    for job, wanted in (case.get("expectTaskStatusNums") or {}).items():
        found = {
            "Binding": sum(session.world.jobs[pod] == job for pod in session.binds),
            "Pipelined": sum(session.world.jobs[pod] == job for pod in session.promised),
            "Releasing": sum(session.world.jobs[pod] == job for pod in session.evicted),
        }
        failed = compare(f"tasks of {job}", {name: found.get(name) for name in wanted if name in found}, _known(wanted))
        if failed:
            return failed
    return None


def _known(wanted: dict[str, Any]) -> dict[str, Any]:
    return {name: number for name, number in wanted.items() if name in ("Binding", "Pipelined", "Releasing")}


ADAPTERS: Adapters = {
    "gang": run,
    "predicates": run,
}
