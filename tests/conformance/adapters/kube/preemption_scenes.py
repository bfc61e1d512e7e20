"""What cases of preemption describe: clusters with groups and budgets, and the plugins and extenders they make up."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from muster.api import core, policy, timestamps
from muster.cluster.columns import NodeMask
from muster.cluster.groups import PodGroups
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import SKIP, Code, Plugin, Prepared, Reads, Rejection
from muster.placement.judging import Judgement
from muster.placement.plugins.inter_pod_affinity import InterPodAffinity
from muster.placement.plugins.node_affinity import NodeAffinity
from muster.placement.plugins.node_name import NodeName
from muster.placement.plugins.node_ports import NodePorts
from muster.placement.plugins.node_unschedulable import NodeUnschedulable
from muster.placement.plugins.resources_fit import NodeResourcesFit
from muster.placement.plugins.taint_toleration import TaintToleration
from muster.placement.plugins.topology_spread import PodTopologySpread
from muster.placement.preempting import Budgets, Candidate, ExtenderFailed, Options
from muster.placement.profiles import Profile
from tests.conformance.adapters.kube.building import as_served, view
from tests.conformance.adapters.kube.gangs import GROUP_KINDS, annotated, group_of
from tests.conformance.adapters.kube.resources import gates_of
from tests.conformance.cases import Case


class Scene:
    """The cluster, groups and budgets of a case, and judgements by its plugins."""

    def __init__(self, case: Case, plugins: Sequence[Plugin], order: Sequence[str] | None = None) -> None:
        self.case = case
        self.gates: Mapping[str, bool] = case.get("featureGates") or {}
        self.knobs: Mapping[str, Any] = case.get("knobs") or {}
        nodes = [view(document, core.Node) for document in case.get("nodes") or ()]
        if order:
            nodes.sort(key=lambda node: order.index(node.metadata.name))
        self.cluster = ClusterState.of(nodes)
        self.groups = PodGroups()
        for document in case.get("objects") or ():
            self.add_group(document)
        for number, document in enumerate(case.get("existingPods") or ()):
            pod = self.info(document, number)
            node = document["spec"]["nodeName"]
            self.cluster.assign(pod, node)
            self.groups.bound(pod, node)
        budgets = (found for found in case.get("objects") or () if found["kind"] == "PodDisruptionBudget")
        self.budgets = Budgets.of(view(found, policy.PodDisruptionBudget) for found in budgets)
        self._profile = Profile.of(plugins)

    @property
    def knows_groups(self) -> bool:
        return bool(self.gates.get("GenericWorkload"))

    def add_group(self, document: dict[str, Any]) -> None:
        knows_trees = self.gates.get("CompositePodGroup")
        if not self.knows_groups or document["kind"] not in GROUP_KINDS:
            return
        group = group_of(document)
        if knows_trees or not group.key.is_composite:
            # A group that names no priority has zero there.
            self.groups.put(replace(group, priority=group.priority or 0, parent=group.parent if knows_trees else None))

    def info(self, document: dict[str, Any], number: int = 0) -> PodInfo:
        """With the start time to the nanosecond, which decides in some cases; ours are real times, kept as floats."""
        served = as_served(document, self.case)
        pod = self.cluster.shapes.info(view(annotated(served) if self.knows_groups else served))
        uid = pod.uid if document["metadata"].get("uid") else f"{pod.uid}#{number}"
        return replace(pod, uid=uid, started=exactly((document.get("status") or {}).get("startTime")))

    def judge(self, pod: PodInfo) -> Judgement:
        return Judgement(self._profile, pod, self.cluster)

    def options(self, cycle: int = 0, **more: Any) -> Options:
        args = self.case.get("args") or {}
        return Options(
            offset=(self.knobs.get("searchOffsetPerCycle") or [0])[cycle],
            min_percentage=args.get("minCandidateNodesPercentage", 10),
            min_absolute=args.get("minCandidateNodesAbsolute", 100),
            groups=self.groups,
            **more,
        )

    def resolvable(self) -> NodeMask:
        given = self.knobs["filteredNodesStatuses"]
        mask = self.cluster.mask()
        for name, slot in self.cluster.slots.items():
            mask[slot] = given["nodeToStatus"].get(name, given["absentNodesStatus"])["code"] == "Unschedulable"
        return mask


def exactly(text: str | None) -> Any:
    if text is None:
        return None
    seconds, fraction = re.fullmatch(r"([^.]*?)(?:\.(\d+))?Z", text).groups()  # type: ignore[union-attr]
    return timestamps.parse(f"{seconds}Z") + float(f"0.{fraction or 0}")


# Plugins that the cases make up


class Made:
    """Rejects what `rejects` says, by node name, when asked for a pod."""

    name: ClassVar[str] = "made up"
    reads: ClassVar[Reads] = Reads.NODE_PODS

    def __init__(
        self, rejects: Callable[[PodInfo, str, ClusterState], bool], code: Code = Code.UNSCHEDULABLE, reason: str = ""
    ) -> None:
        self._rejects, self._code, self._reason = rejects, code, reason

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        found = [bool(name) and self._rejects(pod, name, cluster) for name in cluster.names]
        return [Rejection(self._reason, np.array(found, dtype=np.bool_), self._code is not Code.UNSCHEDULABLE)]


class FailsToFollow:
    """`test-plugin`: cannot follow pods on nodes that are labelled so."""

    name: ClassVar[str] = "test-plugin"
    reads: ClassVar[Reads] = Reads.ALL_PODS

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        return Prepared()

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        return ()

    def pod_added(self, state: object, pod: PodInfo, other: PodInfo, node: int, cluster: ClusterState) -> None:
        self._follow("add", pod, node, cluster)

    def pod_removed(self, state: object, pod: PodInfo, other: PodInfo, node: int, cluster: ClusterState) -> None:
        self._follow("remove", pod, node, cluster)

    def _follow(self, verb: str, pod: PodInfo, node: int, cluster: ClusterState) -> None:
        found = cluster.nodes[node]
        if found is not None and (found.metadata.labels or {}).get("error") == "true":
            raise RuntimeError(f"failed to {verb} pod: {pod.key.name}")


class SkipsDeferred(Made):
    """`skip-on-deferred`"""

    name: ClassVar[str] = "skip-on-deferred"

    def __init__(self) -> None:
        super().__init__(lambda _pod, _node, _cluster: True)

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        return Prepared(SKIP) if pod.has_deferred_resize else Prepared()


def _fit(case: Case) -> Plugin:
    return NodeResourcesFit(gates=gates_of(case))


def _in_tree(make: Callable[..., Plugin]) -> Callable[[Case], Plugin]:
    return lambda case: make(resize_preemption=gates_of(case).resize_preemption)


PLUGINS: Mapping[str, Callable[[Case], Plugin]] = {
    "NodeResourcesFit": _fit,
    "InterPodAffinity": _in_tree(InterPodAffinity),
    "PodTopologySpread": _in_tree(PodTopologySpread),
    "NodeAffinity": _in_tree(NodeAffinity),
    "NodeName": lambda _case: NodeName(),
    "NodePorts": _in_tree(NodePorts),
    "NodeUnschedulable": _in_tree(NodeUnschedulable),
    "TaintToleration": _in_tree(TaintToleration),
    "test-plugin": lambda _case: FailsToFollow(),
    "skip-on-deferred": lambda _case: SkipsDeferred(),
    "TrueFilter": lambda _case: Made(lambda _pod, _node, _cluster: False),
    "FalseFilter": lambda _case: Made(lambda _pod, _node, _cluster: True),
    "MatchFilter": lambda _case: Made(lambda pod, node, _cluster: pod.key.name != node),
}
DECIDE_NOTHING = ("PrioritySort", "DefaultBinder")


def plugins_of(case: Case, *more: str) -> list[Plugin]:
    """Those that the case enables anywhere, then `more`, each once."""
    knobs = case.get("knobs") or {}
    names = [name.split(" ")[0] for name in knobs.get("plugins") or ()]
    extra = knobs.get("extraPlugins") or ()
    for entry in [extra] if isinstance(extra, dict) else extra:
        names += [name for enabled in entry["enable"].values() for name in enabled]
    return [PLUGINS[name](case) for name in dict.fromkeys((*names, *more)) if name not in DECIDE_NOTHING]


class AgreesTo:
    """A made-up extender: some nodes pass all its predicates."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.name, self.is_ignorable = described["name"], described["ignorable"]
        self._is_interested = not described["unInterested"]
        self._predicates = [predicate["$fn"] for predicate in described["predicates"]]

    def is_interested(self, pod: PodInfo) -> bool:
        return self._is_interested

    def process_preemption(self, pod: PodInfo, candidates: Mapping[str, Candidate]) -> Mapping[str, Candidate]:
        return {node: found for node, found in candidates.items() if all(map(self._passes(node), self._predicates))}

    def _passes(self, node: str) -> Callable[[str], bool]:
        def passes(predicate: str) -> bool:
            match predicate.removesuffix("PredicateExtender"):
                case "Error":
                    raise ExtenderFailed("made to fail")
                case "True" | "False" as answer:
                    return answer == "True"
                case "Node1" | "Node2" as only:
                    return node == only.lower()
            raise ValueError(predicate)

        return passes
