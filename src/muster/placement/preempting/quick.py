"""`QuickSearch`: preemption for a class of pods that nothing but resources keeps off nodes, remembered between pods.

What evicting would cost is worked out for all nodes at once and kept; after that only nodes whose pods have changed are
looked at again. Where a budget or a group has a say on a node, that node is worked out pod by pod.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from muster.cluster.columns import PODS, NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Filter, Reads
from muster.placement.judging import Judgement
from muster.placement.plugins.resources_fit import NodeResourcesFit, Request, reason_of
from muster.placement.preempting.budgets import Budgets
from muster.placement.preempting.candidates import Candidate, cost, earliest_start
from muster.placement.preempting.options import Options
from muster.placement.preempting.ranking import Costs, Wanted, emptied, rate
from muster.placement.preempting.selecting import NO_VICTIMS, by_importance, evictable
from muster.placement.preempting.victims import Victim, priority_of

NOT_HELPFUL = "Preemption is not helpful for scheduling"
_FEW = 24  # so many nodes are worked out pod by pod; for more, all at once is cheaper


class _Basis(NamedTuple):
    """What everything remembered rests on."""

    nodes_version: int
    epoch: int
    groups_version: int
    protected_version: int
    rows: int


class QuickSearch:
    def __init__(self, judgement: Judgement, cluster: ClusterState) -> None:
        self._judgement, self._cluster = judgement, cluster
        self._basis: _Basis | None = None
        self._budgets = Budgets()
        self._read = 0
        self._reasons: Counter[str] | None = None
        self._wanted: Wanted | None = None
        self._allowed = cluster.mask()
        self._costs = Costs.nothing(cluster.width)

    def applies(self, preemptor: PodInfo, options: Options) -> bool:
        """Whether the answer is the same as that of trying node by node."""
        if preemptor.has_deferred_resize or options.groups.whole or options.extenders:
            return False
        if options.may_evict is not None or options.is_more_important is not None:
            return False
        active = self._judgement.active()
        return all(_is_simple(plugin) for plugin, _ in active) and any(_is_fit(plugin) for plugin, _ in active)

    def find(self, budgets: Budgets, options: Options) -> Candidate | Counter[str]:
        """The best candidate of all nodes, or why there is none: nodes by reason."""
        self._refresh(budgets, options)
        slot = self._costs.cheapest(options.offset % max(self._cluster.width, 1))
        if slot is not None:
            found = self._select(slot, budgets, options)
            assert found is not None
            return found
        if self._reasons is None:
            self._reasons = self._count_reasons(options)
        return self._reasons

    # Following the cluster

    def _refresh(self, budgets: Budgets, options: Options) -> None:
        cluster = self._cluster
        index = cluster.priorities
        versions = (options.groups.version, options.protected.version)
        basis = _Basis(cluster.nodes_version, index.epoch, *versions, len(cluster.resources))
        if basis != self._basis or budgets is not self._budgets:
            self._basis, self._budgets = basis, budgets
            self._start_afresh(budgets, options)
        elif self._read < len(index.changed):
            self._reasons = None
            slots = {slot for slot in index.changed[self._read :] if self._allowed[slot]}
            if len(slots) > _FEW:
                self._rate(slots, budgets, options)
            else:
                for slot in slots:
                    self._rate_alone(slot, budgets, options)
        self._read = len(index.changed)

    def _start_afresh(self, budgets: Budgets, options: Options) -> None:
        cluster, judgement = self._cluster, self._judgement
        self._reasons = None
        self._costs = Costs.nothing(cluster.width)
        request = next(_request(plugin, state) for plugin, state in judgement.active() if _is_fit(plugin))
        self._wanted = Wanted.of(request, judgement.pod.priority, cluster)
        self._allowed = cluster.mask() if self._wanted is None else self._could_fit(self._wanted)
        self._rate(np.flatnonzero(self._allowed).tolist(), budgets, options)

    def _could_fit(self, wanted: Wanted) -> NodeMask:
        """Nodes that would take the pod if they were empty."""
        cluster, mask = self._cluster, self._judgement.steady_mask()
        for row, resource, amount in zip(wanted.rows, wanted.resources, wanted.amounts, strict=True):
            if resource != PODS:  # a node that takes no pods at all may yet lose one
                mask &= cluster.allocatable[row, : cluster.width] >= amount
        return mask

    def _rate(self, slots: Iterable[int], budgets: Budgets, options: Options) -> None:
        if self._wanted is None:
            return
        chosen = np.fromiter(slots, dtype=np.intp)
        chosen.sort()
        rate(self._wanted, self._cluster, chosen, self._costs)
        for slot in self._peculiar(budgets, options).intersection(chosen.tolist()):
            self._rate_alone(slot, budgets, options)

    def _peculiar(self, budgets: Budgets, options: Options) -> set[int]:
        """Nodes with a pod that a budget covers, or whose own priority does not say whether it may be evicted."""
        cluster, found = self._cluster, set[int]()
        if budgets:
            for labelled in cluster.label_sets:
                if budgets.select(labelled.namespace, labelled.labels):
                    found.update(labelled.counts)
        return found | self._not_by_priority(options)

    def _not_by_priority(self, options: Options) -> set[int]:
        """Nodes with a pod that counts by its group's priority instead of its own, or is not to be evicted at all."""
        slots, groups = self._cluster.slots, options.groups
        nodes = (self._cluster.node_of(uid) for uid in options.protected.uids(groups))
        return {slots[node] for node in nodes if node in slots} | {
            slots[node]
            for group in groups
            for pod, node in groups.members(group.key).scheduled()
            if node in slots and priority_of(pod, groups) != pod.priority
        }

    # One node, pod by pod

    def _rate_alone(self, slot: int, budgets: Budgets, options: Options) -> None:
        costs, found = self._costs, self._select(slot, budgets, options)
        costs.is_candidate[slot] = found is not None
        if found is not None:
            _violations, highest, total, count, _ = cost(found)
            costs.violations[slot], costs.highest[slot], costs.total[slot] = found.violations, highest, total
            costs.count[slot], costs.earliest[slot] = count, earliest_start(found.victims)
        costs.changed(slot)

    def _select(self, slot: int, budgets: Budgets, options: Options) -> Candidate | None:
        """As `selecting.select`, in plain numbers."""
        assert self._wanted is not None
        victims = evictable(self._judgement.pod, slot, self._cluster, options)
        left = self._left(slot, self._wanted, victims)
        if not victims or min(left.values()) < 0:
            return None
        beyond, within = budgets.split(by_importance(victims, options))
        violations, evicted = 0, []
        for victim, count in (*beyond, *((victim, 0) for victim in within)):
            needs = victim.pods[0].needs
            if all(needs.get(resource, 0) <= amount for resource, amount in left.items()):
                for resource in left:
                    left[resource] -= needs.get(resource, 0)
            else:
                evicted.append(victim)
                violations += count
        if not evicted:
            return None
        if beyond and within:
            evicted = by_importance(evicted, options)
        return Candidate(self._cluster.names[slot], tuple(victim.pods[0] for victim in evicted), violations)

    def _left(self, slot: int, wanted: Wanted, victims: Sequence[Victim]) -> dict[str, int]:
        """By wanted resource: what would be left of the node, the preemptor there in place of the victims."""
        cluster = self._cluster
        return {
            resource: cluster.allocatable.item(row, slot)
            - cluster.used.item(row, slot)
            - amount
            + sum(victim.pods[0].needs.get(resource, 0) for victim in victims)
            for row, resource, amount in zip(wanted.rows, wanted.resources, wanted.amounts, strict=True)
        }

    # Reasons

    def _count_reasons(self, options: Options) -> "Counter[str]":
        """Why no node can be helped: it has no victims, lacks something even without them, or is past all help."""
        cluster, wanted = self._cluster, self._wanted
        if wanted is None:
            return Counter({NOT_HELPFUL: cluster.node_count})
        hopeful = self._allowed & ~self._judgement.feasible
        counts = Counter({NOT_HELPFUL: cluster.node_count - int(hopeful.sum())})
        for slot in self._not_by_priority(options):
            if hopeful[slot]:
                hopeful[slot] = False
                counts.update(self._reasons_at(slot, wanted, options))
        cluster.priorities.refresh()
        slots = np.flatnonzero(hopeful)
        empty = emptied(wanted, cluster, slots)
        counts[NO_VICTIMS.reasons[0]] += int(slots.size - empty.has_victims.sum())
        for resource, left in zip(wanted.resources, empty.left, strict=True):
            counts[reason_of(resource)] += int((empty.has_victims & (left < 0)).sum())
        return +counts

    def _reasons_at(self, slot: int, wanted: Wanted, options: Options) -> Sequence[str]:
        victims = evictable(self._judgement.pod, slot, self._cluster, options)
        if not victims:
            return NO_VICTIMS.reasons
        left = self._left(slot, wanted, victims)
        return [reason_of(resource) for resource, amount in left.items() if amount < 0]


def _is_fit(plugin: Filter) -> bool:
    return isinstance(plugin, NodeResourcesFit)


def _is_simple(plugin: Filter) -> bool:
    return plugin.reads is Reads.NODES or _is_fit(plugin)


def _request(plugin: Filter, state: object) -> Request:
    assert isinstance(plugin, NodeResourcesFit)
    assert isinstance(state, tuple)
    return state
