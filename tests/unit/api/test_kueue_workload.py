"""Workloads: what is refused in spec and status, and what is fixed once quota is reserved."""

import pytest
from tests.unit.api.dialect_examples import TEMPLATE, edited, example, problems, update_problems

from muster.api import kueue
from muster.api.raw import JSON, Document

ASSIGNMENTS = "status/admission/podSetAssignments"
SLICE = f"{ASSIGNMENTS}/1/topologyAssignment/slices/0"
SLICE_PATH = "status.admission.podSetAssignments[1].topologyAssignment.slices[0]"
REQUEST = "spec/podSets/1/topologyRequest"

CASES: list[tuple[str, JSON, list[str]]] = [
    (
        "spec/podSets/1/name",
        "-x",
        ["spec.podSets[1].name", "reclaimablePods[0].name", "podSetAssignments[1].name", "podSetUpdates"],
    ),
    ("spec/podSets/1/count", -1, ["spec.podSets[1].count", "spec.podSets[1].minCount", "reclaimablePods[0].count"]),
    ("spec/podSets/1/minCount", 9, ["minCount should be positive and less or equal to count"]),
    ("spec/podSets/1/minCount", 0, ["spec.podSets[1].minCount: Invalid value: 0"]),
    ("spec/podSets/0/minCount", 1, ["at most one podSet can use minCount"]),
    ("spec/podSets/0/template/metadata/labels", {"a b": ""}, ["spec.podSets[0].template.metadata.labels"]),
    ("spec/podSets/0/template/spec/containers/0/resources/requests", {"pods": 1}, ["reserved for internal kueue use"]),
    (
        "spec/podSets/0/template/spec/containers/0/resources/requests",
        {"cpu": "-1"},
        ["spec.podSets[0].template.spec.containers[0].resources.requests[cpu]"],
    ),
    ("spec/podSets/0/template/spec/overhead", {"memory": "x"}, ["spec.podSets[0].template.spec.overhead[memory]"]),
    ("spec/queueName", "A B", ["spec.queueName"]),
    ("spec/priority", None, ["spec.priority: Required"]),
    ("spec/priorityClassRef/group", "apps", ["spec.priorityClassRef.group: Unsupported"]),
    ("spec/priorityClassRef/kind", "PriorityClass", ["spec.priorityClassRef.kind: Unsupported"]),
    ("spec/priorityClassRef/name", "", ["spec.priorityClassRef.name: Required"]),
    ("spec/maximumExecutionTimeSeconds", 0, ["spec.maximumExecutionTimeSeconds"]),
    ("spec/preemptionGates", [{"name": f"g{i}"} for i in range(9)], ["spec.preemptionGates: Too many"]),
    ("spec/preemptionGates", [{"name": "g"}, {"name": "g"}], ["spec.preemptionGates[1].name: Duplicate"]),
    (
        "metadata/annotations",
        {"kueue.x-k8s.io/priority-boost": "much"},
        ["metadata.annotations[kueue.x-k8s.io/priority-boost]"],
    ),
    ("metadata/annotations", {"kueue.x-k8s.io/priority-boost": "2147483648"}, ["must be a 32-bit integer"]),
    ("metadata/annotations", {"kueue.x-k8s.io/priority-boost": "-2147483648"}, []),
    ("metadata/annotations", {"kueue.x-k8s.io/elastic-job": "true"}, ["spec.podSets[1].minCount: Forbidden"]),
    (f"{REQUEST}/preferred", "rack", ["only one of required, preferred and unconstrained"]),
    (f"{REQUEST}/required", "a b", ["topologyRequest.required"]),
    (f"{REQUEST}/podSetSliceSize", None, ["podSetSliceSize: Required"]),
    (f"{REQUEST}/podSetSliceRequiredTopology", None, ["podSetSliceRequiredTopology: Required"]),
    (f"{REQUEST}/podSetSliceSize", 0, ["podSetSliceSize: Invalid value: 0"]),
    (f"{REQUEST}/podSetSliceSize", 9, ["must not be greater than the podSet's count 8"]),
    (f"{REQUEST}/podSetGroupName", "g", ["podSetGroupName: Forbidden"]),
    (f"{REQUEST}/subGroupCount", 0, ["subGroupCount"]),
    (
        f"{REQUEST}/podsetSliceRequiredTopologyConstraints",
        [{"topology": "rack", "size": 4}],
        ["cannot be combined with podSetSliceRequiredTopology"],
    ),
    (
        REQUEST,
        {
            "podsetSliceRequiredTopologyConstraints": [
                {"topology": "a", "size": 4},
                {"topology": "a", "size": 3},
                {"topology": "b"},
            ]
        },
        ["[1].topology: Duplicate", "[1].size: Invalid value: 3: must divide", "[2].size"],
    ),
    (f"{ASSIGNMENTS}/0/name", "lost", ["podSetAssignments[0].name: Not found"]),
    (f"{ASSIGNMENTS}/1/name", "leader", ["podSetAssignments[1].name: Duplicate"]),
    (f"{ASSIGNMENTS}/1", None, ["must have the same number of podSets as the spec"]),
    (
        f"{ASSIGNMENTS}/1/resourceUsage",
        {"cpu": "8001m"},
        ['resourceUsage[cpu]: Invalid value: "8001m": is not a multiple of 8'],
    ),
    (f"{ASSIGNMENTS}/1/resourceUsage", {"memory": "9"}, ["is not a multiple of 8"]),
    (f"{ASSIGNMENTS}/1/resourceUsage", {"cpu": "1"}, []),
    (f"{ASSIGNMENTS}/1/delayedTopologyRequest", "Soon", ["delayedTopologyRequest: Unsupported"]),
    (f"{ASSIGNMENTS}/1/flavors", {"cpu": ""}, ["flavors[cpu]: Required"]),
    (f"{SLICE}/domainCount", 0, [f"{SLICE_PATH}.domainCount", "individual.roots"]),
    (f"{SLICE}/domainCount", 3, ["must have one entry for each of the 3 domains"]),
    (f"{SLICE}/valuesPerLevel/0", {}, [f"{SLICE_PATH}.valuesPerLevel[0]: Invalid"]),
    (f"{SLICE}/valuesPerLevel/1", None, ["must have one entry for each of the 2 levels"]),
    (f"{SLICE}/podCounts", {}, ["exactly one of universal and individual"]),
    (f"{SLICE}/podCounts", {"individual": [1, 2, 3]}, ["podCounts.individual: Invalid value: 3"]),
    (f"{SLICE}/podCounts", {"universal": 0}, ["podCounts: Invalid value: 0"]),
    ("status/reclaimablePods/0/count", 9, ["should be less or equal to 8"]),
    ("status/reclaimablePods/0/name", "lost", ["reclaimablePods[0].name: Unsupported"]),
    ("status/admissionChecks/0/state", "Maybe", ["status.admissionChecks[0].state: Unsupported"]),
    ("status/admissionChecks/0/podSetUpdates/1", None, ["must have one entry for each podSet"]),
    ("status/admissionChecks/0/podSetUpdates/0/nodeSelector", {"zone": "!"}, ["podSetUpdates[0].nodeSelector"]),
    ("status/admissionChecks/0/podSetUpdates/1/tolerations", [{}], ["podSetUpdates[1].tolerations[0].operator"]),
    ("status/requeueState/count", -1, ["status.requeueState.count"]),
    ("status/preemptionGates/0/position", "Ajar", ["status.preemptionGates[0].position"]),
    ("status/unhealthyNodes", [{"name": f"n{i}"} for i in range(9)], ["status.unhealthyNodes: Too many"]),
    ("status/nominatedClusterNames", [f"c{i}" for i in range(21)], ["status.nominatedClusterNames: Too many"]),
]


@pytest.mark.parametrize(("path", "value", "expected"), CASES, ids=lambda case: str(case)[:50])
def test_what_is_wrong_is_named_with_its_path(path: str, value: JSON, expected: list[str]) -> None:
    found = problems(kueue.WORKLOAD, edited(kueue.WORKLOAD, path, value))
    assert len(found) == len(expected), found
    for part in expected:
        assert any(part in message for message in found), found


def test_the_number_of_pod_sets_is_bounded() -> None:
    bare: Document = {"spec": {}}
    assert problems(kueue.WORKLOAD, bare) == ["spec.podSets: Required value"]
    many: Document = {"spec": {"podSets": [{"name": f"p{i}", "template": TEMPLATE} for i in range(257)]}}
    assert problems(kueue.WORKLOAD, many) == ["spec.podSets: Too many: 257: must have at most 256 items"]


def test_a_cluster_is_either_chosen_or_among_the_nominated() -> None:
    document = edited(kueue.WORKLOAD, "status/nominatedClusterNames", ["a"])
    document["status"]["clusterName"] = "a"
    (found,) = problems(kueue.WORKLOAD, document)
    assert found.startswith("status.clusterName: Forbidden")


FIXED: list[tuple[str, JSON, str]] = [
    ("spec/podSets/1/count", 7, "spec.podSets[1].count"),
    ("spec/podSets/1/template/spec/restartPolicy", "OnFailure", "spec.podSets[1].template"),
    ("spec/podSets/1/topologyRequest/required", "block", "spec.podSets[1].topologyRequest"),
    ("spec/podSets/1", None, "spec.podSets[1]: Forbidden"),
    ("spec/queueName", "other", "spec.queueName"),
    ("spec/priorityClassRef", None, "spec.priorityClassRef: Forbidden"),
    ("spec/priorityClassRef/group", "scheduling.k8s.io", "spec.priorityClassRef.group"),
    ("status/reclaimablePods/0/count", 1, 'status.reclaimablePods: Invalid value: 1: "Workers" cannot be less than 2'),
    ("status/admission/clusterQueue", "silver", "status.admission"),
    ("status/admission/podSetAssignments/1/count", 4, "status.admission"),
    ("status/admissionChecks/0/podSetUpdates/0/nodeSelector", {"zone": "b"}, "status.admissionChecks[0].podSetUpdates"),
]

FREE: list[tuple[str, JSON]] = [
    ("spec/priority", 5),
    ("spec/active", False),
    ("spec/priorityClassRef/name", "low"),
    ("spec/maximumExecutionTimeSeconds", 7200),
    ("status/admission", None),
    ("status/admission/podSetAssignments/1/topologyAssignment", None),
    ("status/admission/podSetAssignments/1/delayedTopologyRequest", "Pending"),
    ("status/reclaimablePods/0/count", 3),
    ("status/admissionChecks/0/state", "Retry"),
]


@pytest.mark.parametrize(("path", "value", "where"), FIXED, ids=lambda case: str(case)[:50])
def test_what_reserved_quota_fixes(path: str, value: JSON, where: str) -> None:
    (found,) = update_problems(kueue.WORKLOAD, example(kueue.WORKLOAD), edited(kueue.WORKLOAD, path, value))
    assert found.startswith(where)


@pytest.mark.parametrize(("path", "value"), FREE, ids=lambda case: str(case)[:50])
def test_what_reserved_quota_leaves_free(path: str, value: JSON) -> None:
    assert update_problems(kueue.WORKLOAD, example(kueue.WORKLOAD), edited(kueue.WORKLOAD, path, value)) == []


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, value, _ in FIXED if path.startswith("spec")])
def test_a_pending_workload_may_still_change(path: str, value: JSON) -> None:
    old, new = example(kueue.WORKLOAD), edited(kueue.WORKLOAD, path, value)
    for document in (old, new):
        document["status"] = {}
    assert update_problems(kueue.WORKLOAD, old, new) == []


def test_the_name_of_a_pod_priority_class_is_fixed() -> None:
    reference = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
    old = edited(kueue.WORKLOAD, "spec/priorityClassRef", reference)
    new = edited(kueue.WORKLOAD, "spec/priorityClassRef", reference | {"name": "low"})
    (found,) = update_problems(kueue.WORKLOAD, old, new)
    assert found.startswith("spec.priorityClassRef.name")


def test_the_execution_time_is_fixed_once_admitted() -> None:
    old = example(kueue.WORKLOAD)
    old["status"]["conditions"].append({"type": "Admitted", "status": "True"})
    new = edited(kueue.WORKLOAD, "spec/maximumExecutionTimeSeconds", 1)
    (found,) = update_problems(kueue.WORKLOAD, old, new)
    assert found.startswith("spec.maximumExecutionTimeSeconds")


def test_an_elastic_workload_may_shrink_but_not_grow() -> None:
    elastic = {"kueue.x-k8s.io/elastic-job": "true"}

    def sized(count: int) -> Document:
        document = edited(kueue.WORKLOAD, "spec/podSets/1/count", count)
        document["metadata"]["annotations"] = elastic
        return document

    assert update_problems(kueue.WORKLOAD, sized(8), sized(3)) == []
    (found,) = update_problems(kueue.WORKLOAD, sized(8), sized(9))
    assert found.startswith("spec.podSets[1].count")


def test_a_scaled_down_elastic_workload_may_give_back_less() -> None:
    old, new = example(kueue.WORKLOAD), edited(kueue.WORKLOAD, "status/reclaimablePods", [])
    for document in (old, new):
        document["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    new["spec"]["podSets"][1]["count"] = 0
    assert update_problems(kueue.WORKLOAD, old, new) == []


@pytest.mark.parametrize(
    ("before", "after", "is_fine"),
    [(None, "a", True), (None, "c", False), ("a", "b", False), ("a", "a", True), ("a", None, True)],
)
def test_a_cluster_comes_from_the_nominated_and_stays(before: str | None, after: str | None, is_fine: bool) -> None:
    old, new = example(kueue.WORKLOAD), example(kueue.WORKLOAD)
    old["status"] |= {"nominatedClusterNames": ["a", "b"], "clusterName": before}
    new["status"] |= {"clusterName": after}
    assert (not update_problems(kueue.WORKLOAD, old, new)) is is_fine
