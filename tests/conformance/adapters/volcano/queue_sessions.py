"""Sessions in which queues share what there is: quota admits and evicts, then placement binds, promises and evicts."""

from typing import Any

from muster.api import raw
from muster.api.raw import Document
from tests.conformance.adapters.volcano import limits, reclaiming, sessions
from tests.conformance.adapters.volcano.quota_worlds import Part, QuotaWorld, key_of
from tests.conformance.adapters.volcano.sessions import Session, outcome_of
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed


class QueueSession:
    """Only the actions that the case lists have effects: `allocate` and `backfill` bind, `preempt` and `reclaim` evict
    and promise."""

    def __init__(self, case: Case, *, is_fair: bool = False) -> None:
        self.quota = QuotaWorld(case, is_fair=is_fair)
        actions = set(case["actions"])
        decided = self.quota.decide()
        self.admitted = {part.job for part in decided.admitted}
        self.evicted = [pod for part in decided.evicted for pod in part.pod_keys]
        first = Session(case, self._pods(decided.admitted))
        self.world = first.world
        self.binds = first.binds if actions & {"allocate", "backfill"} else {}
        self.promised = dict(first.promised)
        self.evicted += [pod for pod in first.evicted if pod not in self.evicted]
        if decided.evicted:
            self._after_evictions(case, decided.evicted)

    def _pods(self, parts: list[Part]) -> set[str]:
        """Those of the parts, and those of jobs that had their quota before and lack a pod."""
        held = [part for part in self.quota.parts.values() if part.is_held]
        return {pod for part in (*parts, *held) for pod in part.pod_keys}

    def _after_evictions(self, case: Case, evicted: list[Part]) -> None:
        """Who is admitted in the place of others has a node as soon as they are gone."""
        self.quota.remove(evicted)
        admitted = self.quota.decide().admitted
        gone = set(self.evicted)
        pods = [_bound(pod, self.binds) for pod in case["pods"] if key_of(pod) not in gone]
        second = Session(case | {"pods": pods}, {pod for part in admitted for pod in part.pod_keys})
        self.promised |= {**second.binds, **second.promised}
        self.evicted += second.evicted


def _bound(pod: Document, binds: dict[str, str]) -> Document:
    node = binds.get(key_of(pod))
    if node is None:
        return pod
    copied: dict[str, Any] = raw.copy(pod)
    copied["spec"]["nodeName"] = node
    return copied


def run(case: Case) -> Outcome:
    if case["kind"] != "session" or not case.get("checks"):
        return NotApplicable(limits.INTERNAL)
    unknown = limits.unheard_of(case)
    if unknown:
        return Failed(f"the adapter knows no {unknown}")
    missing = limits.of_queue_session(case)
    if missing:
        return NotApplicable(missing)
    session = QueueSession(case)
    found = outcome_of(case, session)
    if isinstance(found, Passed):
        return _compare_phases(case, session) or Passed()
    promised = reclaiming.why_not(case, session.evicted)
    return NotApplicable(promised) if promised else found


def _compare_phases(case: Case, session: QueueSession) -> Failed | None:
    """A pod group in the queue is one that is admitted."""
    phases = {key_of(group): (group.get("status") or {}).get("phase") for group in case.get("podGroups") or ()}
    for job, wanted in (case.get("expectStatus") or {}).items():
        found = phases.get(job)
        if found in (None, "", "Pending") and job in session.admitted:
            found = "Inqueue"
        if found != wanted:
            return Failed(f"{job}: found {found}, wanted {wanted}")
    return None


def _allocate(case: Case) -> Outcome:
    """Where the order between queues does not matter, placement alone decides."""
    if case["kind"] == "session" and case.get("checks") and limits.of_session(case) == limits.BETWEEN_QUEUES:
        return run(case)
    return sessions.run(case)


ADAPTERS: Adapters = {
    "allocate": _allocate,
    "backfill": run,
    "enqueue": run,
    "preempt": run,
    "priority": run,
    "reclaim": run,
}
