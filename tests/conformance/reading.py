"""Cases that know which of their fields were looked at, so that no adapter leaves one out unnoticed.

An adapter that ignores what a case says would pass it for the wrong reason. Fields are watched two levels deep: what a
case says of itself, and what its parts (`knobs`, `expect`, `inputs`, `want`, `row`, ...) say. A field that no case of a
suite had looked at, and that `UNREAD` does not explain, fails the cases that have it.
"""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

_DEPTH = 2
_NOTHING: tuple[object, ...] = (None, False, 0, "", [], {})

_ENVELOPE = "says where the case comes from"
_SAME_ANSWER = "changes how the other system works, never what it answers"
_NOT_REACHED = "read where a case gets that far"
_BY_OBJECT = "repeats what an object of the case says, which is read"

UNREAD: Mapping[str, Mapping[str, str]] = {
    "kube-scheduler": {
        "args.minCandidateNodesAbsolute": _NOT_REACHED,
        "args.minCandidateNodesPercentage": _NOT_REACHED,
        "args.scoringStrategy": _NOT_REACHED,
        "expect.filter": _NOT_REACHED,
        "expect.hint": _NOT_REACHED,
        "expect.permit": _NOT_REACHED,
        "expect.scoreCode": _NOT_REACHED,
        "expect.scores": _NOT_REACHED,
        "expect.scoresNormalized": _NOT_REACHED,
        "expect.victims": _NOT_REACHED,
        "featureGates.DRANodeAllocatableResources": _NOT_REACHED,
        "featureGates.SchedulerAsyncPreemption": _NOT_REACHED,
        "knobs.filteredNodesStatuses": _NOT_REACHED,
        "knobs.numCandidatesPerCycle": _NOT_REACHED,
        "knobs.preScoreReasonMatch": _NOT_REACHED,
        "knobs.rawNodeNames": _NOT_REACHED,
        "nodes": _NOT_REACHED,
        "pod.metadata": _NOT_REACHED,
        "suite": _ENVELOPE,
        "plugin": _ENVELOPE,
        "name": _ENVELOPE,
        "test": _ENVELOPE,
        "goTestName": _ENVELOPE,
        "source": _ENVELOPE,
        "extensionPoint": "one for the whole suite",
        "event.kind": "the handler says what has changed",
        "knobs.handler": "the kind of the event says what has changed",
        "expect.nominatedNode": "repeats `postFilterResult`",
        "expect.numFilterCalledPerCycle": "how often a filter was called there (FORMAT.md: an implementation detail)",
        "featureGates.GenericWorkload": "groups are always known",
        "featureGates.TopologyAwareWorkloadScheduling": "topologies are always known",
        "featureGates.InterPodAffinityHostnameFastPath": _SAME_ANSWER,
        "featureGates.SchedulerAsyncAPICalls": _SAME_ANSWER,
        "knobs.nilDRAManager": "without classes of devices there is nothing to look up",
        "knobs.parallelismOne": _SAME_ANSWER,
        "knobs.runPreScore": "scores are worked out the same with and without it",
        "knobs.isComposite": _BY_OBJECT,
        "knobs.minCount": _BY_OBJECT,
        "knobs.preemptorPriority": _BY_OBJECT,
        "knobs.unscheduledPods": "only their number matters, which `childrenCount` gives",
        "pod.apiVersion": "one for all pods",
        "pod.kind": "one for all pods",
        "pod.spec": "services select by labels alone",
    },
    "kueue": {
        "inputs.countLimit": _NOT_REACHED,
        "inputs.lqs": _NOT_REACHED,
        "inputs.namespaces": _NOT_REACHED,
        "suite": _ENVELOPE,
        "name": _ENVELOPE,
        "source": _ENVELOPE,
        "notes": _ENVELOPE,
        "now": "time plays no part in the suite",
        "scenarios": "the suite has no gates",
        "defaultScenario": "the suite has no gates",
        "inputs.existingTA": _BY_OBJECT,
        "inputs.admissionCount": _BY_OBJECT,
        "inputs.unhealthyNode": _BY_OBJECT,
        "unsupported": "replayed: the write is refused, or the check is made from its words",
        "featureGates.*": "`effectiveOverrides` of the scenario has them, with what follows from them",
        "inputs.allowedFlavors": "repeats the workload's annotation",
        "inputs.deletedFlavors": "they are not among the flavors that exist",
        "inputs.gateEnabled": "`effectiveOverrides` has it",
        "inputs.preserveProgress": "`effectiveOverrides` has it",
        "inputs.levels": "the order of domains does not depend on what the levels are called",
        "inputs.preemptorFairWeight": _BY_OBJECT,
        "inputs.unorderedWorkloads": "always compared by name",
        "want.eventComparison": "only read where events are stated",
        "want.wantFirstStrategyEvals": "counts log lines",
        "want.wantSecondStrategyEvals": "counts log lines",
        "want.wantMoveWorkloadsLogCount": "counts log lines",
        "want.wantSkippedQueues": "counts log lines",
    },
    "volcano": {
        "row.ExpectedVal": _NOT_REACHED,
        "row.Pod": _NOT_REACHED,
        "row.Pods": _NOT_REACHED,
        "row.expected": _NOT_REACHED,
        "row.newCronJob": _NOT_REACHED,
        "row.now": _NOT_REACHED,
        "suite": _ENVELOPE,
        "test": _ENVELOPE,
        "source": _ENVELOPE,
        "table": _ENVELOPE,
        "index": _ENVELOPE,
        "kind": _ENVELOPE,
        "name": _ENVELOPE,
        "row.name": _ENVELOPE,
        "row.Name": _ENVELOPE,
        "row.description": _ENVELOPE,
        "row.Description": _ENVELOPE,
        "goAssertionsHold": _ENVELOPE,
        "goFuncFields": "what these functions made is in the case (FORMAT.md §3)",
        "asserts": "what is compared, in Go: the row has the values",
        "fixtures.*": "only read where the row does not have the values",
        "globals.*": "repeats `shardingMode` and `shardName`",
        "uncheckedExpect.*": "stated, and not compared by the Go test",
        "plugins": "those registered; `tiers` says which are enabled",
        "configurations": "arguments of actions that choose between ways of looking for the same victims",
        "expectBindsNum": "repeats `expectBindMap`",
        "expectEvictNum": "repeats `expectEvicted`",
        "shardName": "`nodesInShard` says which nodes they are",
        "hyperNodeTierNames.*": "ignored by the Go test too (FORMAT.md §4)",
        "hyperNodesSetByTier.*": "the HyperNodes say their tiers",
        "realNodesByHyperNode.*": "the HyperNodes say their members",
        "sessionOverrides.*": "repeats `nodesInShard`, or nominates a domain that is the whole cluster",
        "featureGates.PodLevelResources": "repeats the row's own field",
        "row.enableHierarchy": "repeats the flag in `tiers`",
        "row.podGroups": "repeats the session's",
        "row.pods": "repeats the session's",
        "row.queue": "repeats the session's",
        "row.tiers": "repeats the session's",
        "row.actions": "repeats the session's",
        "row.arguments": "repeats the arguments in `tiers`",
        "row.level": "repeats the arguments in `tiers`",
        "row.includePriority": "`tiers` says which plugins are enabled",
        "row.LeastRequestedWeight": "repeats the arguments in `tiers`",
        "row.MostRequestedWeight": "repeats the arguments in `tiers`",
        "row.BalancedResourceWeight": "repeats the arguments in `tiers`",
        "row.NodeAffinityWeight": "repeats the arguments in `tiers`",
        "row.PodAffinityWeight": "repeats the arguments in `tiers`",
        "row.TaintTolerationWeight": "repeats the arguments in `tiers`",
        "row.ImageLocalityWeight": "repeats the arguments in `tiers`",
        "row.PodTopologySpreadWeight": "repeats the arguments in `tiers`",
        "row.expectBindMap": "repeats the session's",
        "row.expectBindsNum": "repeats the session's",
        "row.expectEvictNum": "repeats the session's",
        "row.expectEvicted": "repeats the session's",
        "row.expectPipeLined": "repeats the session's",
        "row.expectNoNodeOrderKeys": "the keys that are expected are compared as a whole",
        "row.expectNotInScorePlugins": "the plugins that are expected are compared as a whole",
        "row.expectVictims": "repeats `expectVictimsMap`",
        "row.expectedAction": "says in words how the expected rank comes about",
        "row.scoreNodes": "the nodes whose scores are expected",
        "row.tasks": "the pods say where they are",
        "row.reviewResponse": "repeats whether an error is expected",
        "row.ShouldMutate": "the expected tasks say what becomes of them",
        "row.IsMaster": "the pod says which task it is of",
        "row.ConfigMaps": "the services show whether what plugins made is left",
        "row.UpdateStatus": "a function of Go's, which the data cannot hold",
        "row.Secrets": "the services show whether what plugins made is left",
        "row.sts": "each pod that lacks a group gets one, whoever made it",
        "row.oldCronJob": "a change is looked at at once, whatever was there before",
        "row.changeResourceVersion": "a change is looked at at once, whatever was there before",
    },
}


class Lacking(LookupError):
    """A case does not have a field that its adapter needs."""


class Recorded(dict[str, Any]):
    """A part of a case that notes which of its fields are looked at, by path, in `seen`."""

    __hash__ = None

    def __init__(self, fields: Mapping[str, Any], seen: set[str], path: str = "", depth: int = _DEPTH) -> None:
        super().__init__(
            {
                name: Recorded(value, seen, f"{path}{name}.", depth - 1) if _is_part(value, depth) else value
                for name, value in fields.items()
            }
        )
        self._seen, self._path = seen, path

    def _note(self, *names: str) -> None:
        self._seen.update(self._path + name for name in names)

    def __getitem__(self, name: str) -> Any:
        self._note(name)
        return super().__getitem__(name)

    def __missing__(self, name: str) -> Any:
        raise Lacking(f"the case has no `{self._path}{name}`")

    def __or__(self, changed: Mapping[str, Any]) -> "Recorded":  # type: ignore[override]
        """The same case with other fields. To copy one is not to look at it."""
        return Recorded({**dict(super().items()), **changed}, self._seen, self._path, depth=0)

    def get(self, name: str, default: Any = None) -> Any:
        self._note(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self._note(str(name))
        return super().__contains__(name)

    def __eq__(self, other: object) -> bool:
        self._note(*super().keys())
        return super().__eq__(other)

    def __iter__(self) -> Iterator[str]:
        self._note(*super().keys())
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        self._note(*super().keys())
        return super().keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._note(*super().keys())
        return super().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._note(*super().keys())
        return super().items()


def _is_part(value: Any, depth: int) -> bool:
    return isinstance(value, dict) and depth > 1


def stated(case: Mapping[str, Any]) -> set[str]:
    """Paths of the fields that say anything: what is null, empty or zero does not. Of a part, its fields."""
    found = set()
    for name, value in case.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}" for inner, said in value.items() if said not in _NOTHING}
        elif value not in _NOTHING:
            found.add(name)
    return found


def left_out(case: Mapping[str, Any], seen: set[str], system: str) -> list[str]:
    """What the case says that nobody looked at and nobody explains."""
    explained = UNREAD[system]
    return sorted(
        path for path in stated(case) - seen if path not in explained and f"{path.partition('.')[0]}.*" not in explained
    )
