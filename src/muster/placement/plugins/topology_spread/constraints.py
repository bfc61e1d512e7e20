"""A spread constraint, read: its selector parsed, what was left out filled in, and which pods and nodes it counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.api import core, selectors
from muster.api.selectors import LabelSelector, Operator, Requirement
from muster.cluster.columns import ABSENT, Amounts, NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.plugins.node_selection import required
from muster.placement.plugins.taint_toleration import tolerated_nodes

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
DO_NOT_SCHEDULE, SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"

Places: TypeAlias = npt.NDArray[np.intp]
"""[slot] → where the node's domain is on an axis of all values of a label: 0 without the label, else one more than the
code of its value. Counts by domain are vectors along that axis, and a node reads its own by one `take`."""
NOWHERE = 0


class Rules(NamedTuple):
    """What of a constraint is read; the rest is as if it were not there."""

    node_policies: bool = True
    match_label_keys: bool = True
    comparison_operators: bool = False


@dataclass(frozen=True, slots=True)
class Constraint:
    max_skew: int
    topology_key: str
    selector: LabelSelector
    min_domains: int = 1
    honors_affinity: bool = True
    """Nodes that the pod's own node affinity rules out are not counted."""
    honors_taints: bool = False
    """Nodes with taints that the pod does not tolerate are not counted."""
    compares: bool = False
    """Tolerations may compare numbers."""

    def counts(self, labels: Mapping[str, str]) -> bool:
        """Whether pods with these labels are counted. An empty selector counts none, although it matches all."""
        return bool(self.selector.requirements) and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class Written:
    """A constraint as a pod spells it: some of its selector may be taken from the labels of each pod."""

    constraint: Constraint
    action: str
    match_label_keys: tuple[str, ...] = ()

    def of_pod(self, labels: Mapping[str, str]) -> Constraint:
        keys = [key for key in self.match_label_keys if key in labels]
        selector = self.constraint.selector
        if not keys or selector.nothing:
            return self.constraint
        own = tuple(Requirement(key, Operator.IN, frozenset({labels[key]})) for key in keys)
        return replace(self.constraint, selector=LabelSelector((*own, *selector.requirements)))


def read(views: Iterable[core.TopologySpreadConstraint], rules: Rules) -> tuple[Written, ...]:
    return tuple(
        Written(
            Constraint(
                max_skew=view.max_skew or 0,
                topology_key=view.topology_key,
                selector=selectors.from_view(view.label_selector),
                min_domains=1 if view.min_domains is None else view.min_domains,
                honors_affinity=not rules.node_policies or view.node_affinity_policy != "Ignore",
                honors_taints=rules.node_policies and view.node_taints_policy == "Honor",
                compares=rules.comparison_operators,
            ),
            view.when_unsatisfiable,
            view.match_label_keys if rules.match_label_keys else (),
        )
        for view in views
    )


def matching_pods(constraint: Constraint, namespace: str, cluster: ClusterState) -> Amounts:
    """[slot] → pods there that the constraint counts: of the namespace, selected, and not on their way out."""

    def matches(found: str, labels: Mapping[str, str], is_terminating: bool) -> bool:
        return found == namespace and not is_terminating and constraint.counts(labels)

    key = ("PodTopologySpread", namespace, constraint.selector)
    return cluster.label_sets.counts_by_slot(matches, cluster.width, key, constraint.selector)


def places_of(key: str, cluster: ClusterState) -> Places:
    codes = cluster.labelled(key)
    if codes is None:
        return np.full(cluster.width, NOWHERE, dtype=np.intp)
    return np.add(codes, -ABSENT, dtype=np.intp)


def axis_length(places: Places) -> int:
    return int(places.max(initial=NOWHERE)) + 1


def with_all_keys(places: Iterable[Places], cluster: ClusterState) -> NodeMask:
    """Nodes that have a label for every one of the topologies."""
    mask = cluster.exists[: cluster.width].copy()
    for found in places:
        mask &= found != NOWHERE
    return mask


def sums(places: Places, nodes: NodeMask, pods: Amounts) -> npt.NDArray[np.float64]:
    """[place] → pods on those of the nodes that are there. Whole numbers, as floats because `bincount` makes them."""
    if nodes.all():
        found = np.bincount(places, weights=pods, minlength=1)
    else:
        slots = np.flatnonzero(nodes)
        found = np.bincount(places.take(slots), weights=pods.take(slots), minlength=axis_length(places))
    return found.astype(np.float64, copy=False)


def occupied(places: Places, nodes: NodeMask) -> npt.NDArray[np.intp]:
    """Places where at least one of the nodes is."""
    here = places if nodes.all() else places[nodes]
    return np.flatnonzero(np.bincount(here))


class Counted:
    """Which nodes each constraint of a pod counts. Constraints of one policy share the answer."""

    def __init__(self, pod: PodInfo, cluster: ClusterState, among: NodeMask) -> None:
        self._pod, self._cluster, self._among = pod, cluster, among
        self._known: dict[tuple[bool, bool], NodeMask] = {}

    def nodes(self, constraint: Constraint) -> NodeMask:
        policy = (constraint.honors_affinity, constraint.honors_taints)
        found = self._known.get(policy)
        if found is None:
            found = self._known[policy] = self._nodes(constraint)
        return found

    def _nodes(self, constraint: Constraint) -> NodeMask:
        mask = self._among
        if constraint.honors_affinity and not (wanted := required(self._pod)).is_everything:
            mask = mask & wanted.nodes(self._cluster)
        if constraint.honors_taints:
            mask = mask & tolerated_nodes(self._pod, self._cluster, compares=constraint.compares)
        return mask


def texts(places: Iterable[int], cluster: ClusterState) -> dict[int, str]:
    """The label values at places: for people and tests, not for deciding."""
    wanted = set(places)
    found = {code - ABSENT: value for value, code in cluster.label_values.items() if code - ABSENT in wanted}
    return {**found, NOWHERE: ""} if NOWHERE in wanted else found
