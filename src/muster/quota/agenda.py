"""Where the engine looks next: in which trees of queues something happened, and whom that may help.

It is told what happened and says whose heads are worth a look. It decides nothing about them, and never says no where
a look would find that somebody fits.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Final

from muster.api.meta import Instant
from muster.quota import waking
from muster.quota.decisions import CycleResult
from muster.quota.entries import Standing
from muster.quota.queueing import PendingQueues
from muster.quota.state import QueueState, QuotaState
from muster.quota.waking import Borrowers
from muster.quota.workloads import WorkloadInfo

_MOST_ROUNDS: Final = 4


class Agenda:
    """Of one engine, whose state and queues it reads."""

    def __init__(self, state: QuotaState, pending: PendingQueues) -> None:
        self._state = state
        self._pending = pending
        self._dirty: dict[str, None] = {}  # queues where something happened, in that order
        self._to_flush: dict[str, None] = {}  # queues in whose trees other verdicts may be reached now
        self._to_wake: dict[str, None] = {}  # queues whose neighbours may fit now, if they need no more than was freed
        self._cohorts_to_flush: dict[str, None] = {}
        self._has_freed_nodes = False
        self._short_of_nodes: dict[str, None] = {}  # queues where quota would do, and places are missing
        self._rounds: dict[str, int] = {}  # how often in vain since anything moved, for those with flavors left to try
        self._active: dict[str, bool] = {}
        self._borrowers = Borrowers()  # as of the last change
        self._trees: dict[str, tuple[int, list[str]]] = {}  # by queue: all that share quota with it, as of a version

    # What happened

    def touch(self, queue: str) -> None:
        if queue:
            self._dirty[queue] = None

    def came(self, info: WorkloadInfo) -> None:
        """Behind the head of a strict queue that has been looked at, nobody is until that one has gone."""
        name = self._pending.leads_to(info.local_queue)
        queue, head = self._state.queues.get(name), self._pending.peek(name)
        if queue is None or head is None or head is info or waking.is_news(queue, head):
            self.touch(name)

    def flush(self, queues: Iterable[str]) -> None:
        """What is parked in the trees of these queues is looked at again, with the next step."""
        self._to_flush.update(dict.fromkeys(queues))

    def flush_where(self, concerns: Callable[[QueueState], bool]) -> None:
        self.flush([name for name, queue in self._state.queues.items() if concerns(queue)])

    def flush_cohort(self, name: str) -> None:
        self._cohorts_to_flush[name] = None

    def room_in(self, queue: str) -> None:
        """Whoever shares quota with that queue may fit now."""
        self._to_wake[queue] = None

    def room_on_nodes(self) -> None:
        """Whoever is placed by topology may fit now."""
        self._has_freed_nodes = True

    def short_of_nodes(self, queue: str) -> None:
        """Somebody in it waits for places only."""
        self._short_of_nodes[queue] = None

    def forget_activity(self) -> None:
        """What decides whether a queue admits anything has changed."""
        self._trees.clear()
        self._active.clear()

    # What follows from it

    @property
    def is_empty(self) -> bool:
        """No tree is left to look at. What happened meanwhile counts from the next `settle` on."""
        return not self._dirty

    @property
    def has_news(self) -> bool:
        told = self._dirty or self._to_flush or self._to_wake or self._cohorts_to_flush or self._has_freed_nodes
        return bool(told)

    def settle(self, now: Instant) -> None:
        """Wake whom all that has happened may help."""
        self._borrowers = Borrowers()
        if self._has_freed_nodes:
            # They stay short of nodes while anybody waits there: who is not looked at again cannot say so anew.
            self._short_of_nodes = {name: None for name in self._short_of_nodes if self._pending.has_waiting(name)}
            self._to_wake.update(self._short_of_nodes)
        for name in self._cohorts_to_flush:
            cohort = self._state.tree.cohorts.get(name)
            if cohort is not None:
                self.flush(queue.name for queue in cohort.root().queues())
        for queues, may_fit in ((self._to_flush, None), (self._to_wake, self._may_fit)):
            if queues:
                self._pending.flush(queues, now, may_fit)
                for name in queues:
                    self.touch(name)
                queues.clear()
        self._has_freed_nodes = False
        self._cohorts_to_flush.clear()

    def next_tree(self) -> list[str]:
        """Active queues, with something to look at, of the tree where something happened first."""
        while self._dirty:
            first = next(iter(self._dirty))
            names = self.tree_of(first) or [first]
            for name in (first, *names):
                self._dirty.pop(name, None)
            ready = [name for name in names if self._pending.is_ready(name) and self._is_active(name)]
            found = self._worth_a_look(ready)
            if found:
                return found
        return []

    def tree_of(self, queue: str) -> Sequence[str]:
        known = self._state.queues.get(queue)
        if known is None:
            return ()
        tree, found = self._state.tree, self._trees.get(queue)
        if found is None or found[0] != tree.version:
            found = self._trees[queue] = tree.version, [node.name for node in known.node.root().queues()]
        return found[1]

    def _worth_a_look(self, ready: list[str]) -> list[str]:
        """Where some head may fit, all of them: one that cannot may keep room for itself. Else those only of whom
        nothing has been said yet."""
        heads = [(name, head) for name in ready if (head := self._pending.peek(name)) is not None]
        news = [name for name, head in heads if waking.is_news(self._state.queues[name], head)]
        if len(news) == len(ready) or any(self._may_fit(name, head) for name, head in heads):
            return ready
        return news

    def _may_fit(self, queue: str, info: WorkloadInfo) -> bool:
        known = self._state.queues.get(queue)
        if known is None:
            return True
        if waking.has_quota(known, info):
            if waking.has_nodes(self._state, known, info):
                return True
            self.short_of_nodes(queue)  # from now on it is nodes that it waits for, also where nobody looks at it
        return waking.may_make_do(self._state, known, info, self._borrowers)

    def _is_active(self, name: str) -> bool:
        """Workloads of a queue in a circle of cohorts are looked at too, so that they are told."""
        found = self._active.get(name)
        if found is None:
            queue = self._state.queues.get(name)
            found = self._active[name] = queue is not None and not self._state.inactive(queue)
        return found

    # After a look

    def plan_next(self, names: Sequence[str], result: CycleResult, midway: Set[str]) -> None:
        """Where something was given or taken, the whole tree is looked at again. Else only queues that have another
        head now, or whose head will see other flavors; and, since what kept them out may have been one of the others,
        those that were skipped."""
        if result.has_progress:
            self._rounds.clear()
            self._borrowers = Borrowers()
            for name in names:
                self._pending.recall(name, self._may_fit)
                self.touch(name)
            return
        looked_at = {decided.info.key: decided for decided in result.requeues()}
        skipped: list[str] = []
        has_changed = False
        for name in names:
            head = self._pending.peek(name)
            before = looked_at.get(head.key) if head is not None else None
            if head is None or before is None or self._may_try_again(head, name, midway):
                has_changed = True
                self.touch(name)
            elif before.entry.standing is Standing.SKIPPED:
                skipped.append(name)
        if has_changed:
            for name in skipped:
                self.touch(name)

    def _may_try_again(self, head: WorkloadInfo, queue: str, midway: Set[str]) -> bool:
        """It has flavors left to try, or this time it began in the middle of them: next time it will see others."""
        has_untried = head.scan is not None and head.scan.has_untried
        if not has_untried and head.key not in midway:
            return False
        rounds = self._rounds[head.key] = self._rounds.get(head.key, 0) + 1
        return rounds <= _MOST_ROUNDS * len(self._state.queues[queue].policy.flavors)

    def rest(self) -> None:
        """Nothing moves any more: whoever has flavors left to try may, the next time, as often again."""
        self._rounds.clear()
