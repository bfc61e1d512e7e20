"""`Room`: the nodes of one flavor as a tree of domains, and what is free in each, kept up with the cluster.

Nodes that changed mean a new tree (or the same one, where only amounts did); pods that no topology assignment accounts
for come and go in the columns; what assignments take is in a ledger, which flavors may share.
"""

import numpy as np

from muster.api import conditions, core, kueue
from muster.cluster.columns import Amounts, NodeMask
from muster.cluster.domains import Positions
from muster.cluster.state import ClusterState
from muster.quota.topology.explaining import DomainRoom
from muster.quota.topology.filtering import LeafFilters
from muster.quota.topology.ledger import Ledger
from muster.quota.topology.tree import Span, Tree, grow


class UsableNodes:
    """Nodes that are ready and take new pods. Each node is asked again only when it has changed."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._seen: list[core.Node | None] = []
        self._ready: NodeMask = np.zeros(0, dtype=np.bool_)
        self._version = -1

    def mask(self) -> NodeMask:
        """[slot]"""
        cluster, width = self._cluster, self._cluster.width
        if self._version != cluster.nodes_version:
            more = width - len(self._seen)
            self._seen += [None] * more
            self._ready = np.append(self._ready, np.zeros(more, dtype=np.bool_))
            for slot, (node, before) in enumerate(zip(cluster.nodes, self._seen, strict=True)):
                if node is not before:
                    self._ready[slot] = node is not None and conditions.is_true(node.status.conditions, "Ready")
                    self._seen[slot] = node
            self._version = cluster.nodes_version
        usable: NodeMask = self._ready & cluster.exists[:width] & ~cluster.unschedulable[:width]
        return usable


class Room:
    def __init__(
        self,
        levels: tuple[str, ...],
        flavor: kueue.ResourceFlavorSpec,
        usable: UsableNodes,
        cluster: ClusterState,
        ledger: Ledger,
    ) -> None:
        self._levels = levels
        self._labels = flavor.node_labels or {}
        self._tolerations = flavor.tolerations
        self._usable = usable
        self._cluster = cluster
        self._ledger = ledger
        self._nodes_version = -1
        self._moves_read = 0
        self._changes = 0
        self._label_codes: Amounts = np.zeros((0, 0), dtype=np.int64)
        self._capacity: Amounts = np.zeros((0, 0), dtype=np.int64)
        """[resource, leaf]: what nodes have less what pods without an assignment take there. May be negative."""
        self._leaf_of_slot: Positions = np.zeros(0, dtype=np.intp)
        self._columns: Positions | Span = slice(0, 0)
        self.tree: Tree
        self.filters: LeafFilters

    def refresh(self) -> None:
        """To be called before anything is asked: takes in what has changed in the cluster since."""
        cluster = self._cluster
        if self._nodes_version != cluster.nodes_version:
            self._regrow()
        elif self._capacity.shape[0] != cluster.used.shape[0]:
            self._measure()
        elif self._moves_read < len(cluster.moves):
            self._catch_up()
        else:
            return
        self._changes += 1
        self._moves_read = len(cluster.moves)
        self._nodes_version = cluster.nodes_version

    def version(self, *, as_if_empty: bool = False) -> tuple[int, int]:
        """The same as long as the same is free."""
        return self._changes, 0 if as_if_empty else self._ledger.version

    def free(self, resource: str, *, as_if_empty: bool = False) -> Amounts:
        """[leaf] → what is free of the resource. `as_if_empty`: what assignments take is not counted."""
        row = self._cluster.resources.get(resource)
        there = np.zeros(self.tree.leaf_count, dtype=np.int64) if row is None else self._capacity[row]
        taken = None if as_if_empty else self._ledger.taken(resource, self._columns)
        return there if taken is None else there - taken

    def free_at(self, resource: str, leaf: int) -> int:
        """The same of one leaf."""
        row = self._cluster.resources.get(resource)
        there = 0 if row is None else int(self._capacity[row, leaf])
        return there - self._ledger.taken_of(resource, self.tree.leaf_values[leaf])

    def capacities(self) -> dict[str, DomainRoom]:
        """By domain, for people to read."""
        names = list(self._cluster.resources)
        return {
            ",".join(values): DomainRoom(
                {name: int(self._capacity[row, leaf]) for row, name in enumerate(names) if self._capacity[row, leaf]},
                self._ledger.all_taken_of(values),
            )
            for leaf, values in enumerate(self.tree.leaf_values)
        }

    def lack(self) -> str:
        """Which label keeps all nodes out of the tree; empty where some are in it, or there are none at all."""
        cluster = self._cluster
        if self.tree.leaf_count or not cluster.exists[: cluster.width].any():
            return ""
        nodes = self._nodes()
        if not nodes.any():
            listed = ", ".join(f"{key}={value}" for key, value in sorted(self._labels.items()))
            return f"no ready node has the flavor's labels {listed}"
        for level in self._levels:
            codes = cluster.labelled(level)
            if codes is None or not (nodes & (codes >= 0)).any():
                return f"no node of the flavor has the label {level}"
        return f"no node of the flavor has all of the labels {', '.join(self._levels)}"

    def _nodes(self) -> NodeMask:
        """[slot] → whether it is usable, and of the flavor."""
        cluster = self._cluster
        nodes = self._usable.mask()
        for key, value in self._labels.items():
            codes = cluster.labelled(key)
            nodes &= False if codes is None else codes == cluster.value_code(value)
        return nodes

    def _regrow(self) -> None:
        cluster = self._cluster
        nodes = self._nodes()
        columns = [cluster.labelled(level) for level in self._levels]
        labels = [np.where(nodes, codes, -1) for codes in columns if codes is not None]
        seen = np.array(labels, dtype=np.int64) if labels else np.zeros((0, 0), dtype=np.int64)
        # Nodes change all the time, their places hardly ever: the tree need not be sorted again for an amount.
        if self._nodes_version < 0 or not np.array_equal(seen, self._label_codes):
            self._label_codes = seen
            self.tree = grow(self._levels, cluster, nodes)
            self._columns = self._ledger.columns_of(self.tree.leaf_values)
            leaf_sizes = np.diff(self.tree.first_slot)
            self._leaf_of_slot = np.full(cluster.width, -1, dtype=np.intp)
            self._leaf_of_slot[self.tree.slots] = np.repeat(np.arange(self.tree.leaf_count), leaf_sizes)
        self.filters = LeafFilters(self.tree, cluster, self._tolerations)
        self._measure()

    def _measure(self) -> None:
        tree, cluster = self.tree, self._cluster
        free = cluster.allocatable[:, tree.slots] - cluster.used[:, tree.slots]
        if tree.has_one_node_per_leaf:
            self._capacity = free
        else:
            self._capacity = np.add.reduceat(free, tree.first_slot[:-1], axis=1)

    def _catch_up(self) -> None:
        tree, cluster = self.tree, self._cluster
        moved = {move.slot for move in cluster.moves[self._moves_read :]}
        if len(moved) * 8 > tree.leaf_count:
            self._measure()
            return
        for leaf in {int(self._leaf_of_slot[slot]) for slot in moved} - {-1}:
            slots = tree.slots[tree.first_slot[leaf] : tree.first_slot[leaf + 1]]
            self._capacity[:, leaf] = (cluster.allocatable[:, slots] - cluster.used[:, slots]).sum(axis=1)
