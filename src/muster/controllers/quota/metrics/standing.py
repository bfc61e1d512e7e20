"""How things stand: read off the engine, and counted from the store, at the moment when somebody asks."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import inf, nan
from typing import Final, TypeAlias, TypeVar

from muster.api import kueue
from muster.controllers.quota.metrics.families import LOCAL_PREFIX, PREFIX, ROLE
from muster.quota import figures
from muster.quota.amounts import CPU, FlavorResource
from muster.quota.census import Census
from muster.quota.engine import DEFAULT_QUEUE, Engine
from muster.quota.fair_admission import is_usage_based
from muster.quota.gates import Gate
from muster.quota.shares import share_of
from muster.quota.state import QueueState
from muster.quota.tallies import Tally
from muster.quota.tree import Node
from muster.runtime.metrics import Family, Sample

_MILLI: Final = 1000
_QUEUE: Final = ("cluster_queue", "replica_role")
_LOCAL: Final = ("name", "namespace", "replica_role")
_LINE: Final = ("cohort", "cluster_queue", "flavor", "resource", "replica_role")
_COHORT_LINE: Final = ("cohort", "flavor", "resource", "replica_role")
_LOCAL_LINE: Final = ("name", "namespace", "flavor", "resource", "replica_role")
_STATES: Final = ("pending", "active", "terminating")
_K = TypeVar("_K", bound=Hashable)
Samples: TypeAlias = Iterable[Sample | None]
_COUNTS: Final[Sequence[tuple[str, str, Callable[[Tally], int]]]] = (
    ("reserving_active_workloads", "Workloads that hold quota", lambda tally: tally.reserving),
    ("admitted_active_workloads", "Workloads that are admitted and have not finished", lambda tally: tally.admitted),
)


class Standing:
    """What takes long is worked out line by line: the engine may go on in between, so each line is asked of the queue
    as it is then. `measures`: whether a local queue is to be told of, by `namespace/name`."""

    def __init__(self, engine: Callable[[], Engine], census: Census, measures: Callable[[str], bool]) -> None:
        self._engine = engine
        self._census = census
        self._measures = measures

    def families(self) -> Iterator[Family]:
        settings = self._engine().settings
        yield from self._of_queues()
        if Gate.UNADMITTED_WORKLOADS_OBSERVABILITY in settings.gates:
            yield from self._unadmitted()
        if settings.metrics.local_queues:
            yield from self._of_local_queues()
        if Gate.METRICS_FOR_COHORTS in settings.gates:
            yield from self._of_cohorts()
        if settings.metrics.amounts:
            yield from self._amounts()
        if settings.fair_sharing is not None:
            yield from self._shares()

    def _queues(self) -> Iterator[QueueState]:
        self._engine().state.settle()
        for name in list(self._engine().state.queues):
            found = self._engine().state.queues.get(name)
            if found is not None:
                yield found

    def _cohorts(self) -> Iterator[Node]:
        self._engine().state.settle()
        for name in list(self._engine().state.tree.cohorts):
            found = self._engine().state.tree.cohorts.get(name)
            if found is not None:
                yield found

    # By ClusterQueue

    def _of_queues(self) -> Iterator[Family]:
        yield _gauge(
            f"{PREFIX}pending_workloads",
            "Workloads that wait: to be looked at (active), or until something changes that could help (inadmissible)",
            ("cluster_queue", "status", "replica_role"),
            self._pending(),
        )
        if Gate.SCHEDULING_EQUIVALENCE_HASHING in self._engine().settings.gates:
            yield _gauge(
                f"{PREFIX}pending_scheduling_hashes",
                "How many different shapes the workloads that wait have: those of one shape are decided about at once",
                ("cluster_queue", "status", "replica_role"),
                self._shapes(),
            )
        for name, help, read in _COUNTS:
            counts = [((queue.name, ROLE), read(queue.tally)) for queue in self._queues()]
            yield _gauge(f"{PREFIX}{name}", help, _QUEUE, counts)
        samples = [((queue, ROLE), count) for queue, count in self._sum_finished().items()]
        yield _gauge(f"{PREFIX}finished_workloads", "Finished workloads that have not been deleted", _QUEUE, samples)
        yield _gauge(
            f"{PREFIX}cluster_queue_status",
            "1 for the state that the queue is in, 0 for the others",
            ("cluster_queue", "status", "replica_role"),
            (sample for queue in self._queues() for sample in self._states(queue)),
        )

    def _pending(self) -> Samples:
        for queue in self._queues():
            counts = self._engine().pending.counts(queue.name)
            yield (queue.name, "active", ROLE), counts.active
            yield (queue.name, "inadmissible", ROLE), counts.inadmissible

    def _shapes(self) -> Samples:
        for queue in self._queues():
            counts = self._engine().pending.shapes(queue.name)
            yield (queue.name, "active", ROLE), counts.active
            yield (queue.name, "inadmissible", ROLE), counts.inadmissible
            yield None

    def _states(self, queue: QueueState) -> Samples:
        is_active = self._engine().state.is_active(queue)
        now = "terminating" if queue.is_terminating else "active" if is_active else "pending"
        for state in _STATES:
            yield (queue.name, state, ROLE), float(state == now)

    def _sum_finished(self) -> dict[str, int]:
        found = {queue.name: 0 for queue in self._queues()}
        for place, count in self._census.finished.items():
            queue = place.queue or self._leads_to(place.local_queue)
            if queue in found:
                found[queue] += count
        return found

    def _leads_to(self, local_queue: str) -> str:
        """The ClusterQueue, where there is one."""
        state = self._engine().state
        door = state.local_queues.get(local_queue)
        if local_queue.endswith("/"):
            queue = DEFAULT_QUEUE
        else:
            queue = door.spec.cluster_queue if door is not None else ""
        return queue if queue in state.queues else ""

    # Not admitted

    def _unadmitted(self) -> Iterator[Family]:
        help = "Workloads that are not admitted, by the reason, and where no quota is reserved by the cause of that"
        own: dict[tuple[str, ...], int] = {}
        local: dict[tuple[str, ...], int] = {}
        for place, count in self._census.unadmitted.items():
            queue = place.queue or self._leads_to(place.local_queue)
            namespace, _, name = place.local_queue.partition("/")
            _add(own, (queue, place.reason, place.cause, ROLE), count)
            if name and self._measures(place.local_queue):
                _add(local, (name, namespace, queue, place.reason, place.cause, ROLE), count)
        labels: tuple[str, ...] = ("cluster_queue", "reason", "underlying_cause", "replica_role")
        yield _gauge(f"{PREFIX}unadmitted_workloads", help, labels, list(own.items()))
        if self._engine().settings.metrics.local_queues:
            labels = ("name", "namespace", *labels)
            yield _gauge(f"{LOCAL_PREFIX}unadmitted_workloads", f"{help}, by LocalQueue", labels, list(local.items()))

    # By LocalQueue

    def _local_queues(self) -> Iterator[tuple[tuple[str, str], str, kueue.LocalQueue]]:
        """Name and namespace, the key, and the queue."""
        for key in list(self._engine().state.local_queues):
            found = self._engine().state.local_queues.get(key)
            if found is not None and self._measures(key):
                yield (found.metadata.name, found.metadata.namespace), key, found

    def _tally(self, key: str) -> Tally:
        return self._engine().state.by_local_queue.get(key) or Tally()

    def _of_local_queues(self) -> Iterator[Family]:
        yield _gauge(
            f"{LOCAL_PREFIX}pending_workloads",
            "Workloads that wait, active or inadmissible, by LocalQueue",
            ("name", "namespace", "status", "replica_role"),
            self._local_pending(),
        )
        for name, help, read in _COUNTS:
            counts = [((*labels, ROLE), read(self._tally(key))) for labels, key, _ in self._local_queues()]
            yield _gauge(f"{LOCAL_PREFIX}{name}", f"{help}, by LocalQueue", _LOCAL, counts)
        finished: dict[str, int] = {}
        for place, count in self._census.finished.items():
            _add(finished, place.local_queue, count)
        help = "Finished workloads that have not been deleted, by LocalQueue"
        samples = (((*labels, ROLE), finished.get(key, 0)) for labels, key, _ in self._local_queues())
        yield _gauge(f"{LOCAL_PREFIX}finished_workloads", help, _LOCAL, samples)
        yield _gauge(
            f"{LOCAL_PREFIX}status",
            "1 for whether the LocalQueue is active, 0 for the others",
            ("name", "namespace", "active", "replica_role"),
            self._local_states(),
        )
        for name, help, pick in (
            ("resource_reservation", "What workloads that hold quota use, by LocalQueue", lambda tally: tally.reserved),
            ("resource_usage", "What admitted workloads use, by LocalQueue", lambda tally: tally.used),
        ):
            yield _gauge(f"{LOCAL_PREFIX}{name}", help, _LOCAL_LINE, self._local_lines(pick))
        if self._engine().pending.ledger is not None:
            yield _gauge(
                f"{LOCAL_PREFIX}admission_fair_sharing_usage",
                "Past usage and penalties, weighted: of the LocalQueues of one queue, the one with less comes first",
                _LOCAL,
                self._past_usage(),
            )

    def _local_pending(self) -> Samples:
        known: dict[str, Mapping[str, tuple[int, int]]] = {}
        for labels, key, view in self._local_queues():
            queue = view.spec.cluster_queue
            if queue not in known:
                known[queue] = self._engine().pending.local_counts(queue)
                yield None
            active, inadmissible = known[queue].get(key, (0, 0))
            yield (*labels, "active", ROLE), active
            yield (*labels, "inadmissible", ROLE), inadmissible

    def _local_states(self) -> Samples:
        for labels, _, view in self._local_queues():
            state = self._engine().state
            verdict = figures.local_verdict(state, view, state.queues.get(view.spec.cluster_queue))
            for value in ("True", "False", "Unknown"):
                yield (*labels, value, ROLE), float(value == str(verdict.is_active))

    def _local_lines(self, pick: Callable[[Tally], Mapping[FlavorResource, int]]) -> Samples:
        for labels, key, view in self._local_queues():
            queue, amounts = self._engine().state.queues.get(view.spec.cluster_queue), pick(self._tally(key))
            for what in queue.policy.quotas if queue is not None else ():
                yield (*labels, what.flavor, what.resource, ROLE), _in_units(what.resource, amounts.get(what, 0))

    def _past_usage(self) -> Samples:
        for labels, key, view in self._local_queues():
            engine = self._engine()
            queue, ledger = engine.state.queues.get(view.spec.cluster_queue), engine.pending.ledger
            if queue is not None and ledger is not None and is_usage_based(queue.policy, engine.settings):
                yield (*labels, ROLE), ledger.usage(key)

    # By cohort

    def _of_cohorts(self) -> Iterator[Family]:
        yield _gauge(
            f"{PREFIX}cluster_queue_info",
            "1, with the queue's place in the tree in the labels",
            ("cluster_queue", "parent_cohort", "root_cohort", "replica_role"),
            (((queue.name, *_place(queue.node), ROLE), 1.0) for queue in self._queues()),
        )
        yield _gauge(
            f"{PREFIX}cohort_info",
            "1, with the cohort's place in the tree in the labels",
            ("cohort", "parent_cohort", "root_cohort", "replica_role"),
            (((node.name, *_place(node), ROLE), 1.0) for node in self._cohorts()),
        )
        admitted = {node.name: 0 for node in self._cohorts()}
        for queue in self._queues():
            for node in queue.node.ancestors():
                admitted[node.name] += queue.tally.admitted
        yield _gauge(
            f"{PREFIX}cohort_subtree_admitted_active_workloads",
            "Workloads in queues below the cohort that are admitted and have not finished",
            ("cohort", "replica_role"),
            [((name, ROLE), count) for name, count in admitted.items()],
        )
        if self._engine().settings.metrics.amounts:
            for name, help, read in (
                ("quota", "What the queues and cohorts below it own and lend, and it owns itself", Node.owned),
                ("resource_reservations", "What is used of that", Node.used),
            ):
                yield _gauge(f"{PREFIX}cohort_subtree_{name}", help, _COHORT_LINE, self._cohort_lines(read))

    def _cohort_lines(self, read: Callable[[Node, FlavorResource], int]) -> Samples:
        for node in self._cohorts():
            for what in node.subtree:
                yield (node.name, what.flavor, what.resource, ROLE), _in_units(what.resource, read(node, what))

    # Amounts

    def _amounts(self) -> Iterator[Family]:
        for name, help, read in (
            (
                "resource_reservation",
                "What workloads that hold quota use",
                lambda queue, what: queue.tally.reserved.get(what, 0),
            ),
            ("resource_usage", "What admitted workloads use", lambda queue, what: queue.tally.used.get(what, 0)),
            ("nominal_quota", "What the queue owns", lambda queue, what: queue.policy.quotas[what].nominal),
            (
                "borrowing_limit",
                "How much more than it owns the queue may use",
                lambda queue, what: queue.policy.quotas[what].borrowing_limit,
            ),
            (
                "lending_limit",
                "How much of what it owns the queue lends",
                lambda queue, what: queue.policy.quotas[what].lending_limit,
            ),
        ):
            yield _gauge(f"{PREFIX}cluster_queue_{name}", help, _LINE, self._lines(read))
        yield _gauge(
            f"{PREFIX}cluster_queue_resource_pending",
            "What workloads that wait ask for",
            ("cohort", "cluster_queue", "resource", "replica_role"),
            self._asked(),
        )

    def _lines(self, read: Callable[[QueueState, FlavorResource], int | None]) -> Samples:
        for queue in self._queues():
            for what in queue.policy.quotas:
                labels = (queue.policy.cohort, queue.name, what.flavor, what.resource, ROLE)
                yield labels, _in_units(what.resource, read(queue, what))

    def _asked(self) -> Samples:
        for queue in self._queues():
            asked = dict.fromkeys((what.resource for what in queue.policy.quotas), 0)
            asked |= self._engine().pending.asked(queue.name)
            for resource, value in asked.items():
                yield (queue.policy.cohort, queue.name, resource, ROLE), _in_units(resource, value)

    def _shares(self) -> Iterator[Family]:
        help = "How much is borrowed, in thousandths of what could be lent, relative to the weight; NaN without weight"
        yield _gauge(
            f"{PREFIX}cluster_queue_weighted_share",
            help,
            ("cluster_queue", "cohort", "replica_role"),
            (((queue.name, queue.policy.cohort, ROLE), _share(queue.node)) for queue in self._queues()),
        )
        samples = (((node.name, ROLE), _share(node)) for node in self._cohorts())
        yield _gauge(f"{PREFIX}cohort_weighted_share", help, ("cohort", "replica_role"), samples)


def _gauge(name: str, help: str, labels: tuple[str, ...], samples: Samples) -> Family:
    return Family(name, "gauge", help, labels, samples)


def _place(node: Node) -> tuple[str, str]:
    """The cohort above, and the topmost one; a cohort without any above it is that itself."""
    root = node.root()
    return (node.parent.name if node.parent is not None else ""), ("" if root.is_queue else root.name)


def _share(node: Node) -> float:
    share = share_of(node)
    return nan if share.is_endless else share.value


def _in_units(resource: str, amount: int | None) -> float:
    if amount is None:
        return inf
    return amount / _MILLI if resource == CPU else amount


def _add(counts: dict[_K, int], key: _K, more: int) -> None:
    counts[key] = counts.get(key, 0) + more
