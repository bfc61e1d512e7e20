"""Volcano's kinds: what defaults fill in, what is refused and where, and what may change in a job."""

import pytest
from tests.unit.api.dialect_examples import TEMPLATE, edited, example, problems, update_problems

from muster.api import raw, volcano
from muster.api.kinds import Kind
from muster.api.raw import JSON, Document
from muster.api.volcano.job_validation import PLUGINS
from muster.jobs.volcano.plugins.in_tree import IN_TREE

NOT_A_DAG = "doesn't form a directed acyclic graph(DAG)"
BOTH_TIERS = {"highestTierAllowed": 1, "highestTierName": "rack"}


@pytest.mark.parametrize("kind", volcano.KINDS, ids=lambda kind: kind.name)
def test_the_examples_are_valid(kind: Kind) -> None:
    assert problems(kind, example(kind)) == []


def defaulted(kind: Kind, document: Document) -> Document:
    document = raw.copy(document)
    kind.default(document)
    return document


def test_a_bare_job_gets_what_volcano_gives_it() -> None:
    tasks = [
        {"replicas": 2, "template": {"spec": {"hostNetwork": True}}},
        {"name": "w", "replicas": 3, "minAvailable": 1},
    ]
    spec = defaulted(
        volcano.JOB, {"spec": {"tasks": tasks, "plugins": {"mpi": ["--master=w"]}, "networkTopology": {}}}
    )["spec"]
    assert spec == {
        "queue": "default",
        "schedulerName": "volcano",
        "maxRetry": 3,
        "minAvailable": 3,
        "networkTopology": {"mode": "hard"},
        "plugins": {"mpi": ["--master=w"], "svc": [], "ssh": []},
        "tasks": [
            {
                "name": "default0",
                "replicas": 2,
                "minAvailable": 2,
                "maxRetry": 3,
                "template": {"spec": {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}},
            },
            {"name": "w", "replicas": 3, "minAvailable": 1, "maxRetry": 3},
        ],
    }


def test_partitions_decide_how_few_pods_will_do() -> None:
    policy = {"totalPartitions": 3, "partitionSize": 3, "minPartitions": 2}
    spec = defaulted(volcano.JOB, {"spec": {"tasks": [{"replicas": 9, "partitionPolicy": policy}]}})["spec"]
    assert spec["tasks"][0]["minAvailable"] == 6
    assert spec["minAvailable"] == 6


@pytest.mark.parametrize(
    ("plugin", "added"),
    [("pytorch", ["svc"]), ("tensorflow", ["svc"]), ("ray", ["svc"]), ("jax", ["svc"]), ("env", [])],
)
def test_frameworks_bring_the_plugins_they_need(plugin: str, added: list[str]) -> None:
    plugins = defaulted(volcano.JOB, {"spec": {"plugins": {plugin: []}}})["spec"]["plugins"]
    assert sorted(plugins) == sorted([plugin, *added])


def test_a_job_may_name_every_plugin_that_there_is() -> None:
    assert set(IN_TREE) == PLUGINS


def test_a_queue_is_reclaimable_and_hangs_below_the_root() -> None:
    annotations = {"volcano.sh/hierarchy": "a/b", "volcano.sh/hierarchy-weights": "2/3"}
    found = defaulted(volcano.QUEUE, {"metadata": {"annotations": annotations}, "spec": {"weight": 0}})
    assert found["spec"] == {"weight": 1, "reclaimable": True}
    assert found["metadata"]["annotations"] == {
        "volcano.sh/hierarchy": "root/a/b",
        "volcano.sh/hierarchy-weights": "1/2/3",
    }


def test_other_defaults() -> None:
    assert defaulted(volcano.CRON_JOB, {})["spec"] == {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    assert defaulted(volcano.JOB_FLOW, {})["spec"] == {"jobRetainPolicy": "retain"}
    assert defaulted(volcano.POD_GROUP, {"spec": {"subGroupPolicy": [{"name": "s"}]}})["spec"] == {
        "queue": "default",
        "subGroupPolicy": [{"name": "s", "subGroupSize": 1, "minSubGroups": 0}],
    }


def policies(*listed: Document) -> list[Document]:
    return [{"action": "RestartJob"} | policy for policy in listed]


CASES: list[tuple[Kind, str, JSON, list[str]]] = [
    (volcano.JOB, "spec/tasks", [], ["spec.tasks: Required value: No task specified in job spec"]),
    (volcano.JOB, "spec/minAvailable", 6, ["should not be greater than total replicas in tasks"]),
    (volcano.JOB, "spec/minAvailable", -1, ["spec.minAvailable"]),
    (volcano.JOB, "spec/maxRetry", -1, ["spec.maxRetry"]),
    (volcano.JOB, "spec/minSuccess", 0, ["spec.minSuccess"]),
    (volcano.JOB, "spec/ttlSecondsAfterFinished", -1, ["spec.ttlSecondsAfterFinished"]),
    (volcano.JOB, "spec/runningEstimate", "soon", ["spec.runningEstimate"]),
    (volcano.JOB, "spec/queue", "root", ["can not submit job to root queue"]),
    (volcano.JOB, "spec/plugins", {"big": []}, ["unable to find job plugin: big"]),
    (volcano.JOB, "spec/plugins", {"mpi": ["--master=lost"]}, ["The specified mpi master task was not found"]),
    (volcano.JOB, "spec/plugins", {"mpi": ["--master", "lost"]}, ["The specified mpi master task was not found"]),
    (volcano.JOB, "spec/plugins", {"mpi": []}, []),
    (volcano.JOB, "metadata/name", "x" * 64, ["create job with name", "spec.tasks[0].name", "spec.tasks[1].name"]),
    (volcano.JOB, "metadata/name", "x" * 55, ["spec.tasks[0].name", "spec.tasks[1].name"]),
    (
        volcano.JOB,
        "spec/tasks/0/name",
        "worker",
        ['spec.tasks[1].name: Duplicate value: "worker": duplicated task name worker', NOT_A_DAG],
    ),
    (volcano.JOB, "spec/tasks/0/name", "Big_Task", ["spec.tasks[0].name", NOT_A_DAG]),
    (volcano.JOB, "spec/tasks/0/replicas", -1, ["spec.tasks[0].replicas", "spec.tasks[0].minAvailable"]),
    (
        volcano.JOB,
        "spec/tasks/0/minAvailable",
        2,
        ["'minAvailable' is greater than 'replicas' in task: master, job: train"],
    ),
    (volcano.JOB, "spec/tasks/0/maxRetry", -2, ["spec.tasks[0].maxRetry"]),
    (volcano.JOB, "spec/tasks/0/template/spec/containers", [], ["spec.tasks[0].template.spec.containers: Required"]),
    (volcano.JOB, "spec/tasks/0/topologyPolicy", "odd", ["spec.tasks[0].topologyPolicy: Unsupported"]),
    (volcano.JOB, "spec/tasks/0/topologyPolicy", "restricted", []),
    (volcano.JOB, "spec/tasks/0/dependsOn", {"name": ["worker"]}, [NOT_A_DAG]),
    (volcano.JOB, "spec/tasks/1/dependsOn/name", ["lost"], [NOT_A_DAG]),
    (volcano.JOB, "spec/tasks/1/dependsOn/iteration", "some", ["spec.tasks[1].dependsOn.iteration"]),
    (
        volcano.JOB,
        "spec/tasks/1/partitionPolicy/partitionSize",
        -1,
        ["'PartitionSize' must be greater than 0 in task: worker"],
    ),
    (volcano.JOB, "spec/tasks/1/partitionPolicy/totalPartitions", 0, ["'TotalPartitions' must be greater than 0"]),
    (volcano.JOB, "spec/tasks/1/partitionPolicy/totalPartitions", 3, ["not equal to TotalPartitions*PartitionSize"]),
    (volcano.JOB, "spec/tasks/1/partitionPolicy/minPartitions", 2, ["not equal to MinPartitions*PartitionSize"]),
    (
        volcano.JOB,
        "spec/tasks/1/partitionPolicy/networkTopology",
        BOTH_TIERS,
        ["must not specify 'highestTierAllowed' and"],
    ),
    (volcano.JOB, "spec/networkTopology", BOTH_TIERS, ["spec.networkTopology: Invalid"]),
    (volcano.JOB, "spec/networkTopology/mode", "maybe", ["spec.networkTopology.mode"]),
    (
        volcano.JOB,
        "spec/policies",
        policies({"event": "PodFailed", "exitCode": 1}),
        ["must not specify event and exitCode"],
    ),
    (volcano.JOB, "spec/policies", policies({}), ["either event and exitCode should be specified"]),
    (
        volcano.JOB,
        "spec/policies",
        policies({"event": "Odd"}),
        ['spec.policies[0].event: Invalid value: "Odd": invalid policy event'],
    ),
    (volcano.JOB, "spec/policies", policies({"event": "OutOfSync"}), ["invalid policy event"]),
    (volcano.JOB, "spec/policies", policies({"event": "Unknown", "action": "SyncJob"}), ["invalid policy action"]),
    (volcano.JOB, "spec/policies", [{"event": "Unknown"}], ["invalid policy action"]),
    (volcano.JOB, "spec/policies", policies({"exitCode": 0}), ["0 is not a valid error code"]),
    (volcano.JOB, "spec/policies", policies({"exitCode": 3}, {"exitCode": 3}), ["duplicate exitCode 3"]),
    (
        volcano.JOB,
        "spec/policies",
        policies({"event": "PodFailed"}, {"events": ["PodFailed"]}),
        ['spec.policies[1].event: Invalid value: "PodFailed": duplicate event'],
    ),
    (volcano.JOB, "spec/policies", policies({"event": "*"}, {"event": "PodFailed"}), ["if there's * here"]),
    (volcano.JOB, "spec/policies", policies({"event": "*"}, {"exitCode": 7}), []),
    (volcano.JOB, "spec/policies", policies({"event": "PodFailed", "timeout": "-1s"}), ["spec.policies[0].timeout"]),
    (volcano.JOB, "spec/policies", policies({"event": "PodFailed", "timeout": "later"}), ["spec.policies[0].timeout"]),
    (volcano.JOB, "spec/tasks/0/policies", policies({"exitCode": 0}), ["spec.tasks[0].policies[0].exitCode"]),
    (volcano.JOB, "spec/volumes", [{}], ["mountPath is required", "either VolumeClaim or VolumeClaimName"]),
    (
        volcano.JOB,
        "spec/volumes",
        [{"mountPath": "/a", "volumeClaimName": "a"}, {"mountPath": "/a", "volumeClaimName": "B!"}],
        ["duplicated mountPath: /a", "invalid VolumeClaimName B!"],
    ),
    (
        volcano.JOB,
        "spec/volumes",
        [{"mountPath": "/a", "volumeClaimName": "a", "volumeClaim": {}}],
        ["conflict: give volumeClaimName"],
    ),
    (volcano.JOB, "spec/volumes", [{"mountPath": "/a", "volumeClaimName": "train-pvc-x", "volumeClaim": {}}], []),
    (volcano.CRON_JOB, "metadata/name", "a" * 53, ["must be no more than 52 characters"]),
    (volcano.CRON_JOB, "metadata/name", "-UPPERCASE", ["invalid cronJob name"]),
    (volcano.CRON_JOB, "spec/schedule", "", ["schedule must be set"]),
    (volcano.CRON_JOB, "spec/schedule", "error schedule", ["schedule is not a valid cron expression"]),
    (volcano.CRON_JOB, "spec/schedule", "TZ=UTC * * * * *", ["schedule is not a valid cron expression"]),
    (volcano.CRON_JOB, "spec/timeZone", "", ["timeZone must be nil or non-empty string, got empty string"]),
    (volcano.CRON_JOB, "spec/timeZone", "Nowhere", ["invalid timeZone Nowhere"]),
    (volcano.CRON_JOB, "spec/concurrencyPolicy", "Queue", ["spec.concurrencyPolicy"]),
    (volcano.CRON_JOB, "spec/startingDeadlineSeconds", -1, ["spec.startingDeadlineSeconds"]),
    (volcano.CRON_JOB, "spec/failedJobsHistoryLimit", -1, ["spec.failedJobsHistoryLimit"]),
    (volcano.CRON_JOB, "spec/jobTemplate/spec/tasks", [], ["spec.jobTemplate.spec.tasks: Required"]),
    (volcano.CRON_JOB, "spec/jobTemplate/metadata/labels", {"a": "!"}, ["spec.jobTemplate.metadata.labels"]),
    (volcano.JOB_TEMPLATE, "spec/minAvailable", 9, ["should not be greater than total replicas"]),
    (volcano.POD_GROUP, "spec/minMember", -1, ["spec.minMember"]),
    (volcano.POD_GROUP, "spec/minTaskMember", {"worker": -1}, ["spec.minTaskMember.worker"]),
    (volcano.POD_GROUP, "spec/minResources", {"cpu": "-1"}, ["spec.minResources.cpu"]),
    (
        volcano.POD_GROUP,
        "spec/networkTopology",
        BOTH_TIERS,
        ["must not specify 'highestTierAllowed' and 'highestTierName'"],
    ),
    (
        volcano.POD_GROUP,
        "spec/subGroupPolicy/0/networkTopology",
        BOTH_TIERS,
        ["spec.subGroupPolicy[0].networkTopology"],
    ),
    (volcano.POD_GROUP, "spec/subGroupPolicy/0/subGroupSize", 0, ["spec.subGroupPolicy[0].subGroupSize"]),
    (volcano.POD_GROUP, "spec/subGroupPolicy/0/minSubGroups", -1, ["spec.subGroupPolicy[0].minSubGroups"]),
    (volcano.POD_GROUP, "spec/subGroupPolicy/0/matchLabelKeys", ["a b"], ["spec.subGroupPolicy[0].matchLabelKeys[0]"]),
    (
        volcano.POD_GROUP,
        "spec/subGroupPolicy",
        [{}, {}],
        ["[1].name: Duplicate", "[0].name: Required", "[1].name: Required"],
    ),
    (volcano.POD_GROUP, "status/phase", "Odd", ["status.phase"]),
    (volcano.QUEUE, "spec/weight", -1, ["spec.weight"]),
    (volcano.QUEUE, "spec/weight", 65_536, ["spec.weight"]),
    (volcano.QUEUE, "spec/parent", "gold", ["queue gold cannot use itself as parent"]),
    (volcano.QUEUE, "spec/dequeueStrategy", "lifo", ["spec.dequeueStrategy"]),
    (volcano.QUEUE, "status/state", "wrong", ["queue state must be in [Open Closed]"]),
    (volcano.QUEUE, "status/state", "Closing", []),
    (
        volcano.QUEUE,
        "spec/capability/cpu",
        "-10",
        ['spec.capability.cpu: Invalid value: "-10"', "deserved[cpu]=8 must be <="],
    ),
    (volcano.QUEUE, "spec/capability/cpu", 4, ["deserved[cpu]=8 must be <= capability[cpu]=4"]),
    (volcano.QUEUE, "spec/deserved/cpu", "1", ["deserved[cpu]=1 must be >= guarantee[cpu]=2"]),
    (
        volcano.QUEUE,
        "spec/deserved",
        {},
        ['spec.deserved.cpu: Invalid value: "<nil>": deserved[cpu] must be >= guarantee[cpu]=2'],
    ),
    (
        volcano.QUEUE,
        "spec/extendClusters",
        [{"name": "c", "weight": -1, "capacity": {"cpu": "x"}}],
        ["weight", "capacity.cpu"],
    ),
    (
        volcano.QUEUE,
        "metadata/annotations/volcano.sh~1hierarchy-weights",
        "1/2/3",
        ["volcano.sh/hierarchy must have the same length with volcano.sh/hierarchy-weights"],
    ),
    (
        volcano.QUEUE,
        "metadata/annotations/volcano.sh~1hierarchy-weights",
        "1/-1",
        ["-1 in the 1/-1 must be larger than 0"],
    ),
    (volcano.QUEUE, "metadata/annotations/volcano.sh~1hierarchy-weights", "1/a", ["a in the 1/a is invalid number"]),
    (
        volcano.QUEUE,
        "metadata/annotations/volcano.sh~1hierarchy-weights",
        "1/nan",
        ["nan in the 1/nan is invalid number"],
    ),
    (volcano.COMMAND, "action", "Explode", ["action: Unsupported"]),
    (volcano.COMMAND, "action", None, ["action: Required"]),
    (volcano.COMMAND, "target", None, ["target: Required"]),
    (volcano.COMMAND, "target", {}, ["target.kind: Required", "target.name: Required"]),
    (volcano.JOB_FLOW, "spec/flows/0/dependsOn", {"targets": ["b"]}, ["jobflow Flow is not DAG"]),
    (volcano.JOB_FLOW, "spec/flows/1/dependsOn/targets", ["x"], ["jobflow Flow is not DAG: vertex is not defined: x"]),
    (volcano.JOB_FLOW, "spec/flows", [{"name": "a"}, {"name": "a"}], []),
    (volcano.JOB_FLOW, "spec/flows/0/name", "", ["spec.flows[0].name: Required", "vertex is not defined: a"]),
    (volcano.JOB_FLOW, "spec/jobRetainPolicy", "burn", ["spec.jobRetainPolicy"]),
    (volcano.HYPER_NODE, "spec/members", [], ["spec.members: Required"]),
    (volcano.HYPER_NODE, "spec/tier", -1, ["spec.tier"]),
    (volcano.HYPER_NODE, "spec/members/0/type", "Rack", ["spec.members[0].type: Unsupported"]),
    (volcano.HYPER_NODE, "spec/members/0/type", None, ["spec.members[0].type: Required"]),
    (volcano.HYPER_NODE, "spec/members/0/selector", {}, ["exactly one of exactMatch, regexMatch and labelMatch"]),
    (volcano.HYPER_NODE, "spec/members/0/selector/regexMatch", {"pattern": "a"}, ["exactly one of"]),
    (volcano.HYPER_NODE, "spec/members/1/selector/regexMatch/pattern", "a(b", ["is not a regular expression"]),
    (volcano.HYPER_NODE, "spec/members/1/selector/regexMatch/pattern", "", ["pattern: Required"]),
    (volcano.HYPER_NODE, "spec/members/1/selector/regexMatch/pattern", "a(?=b)", ["not supported"]),
    (volcano.HYPER_NODE, "spec/members/1/selector/regexMatch/pattern", r"(a)\1", ["not supported"]),
    (volcano.HYPER_NODE, "spec/members/1/selector/regexMatch/pattern", r"(a)\\1", []),
    (volcano.HYPER_NODE, "spec/members/2/type", "HyperNode", ["only members of type Node can be selected by labels"]),
    (
        volcano.HYPER_NODE,
        "spec/members/0",
        {"type": "HyperNode", "selector": {"exactMatch": {"name": "rack-1"}}},
        ["a hypernode cannot be its own member"],
    ),
]


def ids(case: JSON) -> str:
    return getattr(case, "name", None) or str(case)[:40]


@pytest.mark.parametrize(("kind", "path", "value", "expected"), CASES, ids=ids)
def test_what_is_wrong_is_named_with_its_path(kind: Kind, path: str, value: JSON, expected: list[str]) -> None:
    found = problems(kind, edited(kind, path, value))
    assert len(found) == len(expected), found
    for part in expected:
        assert any(part in message for message in found), found


@pytest.mark.parametrize(("cpu", "is_fine"), [("2", True), ("1500m", False), ("0", False), (None, False)])
def test_numa_policies_need_whole_cpus(cpu: str | None, is_fine: bool) -> None:
    document = edited(volcano.JOB, "spec/tasks/0/topologyPolicy", "single-numa-node")
    container = document["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": cpu}} if cpu else {}
    assert (not problems(volcano.JOB, document)) is is_fine


def test_all_mistakes_are_told_at_once() -> None:
    document = example(volcano.JOB)
    document["spec"] |= {"maxRetry": -1, "plugins": {"odd": []}, "policies": [{"action": "Odd"}]}
    assert len(problems(volcano.JOB, document)) == 4


FREE: list[tuple[str, JSON]] = [
    ("spec/minAvailable", 2),
    ("spec/tasks/1/replicas", 6),
    ("spec/tasks/1/minAvailable", 1),
    ("spec/priorityClassName", "high"),
    ("metadata/labels", {"a": "b"}),
]
FIXED: list[tuple[str, JSON, str]] = [
    ("spec/queue", "other", "spec.queue"),
    ("spec/maxRetry", 9, "spec.maxRetry"),
    ("spec/ttlSecondsAfterFinished", 9, "spec.ttlSecondsAfterFinished"),
    ("spec/tasks/0/name", "chief", "spec.tasks[0]"),
    ("spec/tasks/0/template/spec/restartPolicy", "OnFailure", "spec.tasks[0]"),
    ("spec/tasks/1", None, "spec.tasks: Forbidden: job updates may not add or remove tasks"),
    ("spec/volumes/0/mountPath", "/other", "spec.volumes"),
    ("spec/volumes/0/volumeClaimName", "other", "spec.volumes"),
]


@pytest.mark.parametrize(("path", "value"), FREE)
def test_what_may_change_in_a_job(path: str, value: JSON) -> None:
    assert update_problems(volcano.JOB, example(volcano.JOB), edited(volcano.JOB, path, value)) == []


@pytest.mark.parametrize(("path", "value", "where"), FIXED)
def test_what_may_not_change_in_a_job(path: str, value: JSON, where: str) -> None:
    (found,) = update_problems(volcano.JOB, example(volcano.JOB), edited(volcano.JOB, path, value))
    assert found.startswith(where)


def test_the_controller_fills_in_the_claim_it_made() -> None:
    volume: Document = {"mountPath": "/a", "volumeClaim": {"resources": {}}}
    old = edited(volcano.JOB, "spec/volumes", [volume])
    new = edited(volcano.JOB, "spec/volumes", [volume | {"volumeClaimName": "train-pvc-abc"}])
    assert update_problems(volcano.JOB, old, new) == []
    assert problems(volcano.JOB, new) == []


def test_a_template_is_not_filled_in_before_its_job_is_made() -> None:
    document = {"spec": {"jobTemplate": {"spec": {"tasks": [{"template": TEMPLATE}]}}}}
    assert defaulted(volcano.CRON_JOB, document)["spec"]["jobTemplate"] == document["spec"]["jobTemplate"]
