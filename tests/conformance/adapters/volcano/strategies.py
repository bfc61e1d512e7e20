"""Volcano's resource-strategy-fit: which nodes it prefers, and what it keeps for devices."""

from collections.abc import Callable
from typing import Any

from muster.api import core
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.plugins.proportional_reserve import ProportionalReserve, ProportionalReserveArgs
from muster.placement.plugins.resource_strategies import ResourceStrategyFitArgs, Strategy
from muster.placement.plugins.resource_strategy_fit import ResourceStrategyFit
from tests.conformance.adapters.kube.building import status_at, view
from tests.conformance.adapters.volcano import building, limits, sessions
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

POD_LEVEL = (
    "a pod's own annotations say how it is scored; in Muster the profile says it, which the pod chooses by "
    "`schedulerName`"
)
_CHOOSING = "volcano.sh/resource-strategy-scoring-type"
_CODES = {0: "Success", 2: "Unschedulable", 3: "UnschedulableAndUnresolvable"}


def _requests(resource: dict[str, Any]) -> dict[str, str]:
    """From Volcano's own type: thousandths of everything but memory."""
    found = {name: f"{int(amount)}m" for name, amount in (resource.get("ScalarResources") or {}).items()}
    return {**found, "cpu": f"{int(resource.get('MilliCPU', 0))}m", "memory": str(int(resource.get("Memory", 0)))}


def _cluster(allocatable: dict[str, str], used: dict[str, str]) -> ClusterState:
    cluster = ClusterState.of([view({"metadata": {"name": "node"}, "status": {"allocatable": allocatable}}, core.Node)])
    cluster.assign(_pod(cluster, "there", used), "node")
    return cluster


def _pod(cluster: ClusterState, name: str, requests: dict[str, str]) -> PodInfo:
    spec = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    return cluster.shapes.info(view({"metadata": {"name": name, "uid": name}, "spec": spec}))


def _scored(plugin: ResourceStrategyFit, args: ResourceStrategyFitArgs, pod: PodInfo, cluster: ClusterState) -> Any:
    return 100 * (plugin.shares(pod, cluster) * args.weight + plugin.spared(pod, cluster) * args.scarce_weight)


def _score(case: Case) -> Outcome:
    given, wanted = case["row"]["args"], case["row"]["want"]
    if _CHOOSING in ((given["task"].get("Pod") or {}).get("metadata") or {}).get("annotations", {}):
        return NotApplicable(POD_LEVEL)
    args = ResourceStrategyFitArgs.from_volcano(given["weight"])
    node = given["node"]
    cluster = _cluster(_requests(node.get("Allocatable") or {}), _requests(node.get("Used") or {}))
    pod = _pod(cluster, "new", _requests(given["task"]["Resreq"]))
    found = float(_scored(ResourceStrategyFit(args), args, pod, cluster)[0])
    return Passed() if abs(found - wanted) <= case["fixtures"]["eps"] else Failed(f"found {found}, wanted {wanted}")


def _one_resource(type_: str) -> Callable[[Case], Outcome]:
    """A score of one resource: what does not fit is an error there, and worth nothing here."""

    def adapter(case: Case) -> Outcome:
        given = case["row"]["args"]
        asked, used, capacity = (given.get(name, 0) for name in ("requested", "used", "capacity"))
        plugin = ResourceStrategyFit(ResourceStrategyFitArgs((Strategy("memory", type_),)))
        cluster = _cluster({"memory": str(capacity)}, {"memory": str(used)})
        share = plugin.shares(_pod(cluster, "new", {"memory": str(asked)}), cluster)[0]
        does_not_fit = bool(capacity) and asked + used > capacity
        return (
            compare("does not fit", does_not_fit, case["row"]["wantErr"])
            or compare("score", float(share) * given.get("weight", 0), case["row"]["want"])
            or Passed()
        )

    return adapter


def _weights(case: Case) -> Outcome:
    args = ResourceStrategyFitArgs.from_volcano(case["row"]["args"]["args"])
    resources = {found.name: {"type": found.type, "weight": found.weight} for found in args.resources}
    found = {"resourceStrategyFitWeight": args.weight, "resources": resources}
    return compare("weights", found, case["row"]["want"]) or Passed()


def _by_name(case: Case) -> Outcome:
    row = case["row"]
    resources = {"resources": row["args"].get("resources") or {}}
    found = ResourceStrategyFitArgs.from_volcano(resources).strategy_of(row["args"].get("resourceName", ""))
    told = {} if found is None else {"type": found.type, "weight": found.weight}
    return compare("found", found is not None, row["wantFound"]) or compare("it", told, row["wantConfig"]) or Passed()


def _proportional(case: Case) -> Outcome:
    given, row = case["row"]["args"], case["row"]
    plugin = ProportionalReserve(ProportionalReserveArgs.from_volcano(given["proportional"]))
    cluster = _cluster(_requests(given["node"]["Idle"]), {})
    pod = _pod(cluster, "new", _requests(given["task"]["Resreq"]))
    is_skipped = plugin.pre_filter(pod, cluster).status.code == "Skip"
    found = status_at([] if is_skipped else list(plugin.filter(pod, cluster, None)), 0)
    return (
        compare("code", found.code, _CODES[row["want"]])
        or compare("refused", not found.is_success, row["wantErr"])
        or Passed()
    )


def _nodes(case: Case) -> Outcome:
    args = ResourceStrategyFitArgs.from_volcano(case["row"]["arguments"])
    plugin, cluster = ResourceStrategyFit(args), building.world(case).engine.cluster
    for document in case["pods"]:
        pod = cluster.shapes.info(view(document))
        scores = _scored(plugin, args, pod, cluster)
        for name, wanted in case["row"]["expected"][str(pod.key)].items():
            found = float(scores[cluster.slots[name]])
            if abs(found - wanted) > case["fixtures"]["eps"]:
                return Failed(f"{pod.key} at {name}: found {found}, wanted {wanted}")
    return Passed()


_TESTS: dict[str, Callable[[Case], Outcome]] = {
    "TestScore": _score,
    "Test_mostRequestedScore": _one_resource("MostAllocated"),
    "Test_leastRequestedScore": _one_resource("LeastAllocated"),
    "Test_calculateWeight": _weights,
    "Test_findResourceConfigWithPrefix": _by_name,
    "Test_checkNodeResourceIsProportional": _proportional,
}


def _run(case: Case) -> Outcome:
    if case["kind"] == "session":
        return sessions.run(case) if case.get("checks") else _nodes(case)
    if "want" not in case["row"] and "wantConfig" not in case["row"]:
        return NotApplicable(limits.INTERNAL)
    return _TESTS[case["test"]](case)


ADAPTERS: Adapters = {"resource_strategy_fit": _run}
