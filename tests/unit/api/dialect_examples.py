"""Valid documents of the Kueue and Volcano kinds, and how the tests ask what is wrong with a changed one."""

from muster.api import kueue, objects, raw, volcano
from muster.api.kinds import Kind
from muster.api.raw import JSON, Document

TEMPLATE: Document = {
    "metadata": {"labels": {"app": "train"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {"name": "main", "image": "busybox", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}
        ],
    },
}

JOB_SPEC: Document = {
    "minAvailable": 3,
    "queue": "default",
    "maxRetry": 3,
    "minSuccess": 1,
    "ttlSecondsAfterFinished": 60,
    "plugins": {"env": [], "svc": ["--publish-not-ready-addresses"]},
    "policies": [{"event": "PodEvicted", "action": "RestartJob", "timeout": "1h"}],
    "volumes": [{"mountPath": "/data", "volumeClaimName": "data"}],
    "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
    "tasks": [
        {"name": "master", "replicas": 1, "template": TEMPLATE, "policies": [{"exitCode": 3, "action": "RestartTask"}]},
        {
            "name": "worker",
            "replicas": 4,
            "minAvailable": 2,
            "template": TEMPLATE,
            "maxRetry": 5,
            "dependsOn": {"name": ["master"], "iteration": "any"},
            "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1},
        },
    ],
}

EXAMPLES: dict[Kind, Document] = {
    kueue.RESOURCE_FLAVOR: {
        "metadata": {"name": "h200"},
        "spec": {
            "nodeLabels": {"gpu": "h200"},
            "nodeTaints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
            "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
            "topologyName": "racks",
        },
    },
    kueue.CLUSTER_QUEUE: {
        "metadata": {"name": "gold"},
        "spec": {
            "cohortName": "research",
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "nvidia.com/gpu"],
                    "flavors": [
                        {
                            "name": "h200",
                            "resources": [
                                {"name": "cpu", "nominalQuota": 9, "borrowingLimit": "1500m"},
                                {"name": "nvidia.com/gpu", "nominalQuota": "64", "lendingLimit": "16"},
                            ],
                        }
                    ],
                },
                {
                    "coveredResources": ["memory"],
                    "flavors": [{"name": "any", "resources": [{"name": "memory", "nominalQuota": "36Gi"}]}],
                },
            ],
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "BorrowingOverPreemption"},
            "preemption": {
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerPriority",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100},
            },
            "admissionChecksStrategy": {"admissionChecks": [{"name": "prov", "onFlavors": ["h200"]}]},
            "fairSharing": {"weight": "2"},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        },
        "status": {
            "conditions": [{"type": "Active", "status": "True", "reason": "Ready", "message": "Can admit"}],
            "flavorsUsage": [{"name": "h200", "resources": [{"name": "cpu", "total": "1", "borrowed": "0"}]}],
            "pendingWorkloads": 1,
            "fairSharing": {"weightedShare": 12},
        },
    },
    kueue.LOCAL_QUEUE: {
        "metadata": {"name": "team-a", "namespace": "a"},
        "spec": {"clusterQueue": "gold", "fairSharing": {"weight": "1"}},
        "status": {
            "flavorsUsage": [{"name": "h200", "resources": [{"name": "cpu", "total": "1"}]}],
            "fairSharing": {
                "admissionFairSharingStatus": {"consumedResources": {"cpu": "3"}, "lastUpdate": "2026-01-02T03:04:05Z"}
            },
        },
    },
    kueue.COHORT: {
        "metadata": {"name": "research"},
        "spec": {
            "parentName": "root",
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [
                        {"name": "any", "resources": [{"name": "cpu", "nominalQuota": "1", "lendingLimit": "5"}]}
                    ],
                }
            ],
        },
    },
    kueue.WORKLOAD: {
        "metadata": {"name": "job-train", "namespace": "a"},
        "spec": {
            "queueName": "team-a",
            "priority": 100,
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            "maximumExecutionTimeSeconds": 3600,
            "preemptionGates": [{"name": "multikueue"}],
            "podSets": [
                {"name": "leader", "count": 1, "template": TEMPLATE},
                {
                    "name": "Workers",
                    "count": 8,
                    "minCount": 4,
                    "template": TEMPLATE,
                    "topologyRequest": {
                        "required": "rack",
                        "podIndexLabel": "index",
                        "podSetSliceRequiredTopology": "kubernetes.io/hostname",
                        "podSetSliceSize": 2,
                    },
                },
            ],
        },
        "status": {
            "conditions": [
                {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "Quota reserved"}
            ],
            "admission": {
                "clusterQueue": "gold",
                "podSetAssignments": [
                    {"name": "leader", "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "1"}, "count": 1},
                    {
                        "name": "Workers",
                        "flavors": {"cpu": "h200"},
                        "resourceUsage": {"cpu": "8"},
                        "count": 8,
                        "topologyAssignment": {
                            "levels": ["rack", "kubernetes.io/hostname"],
                            "slices": [
                                {
                                    "domainCount": 2,
                                    "valuesPerLevel": [
                                        {"universal": "r1"},
                                        {"individual": {"prefix": "host-", "roots": ["1", "2"]}},
                                    ],
                                    "podCounts": {"universal": 4},
                                }
                            ],
                        },
                        "delayedTopologyRequest": "Ready",
                    },
                ],
            },
            "requeueState": {"count": 1, "requeueAt": "2026-01-02T03:04:05Z"},
            "reclaimablePods": [{"name": "Workers", "count": 2}],
            "admissionChecks": [
                {
                    "name": "prov",
                    "state": "Ready",
                    "retryCount": 1,
                    "podSetUpdates": [
                        {"name": "leader", "nodeSelector": {"zone": "a"}},
                        {"name": "Workers", "tolerations": [{"operator": "Exists"}]},
                    ],
                }
            ],
            "accumulatedPastExecutionTimeSeconds": 60,
            "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]},
            "unhealthyNodes": [{"name": "host-9"}],
            "preemptionGates": [{"name": "multikueue", "position": "Open"}],
        },
    },
    kueue.WORKLOAD_PRIORITY_CLASS: {"metadata": {"name": "high"}, "value": 1000, "description": "before others"},
    kueue.ADMISSION_CHECK: {
        "metadata": {"name": "prov"},
        "spec": {
            "controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "conf"},
        },
    },
    kueue.TOPOLOGY: {
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
    },
    volcano.JOB: {"metadata": {"name": "train", "namespace": "a"}, "spec": JOB_SPEC},
    volcano.CRON_JOB: {
        "metadata": {"name": "nightly", "namespace": "a"},
        "spec": {
            "schedule": "30 2 * * MON-FRI",
            "timeZone": "Europe/Berlin",
            "startingDeadlineSeconds": 60,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": JOB_SPEC},
        },
    },
    volcano.POD_GROUP: {
        "metadata": {"name": "gang", "namespace": "a"},
        "spec": {
            "minMember": 4,
            "minTaskMember": {"worker": 4},
            "minResources": {"cpu": "4", "count/pods": "4"},
            "networkTopology": {"mode": "soft", "highestTierName": "rack"},
            "subGroupPolicy": [
                {
                    "name": "sub",
                    "matchLabelKeys": ["volcano.sh/partition-id"],
                    "labelSelector": {"matchLabels": {"a": "b"}},
                }
            ],
        },
        "status": {"phase": "Inqueue", "conditions": [{"type": "Scheduled", "status": "True", "transitionID": "7"}]},
    },
    volcano.QUEUE: {
        "metadata": {
            "name": "gold",
            "annotations": {"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1/2"},
        },
        "spec": {
            "weight": 4,
            "capability": {"cpu": "16", "memory": "64Gi"},
            "deserved": {"cpu": "8", "memory": "32Gi"},
            "guarantee": {"resource": {"cpu": "2"}},
            "parent": "root",
            "affinity": {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["g1"]}},
        },
        "status": {"state": "Open", "allocated": {"cpu": "1"}},
    },
    volcano.COMMAND: {
        "metadata": {"name": "stop-train", "namespace": "a"},
        "action": "AbortJob",
        "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": "u1"},
    },
    volcano.JOB_FLOW: {
        "metadata": {"name": "flow", "namespace": "a"},
        "spec": {"flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}], "jobRetainPolicy": "delete"},
        "status": {"unKnowJobs": ["x"], "conditions": {"flow-a": {"phase": "Running"}}, "state": {"phase": "Running"}},
    },
    volcano.JOB_TEMPLATE: {"metadata": {"name": "a", "namespace": "a"}, "spec": JOB_SPEC},
    volcano.HYPER_NODE: {
        "metadata": {"name": "rack-1"},
        "spec": {
            "tier": 1,
            "tierName": "rack",
            "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": "node-1"}}},
                {"type": "Node", "selector": {"regexMatch": {"pattern": "^node-[0-9]+$"}}},
                {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "1"}}}},
            ],
        },
    },
}


def example(kind: Kind) -> Document:
    """The example, complete and yours to change."""
    document: Document = raw.copy(EXAMPLES[kind])
    return {"apiVersion": kind.api_version, "kind": kind.name, **document}


def edited(kind: Kind, path: str, value: JSON) -> Document:
    """The example with `value` at `path`, such as `spec/tasks/0/replicas`; None removes what is
    there. A slash within a name is written ~1, as in JSON pointers.
    """
    document = example(kind)
    steps = [step.replace("~1", "/") for step in path.split("/")]
    *outer, last = [int(step) if step.isdigit() else step for step in steps]
    place: JSON = document
    for step in outer:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[int(step)]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


def problems(kind: Kind, document: Document) -> list[str]:
    """What validation says after defaults, as it does on a create."""
    document = raw.copy(document)
    kind.default(document)
    view = objects.decode_view(kind, raw.encode(document))
    return [str(error) for error in (*kind.validate(view), *kind.validate_new(view))]


def update_problems(kind: Kind, old: Document, new: Document) -> list[str]:
    views = []
    for document in (raw.copy(old), raw.copy(new)):
        kind.default(document)
        views.append(objects.decode_view(kind, raw.encode(document)))
    return [str(error) for error in kind.validate_update(*views)]
