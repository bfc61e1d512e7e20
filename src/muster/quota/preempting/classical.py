"""Classical preemption: the fewest, least important workloads in order whose going makes room.

Queues are protected as long as they use no more than they own, and so are the cohorts between them and the preemptor.
"""

from muster.quota.preempting.candidates import REASONS, Candidate, Candidates, Kind
from muster.quota.preempting.policies import Target, Wanted
from muster.quota.preempting.room import Room
from muster.quota.state import QuotaState


def find(state: QuotaState, wanted: Wanted, candidates: Candidates) -> list[Target]:
    """Nobody, where nothing helps."""
    for may_borrow in _attempts(wanted, candidates):
        with Room(state, wanted, may_borrow=may_borrow, is_partial=True) as room:
            found = _attempt(room, wanted, candidates, may_borrow)
        if found:
            return found
    return []


def _attempts(wanted: Wanted, candidates: Candidates) -> tuple[bool, ...]:
    """Whether the preemptor's queue may borrow, try by try."""
    node, is_forbidden = wanted.queue.node, not wanted.queue.policy.may_preempt_while_borrowing
    is_exhausted = any(node.used(what) >= node.nominal(what) for what in wanted.needing)
    if not candidates.has_others or (is_forbidden and is_exhausted):
        return (True,)
    return (False, True) if is_forbidden and not candidates.has_hierarchical else (True, False)


def _attempt(room: Room, wanted: Wanted, candidates: Candidates, may_borrow: bool) -> list[Target]:
    if not room.could_fit(candidates.queues()):
        return []
    targets: list[Target] = []
    for candidate in candidates:
        if _is_protected(candidate, wanted, may_borrow):
            continue
        room.take(candidate.queue, candidate.info)
        targets.append(Target(candidate.info, REASONS[candidate.kind], candidate.queue))
        if room.is_enough():
            return room.spared(targets)
    return room.spared(targets) if room.is_enough(is_last=True) else []


def _is_protected(candidate: Candidate, wanted: Wanted, may_borrow: bool) -> bool:
    if candidate.kind is Kind.OWN:
        return False
    if may_borrow and candidate.kind is Kind.WITHOUT_BORROWING:
        return True
    node = candidate.queue.node
    while node is not candidate.cohort:
        if node.is_within_nominal(wanted.needing):
            return True
        assert node.parent is not None
        node = node.parent
    return False
