"""Kueue's kinds: what defaults fill in, what is refused and where, and what may no longer change."""

import pytest
from tests.unit.api.dialect_examples import edited, example, problems, update_problems

from muster.api import kueue, raw
from muster.api.kinds import Kind
from muster.api.raw import JSON

QUOTA = {"name": "cpu", "nominalQuota": "1"}


def group(resources: list[str], flavors: list[str]) -> JSON:
    quotas = [{"name": name, "nominalQuota": "1"} for name in resources]
    return {"coveredResources": resources, "flavors": [{"name": name, "resources": quotas} for name in flavors]}


@pytest.mark.parametrize("kind", kueue.KINDS, ids=lambda kind: kind.name)
def test_the_examples_are_valid(kind: Kind) -> None:
    assert problems(kind, example(kind)) == []


def test_a_bare_cluster_queue_gets_the_policies_of_kueue() -> None:
    document = {"metadata": {"name": "q"}, "spec": {"cohortName": None, "fairSharing": {}}}
    kueue.CLUSTER_QUEUE.default(document)
    assert document["spec"] == {
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
            "borrowWithinCohort": {"policy": "Never"},
        },
        "fairSharing": {"weight": "1"},
    }


def test_a_bare_workload_is_active_and_has_one_main_pod() -> None:
    document: raw.Document = {"spec": {"podSets": [{"template": {}}]}}
    kueue.WORKLOAD.default(document)
    assert document["spec"] == {"active": True, "podSets": [{"name": "main", "count": 1, "template": {}}]}


def test_a_local_queue_takes_jobs_unless_stopped() -> None:
    document: raw.Document = {"spec": {"clusterQueue": "q"}}
    kueue.LOCAL_QUEUE.default(document)
    assert document["spec"] == {"clusterQueue": "q", "stopPolicy": "None"}


CASES: list[tuple[Kind, str, JSON, list[str]]] = [
    (kueue.RESOURCE_FLAVOR, "spec/nodeLabels", {f"l{i}": "" for i in range(9)}, ["spec.nodeLabels: Too many"]),
    (kueue.RESOURCE_FLAVOR, "spec/nodeLabels", {"a b": "$"}, ["spec.nodeLabels: Invalid", "spec.nodeLabels: Invalid"]),
    (kueue.RESOURCE_FLAVOR, "spec/nodeLabels", {}, ["spec.nodeLabels: Required value: at least one nodeLabel"]),
    (kueue.RESOURCE_FLAVOR, "spec/nodeTaints/0/effect", "Never", ["spec.nodeTaints[0].effect: Unsupported"]),
    (kueue.RESOURCE_FLAVOR, "spec/nodeTaints/0/key", "", ["spec.nodeTaints[0].key"]),
    (
        kueue.RESOURCE_FLAVOR,
        "spec/nodeTaints",
        [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute", "value": "x"}],
        ["spec.nodeTaints[1]: Duplicate"],
    ),
    (
        kueue.RESOURCE_FLAVOR,
        "spec/tolerations/0",
        {"value": "!", "tolerationSeconds": 1},
        ["spec.tolerations[0].operator", "spec.tolerations[0].effect", "spec.tolerations[0].operator"],
    ),
    (
        kueue.RESOURCE_FLAVOR,
        "spec/tolerations/0",
        {"operator": "Exists", "value": "x", "effect": "Odd"},
        ["value must be empty", "spec.tolerations[0].effect: Unsupported"],
    ),
    (kueue.RESOURCE_FLAVOR, "spec/topologyName", "Not_A_Name", ["spec.topologyName"]),
    (
        kueue.CLUSTER_QUEUE,
        "spec/cohortName",
        "",
        ['resources[0].borrowingLimit: Invalid value: "1500m": borrowingLimit must be nil', "lendingLimit must be nil"],
    ),
    (kueue.CLUSTER_QUEUE, "spec/cohortName", "A!", ["spec.cohortName"]),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups",
        [group([f"r{i}"], [f"f{i}"]) for i in range(17)],
        ["spec.resourceGroups: Too many: 17", "onFlavors[0]: Not found"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups/1",
        group(["cpu"], ["h200"]),
        ["spec.resourceGroups[1].coveredResources[0]: Duplicate", "spec.resourceGroups[1].flavors[0].name: Duplicate"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups/1",
        group([f"r{i}" for i in range(65)], ["x"]),
        ["spec.resourceGroups[1].coveredResources: Too many"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups/1",
        group([f"r{i}" for i in range(30)], [f"f{i}" for i in range(30)]),
        ["spec.resourceGroups[1]: Invalid value: 900: flavors times resources"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups/1",
        {},
        ["spec.resourceGroups[1].coveredResources: Required", "spec.resourceGroups[1].flavors: Required"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups/0/flavors/0/resources",
        [QUOTA],
        ["resources: Invalid value: 1: flavors must have the same number of resources"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups/0/coveredResources",
        ["nvidia.com/gpu", "cpu"],
        ["resources[0].name: Invalid", "resources[1].name: Invalid"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups/0/flavors/0/resources/1/lendingLimit",
        "65",
        ["lendingLimit must be less than or equal to the nominalQuota"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups/0/flavors/0/resources/0/nominalQuota",
        "-1",
        ['spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: "-1": must be greater'],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/resourceGroups/0/flavors/0/resources/0/nominalQuota",
        None,
        ["spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Required"],
    ),
    (kueue.CLUSTER_QUEUE, "spec/queueingStrategy", "LIFO", ["spec.queueingStrategy: Unsupported"]),
    (kueue.CLUSTER_QUEUE, "spec/stopPolicy", "Maybe", ["spec.stopPolicy: Unsupported"]),
    (
        kueue.CLUSTER_QUEUE,
        "spec/namespaceSelector",
        {"matchExpressions": [{"key": "a", "operator": "Near"}]},
        ["spec.namespaceSelector.matchExpressions[0].operator"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/flavorFungibility",
        {"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"},
        ["spec.flavorFungibility.whenCanBorrow: Unsupported"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/flavorFungibility/whenCanPreempt",
        "MayStopSearch",
        ["preference can only be set when both"],
    ),
    (
        kueue.CLUSTER_QUEUE,
        "spec/preemption/reclaimWithinCohort",
        "Never",
        ["reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"],
    ),
    (kueue.CLUSTER_QUEUE, "spec/preemption/withinClusterQueue", "Any", ["spec.preemption.withinClusterQueue"]),
    (kueue.CLUSTER_QUEUE, "spec/admissionChecksStrategy/admissionChecks", [], ["admissionChecks: Required"]),
    (
        kueue.CLUSTER_QUEUE,
        "spec/admissionChecksStrategy/admissionChecks",
        [{"name": "a", "onFlavors": ["lost"]}, {"name": "a"}],
        ["admissionChecks[1].name: Duplicate", 'admissionChecks[0].onFlavors[0]: Not found: "lost"'],
    ),
    (kueue.CLUSTER_QUEUE, "spec/fairSharing/weight", "-1", ["spec.fairSharing.weight"]),
    (kueue.CLUSTER_QUEUE, "spec/fairSharing/weight", "1n", ["must be zero or greater than 1e-9"]),
    (kueue.CLUSTER_QUEUE, "spec/fairSharing/weight", "heavy", ["spec.fairSharing.weight"]),
    (kueue.CLUSTER_QUEUE, "spec/fairSharing/weight", 0, []),
    (kueue.CLUSTER_QUEUE, "spec/admissionScope", {}, ["spec.admissionScope.admissionMode: Required"]),
    (
        kueue.CLUSTER_QUEUE,
        "spec/concurrentAdmissionPolicy",
        {"migration": {"mode": "Odd", "constraints": {"lastAcceptableFlavorName": "lost"}}},
        ["spec.resourceGroups: Invalid value: 2", "migration.mode: Unsupported", "lastAcceptableFlavorName: Not found"],
    ),
    (kueue.LOCAL_QUEUE, "spec/clusterQueue", None, ["spec.clusterQueue: Required"]),
    (kueue.LOCAL_QUEUE, "spec/stopPolicy", "x", ["spec.stopPolicy"]),
    (kueue.COHORT, "spec/parentName", "research", ["a cohort cannot be its own parent"]),
    (kueue.COHORT, "spec/parentName", None, ["lendingLimit must be nil when parent is empty"]),
    (kueue.WORKLOAD_PRIORITY_CLASS, "value", None, ["value: Required"]),
    (kueue.WORKLOAD_PRIORITY_CLASS, "description", "x" * 2049, ["description: Too long"]),
    (kueue.ADMISSION_CHECK, "spec/controllerName", "", ["spec.controllerName: Required"]),
    (
        kueue.ADMISSION_CHECK,
        "spec/parameters",
        {"kind": "a/b"},
        ["parameters.apiGroup: Required", "parameters.name: Required", "parameters.kind: Invalid"],
    ),
    (kueue.TOPOLOGY, "spec/levels", [], ["spec.levels: Required"]),
    (kueue.TOPOLOGY, "spec/levels", [{"nodeLabel": f"l{i}"} for i in range(17)], ["spec.levels: Too many"]),
    (kueue.TOPOLOGY, "spec/levels", [{"nodeLabel": "a"}, {"nodeLabel": "a"}], ["spec.levels[1].nodeLabel: Duplicate"]),
    (
        kueue.TOPOLOGY,
        "spec/levels",
        [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "a"}],
        ["can only be used at the lowest level"],
    ),
]


def ids(case: JSON) -> str:
    return getattr(case, "name", None) or str(case)[:40]


@pytest.mark.parametrize(("kind", "path", "value", "expected"), CASES, ids=ids)
def test_what_is_wrong_is_named_with_its_path(kind: Kind, path: str, value: JSON, expected: list[str]) -> None:
    found = problems(kind, edited(kind, path, value))
    assert len(found) == len(expected), found
    for part, message in zip(expected, found, strict=True):
        assert part in message


def test_concurrent_admission_does_not_go_with_strict_order_or_many_flavors() -> None:
    document = edited(kueue.CLUSTER_QUEUE, "spec/resourceGroups", [group(["cpu"], [f"f{i}" for i in range(17)])])
    document["spec"] |= {"concurrentAdmissionPolicy": {}, "queueingStrategy": "StrictFIFO"}
    del document["spec"]["admissionChecksStrategy"]
    found = problems(kueue.CLUSTER_QUEUE, document)
    assert [message.partition(":")[0] for message in found] == [
        "spec.resourceGroups[0].flavors",
        "spec.queueingStrategy",
    ]


def test_all_groups_together_are_bounded() -> None:
    groups = [group([f"r{g}-{i}" for i in range(60)], [f"f{g}-{i}" for i in range(8)]) for g in range(5)]
    document = edited(kueue.COHORT, "spec/resourceGroups", groups)
    (found,) = problems(kueue.COHORT, document)
    assert "all groups together may cover at most 256 resources" in found


UPDATES: list[tuple[Kind, str, JSON, str]] = [
    (kueue.RESOURCE_FLAVOR, "spec/topologyName", "other", "spec.topologyName"),
    (kueue.RESOURCE_FLAVOR, "spec/topologyName", None, "spec.topologyName"),
    (kueue.LOCAL_QUEUE, "spec/clusterQueue", "other", "spec.clusterQueue"),
    (kueue.ADMISSION_CHECK, "spec/controllerName", "other", "spec.controllerName"),
    (kueue.TOPOLOGY, "spec/levels", [{"nodeLabel": "rack"}], "spec.levels"),
    (kueue.CLUSTER_QUEUE, "spec/concurrentAdmissionPolicy", {}, "spec.concurrentAdmissionPolicy"),
]


@pytest.mark.parametrize(("kind", "path", "value", "where"), UPDATES, ids=ids)
def test_what_may_not_change(kind: Kind, path: str, value: JSON, where: str) -> None:
    assert update_problems(kind, example(kind), example(kind)) == []
    (found,) = update_problems(kind, example(kind), edited(kind, path, value))
    assert found.startswith(where)


def test_a_topology_name_may_be_added_later() -> None:
    without = edited(kueue.RESOURCE_FLAVOR, "spec/topologyName", None)
    assert update_problems(kueue.RESOURCE_FLAVOR, without, example(kueue.RESOURCE_FLAVOR)) == []


def test_levels_above_hosts_may_change() -> None:
    levels = [{"nodeLabel": "zone"}, {"nodeLabel": "kubernetes.io/hostname"}]
    assert update_problems(kueue.TOPOLOGY, example(kueue.TOPOLOGY), edited(kueue.TOPOLOGY, "spec/levels", levels)) == []


def checked(flavors: list[str], on: list[str]) -> JSON:
    queue = edited(kueue.CLUSTER_QUEUE, "spec/resourceGroups", [group(["cpu"], flavors)])
    queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "prov", "onFlavors": on}]}
    return queue


def test_a_flavor_may_leave_a_queue_that_checks_it() -> None:
    before = checked(["a", "b"], ["a"])
    assert update_problems(kueue.CLUSTER_QUEUE, before, checked(["b"], ["a"])) == []
    (found,) = update_problems(kueue.CLUSTER_QUEUE, checked(["b"], ["a"]), checked(["b"], ["a", "c"]))[:1]
    assert 'onFlavors[0]: Not found: "a"' in found


def test_an_elastic_workload_may_have_shrunk_below_what_was_done() -> None:
    def done(count: int, size: int) -> JSON:
        found = edited(kueue.WORKLOAD, "status/reclaimablePods", [{"name": "main", "count": count}])
        found["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
        found["spec"]["podSets"] = [{**found["spec"]["podSets"][0], "name": "main", "count": size}]
        found["spec"]["podSets"][0].pop("minCount", None)
        found["status"] = {"reclaimablePods": found["status"]["reclaimablePods"]}
        return found

    assert update_problems(kueue.WORKLOAD, done(4, 4), done(4, 3)) == []
    (found,) = update_problems(kueue.WORKLOAD, done(3, 3), done(4, 3))
    assert "status.reclaimablePods[0].count" in found
