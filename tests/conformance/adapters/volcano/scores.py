"""Cases that call a score of one plugin: node by node here too, or as the order in which the engine takes nodes."""

from dataclasses import replace
from typing import Any

import numpy as np

from muster.api import policy
from muster.cluster.groups import GroupKey, Mode, Topology
from muster.cluster.pods import PodInfo, Shapes
from muster.placement.plugins.bin_packing import BinPacking, BinPackingArgs
from muster.placement.preempting import Budgets, is_kept
from muster.placement.preempting.victims import alone
from muster.placement.queueing.entities import Queued
from tests.conformance.adapters.kube.building import view
from tests.conformance.adapters.volcano import building, limits, sessions
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

LONE_PODS = (
    "packs pods without a topology into HyperNodes that are in use; Muster packs them by node (BinPacking, GpuPacking) "
    "and keeps domains whole by choosing the tightest for each gang"
)
_NETWORK = "network-topology-aware"
_LONE = "hypernode.binpack.normal-pod.enable"


def bin_packing(case: Case) -> Outcome:
    """Scores of every pod at every node, exactly."""
    if case["kind"] != "session":
        return NotApplicable(limits.INTERNAL)
    args = BinPackingArgs.from_volcano(case["row"]["arguments"] or {})
    plugin, cluster = BinPacking(args), building.world(case).engine.cluster
    for document in case["pods"]:
        pod = cluster.shapes.info(view(document))
        shares = plugin.shares(pod, cluster)
        for name, wanted in case["row"]["expected"][str(pod.key)].items():
            found = float(shares[cluster.slots[name]]) * 100 * args.weight
            if abs(found - wanted) > case["fixtures"]["eps"]:
                return Failed(f"{pod.key} at {name}: found {found}, wanted {wanted}")
    return Passed()


def node_order(case: Case) -> Outcome:
    """Which plugins score at all, by their weights; else what is bound where."""
    if case["kind"] == "session":
        return sessions.run(case)
    row = case["row"]
    if "weight" not in row:
        return NotApplicable(limits.INTERNAL)
    given = {building.NODE_ORDER_FIELDS[name]: weight for name, weight in row["weight"].items()}
    weights = building.node_order({key: given.get(key, 0) for key in building.NODE_ORDER_FIELDS.values()})
    scoring = {_VOLCANO_NAMES.get(name, name) for name, weight in weights.items() if weight}
    wanted = {*(row["expectScorePlugins"] or ()), *(row["expectNodeOrderKeys"] or ())}
    return compare("plugins that score", scoring, wanted) or Passed()


_VOLCANO_NAMES = {
    "NodeResourcesFit": "NodeResourcesFit_LeastAllocated",
    "MostRequested": "NodeResourcesFit_MostAllocated",
}


def network_topology(case: Case) -> Outcome:
    if case["kind"] != "session":
        return NotApplicable(limits.INTERNAL)
    row, plugins = case["row"], {plugin["name"]: plugin for plugin in limits.plugins(case)}
    enabled = plugins[_NETWORK]
    if "expected" not in row and not enabled.get("enableNodeOrder"):
        return _domains(case, row["expectedScores"])
    has_topology = any((group.get("spec") or {}).get("networkTopology") for group in case["podGroups"])
    if not has_topology and (enabled.get("arguments") or {}).get(_LONE, True):
        return NotApplicable(LONE_PODS)
    wanted = row["expected"] if "expected" in row else row["expectedScores"]
    return _nodes(case, wanted)


def _nodes(case: Case, wanted: dict[str, float]) -> Outcome:
    """The engine takes nodes in the order of their scores. Volcano's score knows nothing of what is free or how far
    apart the gang may be: so nobody asks for anything here, and all domains are allowed."""
    world = building.world(_asking_nothing(case))
    engine = world.engine
    for group in list(engine.groups):
        topology = None if group.topology is None else Topology(Mode.SOFT)
        engine.groups.put(replace(group, min_count=1, min_per_task={}, parts=(), topology=topology))
    left = dict(wanted)
    for pod in world.pending[:1]:
        while left:
            mask = np.isin(np.array(engine.cluster.names), list(left))
            decision = engine.scheduler.decide(_attempt(pod), mask)
            if not decision.assigned:
                return Failed(f"{pod.key}: {decision.refusal}")
            node = decision.assigned[0].node
            if left[node] < max(left.values()) - case["fixtures"]["eps"]:
                return Failed(f"{pod.key} goes to {node}, of {left}")
            engine.cluster.release(pod.uid)
            engine.groups.pending(pod)
            del left[node]
    return Passed()


def _domains(case: Case, wanted: dict[str, float]) -> Outcome:
    """Of the domains of one tier that hold the gang, the engine takes those first that score highest."""
    world = building.world(case)
    cluster, engine = world.engine.cluster, world.engine
    (group,) = engine.groups
    real = case["realNodesByHyperNode"]
    for names in case["hyperNodesSetByTier"].values():
        left = {name: wanted[name] for name in names}
        while left:
            inside = {node for name in left for node in real[name]}
            tier = max(found["tier"] for name, found in case["hyperNodes"].items() if name in names)
            topology = Topology(Mode.REQUIRED, highest_tier=tier)
            engine.groups.put(replace(group, min_count=len(world.pending), parts=(), topology=topology))
            mask = np.isin(np.array(cluster.names), list(inside))
            decision = engine.scheduler.decide(_attempt(*world.pending), mask)
            if not decision.assigned:
                break  # none of those that are left holds it
            taken = next(name for name in left if {one.node for one in decision.assigned} <= set(real[name]))
            if left[taken] < max(left.values()) - case["fixtures"]["eps"]:
                return Failed(f"goes to {taken}, of {left}")
            for one in decision.assigned:
                cluster.release(one.pod.uid)
                engine.groups.pending(one.pod)
            del left[taken]
    return Passed()


def _attempt(*pods: PodInfo) -> Queued:
    assert pods[0].group is not None
    return Queued(GroupKey(*pods[0].group), pods, 0.0, 1)


def _asking_nothing(case: Case) -> Case:
    def bare(pod: dict[str, Any]) -> dict[str, Any]:
        containers = [{**container, "resources": {}} for container in pod["spec"]["containers"]]
        return {**pod, "spec": {**pod["spec"], "containers": containers}}

    return case | {"pods": [bare(pod) for pod in case["pods"]]}


def budgets(case: Case) -> Outcome:
    """Which of the candidates may be evicted within their budgets. Where there is no other way Muster goes beyond, as
    kube-scheduler does; Volcano never."""
    row = case["row"]
    known = Budgets.of(view(found, policy.PodDisruptionBudget) for found in row["pdbs"] or ())
    shapes = Shapes()
    candidates = [alone(shapes.info(view(found["Pod"])), found["Priority"]) for found in row["preemptees"] or ()]
    _, within = known.split(candidates)
    found = {f"{victim.pods[0].namespace}/{victim.pods[0].key.name}": True for victim in within}
    return compare("victims", found, row["expectVictimsMap"] or {}) or Passed()


def critical(case: Case) -> Outcome:
    """Whom Volcano's conformance plugin lets others evict: all but what the cluster itself runs on."""
    row = case["row"]
    found = [task for task in row["preemptees"] or () if not is_kept(view(task.get("Pod") or {}))]
    return compare("victims", found, row["expectVictims"] or []) or Passed()


ADAPTERS: Adapters = {
    "binpack": bin_packing,
    "conformance": critical,
    "nodeorder": node_order,
    "network_topology_aware": network_topology,
    "pdb": budgets,
}
