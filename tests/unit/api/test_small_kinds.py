"""PriorityClass, Lease, PodDisruptionBudget and PyTorchJob."""

import pytest

from muster.api import coordination, kubeflow, policy, raw, scheduling
from muster.api.objects import decode_view

CLASS, LEASE, BUDGET, PYTORCH = (
    scheduling.PRIORITY_CLASS,
    coordination.LEASE,
    policy.POD_DISRUPTION_BUDGET,
    kubeflow.PYTORCH_JOB,
)


def view(kind, document):
    made = raw.copy({"metadata": {"name": "good"}, **document})
    kind.default(made)
    return decode_view(kind, raw.encode(made))


def role(**role):
    return {"template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}, **role}


def training(**spec):
    return {"spec": {"pytorchReplicaSpecs": {"Master": role(), "Worker": role(replicas=3)}, **spec}}


GOOD = {
    "a class": (CLASS, {"value": 1_000_000_000, "preemptionPolicy": "Never"}),
    "a class below zero": (CLASS, {"value": -5}),
    "a system class": (CLASS, {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
    "a lease": (
        LEASE,
        {"spec": {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": "2026-01-02T03:04:05.123456Z"}},
    ),
    "an empty lease": (LEASE, {}),
    "a budget in pods": (BUDGET, {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}),
    "a budget in percent": (BUDGET, {"spec": {"maxUnavailable": "50%"}}),
    "training": (PYTORCH, training(nprocPerNode="8")),
    "elastic training": (PYTORCH, training(elasticPolicy={"minReplicas": 1, "maxReplicas": 4, "nProcPerNode": 2})),
}


@pytest.mark.parametrize(("kind", "document"), GOOD.values(), ids=GOOD.keys())
def test_good(kind, document):
    assert list(kind.validate(view(kind, document))) == []


ROLES = "spec.pytorchReplicaSpecs"
BAD = {
    "a class too high": (CLASS, {"value": 1_000_000_001}, ["value"]),
    "a class of the system": (CLASS, {"metadata": {"name": "system-mine"}, "value": 1}, ["metadata.name"]),
    "a class that preempts perhaps": (CLASS, {"preemptionPolicy": "Maybe"}, ["preemptionPolicy"]),
    "a lease of no time": (LEASE, {"spec": {"leaseDurationSeconds": 0}}, ["spec.leaseDurationSeconds"]),
    "a lease renewed sometime": (LEASE, {"spec": {"renewTime": "now"}}, ["spec.renewTime"]),
    "a lease of negative changes": (LEASE, {"spec": {"leaseTransitions": -1}}, ["spec.leaseTransitions"]),
    "a lease with a wish but no strategy": (LEASE, {"spec": {"preferredHolder": "n"}}, ["spec.preferredHolder"]),
    "a budget both ways": (BUDGET, {"spec": {"minAvailable": 1, "maxUnavailable": 1}}, ["spec"]),
    "a negative budget": (BUDGET, {"spec": {"minAvailable": -1}}, ["spec.minAvailable"]),
    "a budget in words": (BUDGET, {"spec": {"minAvailable": "half"}}, ["spec.minAvailable"]),
    "a budget above all": (BUDGET, {"spec": {"maxUnavailable": "101%"}}, ["spec.maxUnavailable"]),
    "a budget's selector": (
        BUDGET,
        {"spec": {"selector": {"matchLabels": {"a": "b c"}}}},
        ["spec.selector.matchLabels"],
    ),
    "training under a name no service can have": (
        PYTORCH,
        {"metadata": {"name": "1st"}, **training()},
        ["metadata.name"],
    ),
    "training nobody": (PYTORCH, {"spec": {"pytorchReplicaSpecs": {}}}, [ROLES]),
    "a role that is none": (PYTORCH, training(pytorchReplicaSpecs={"Boss": role()}), [ROLES]),
    "two masters": (PYTORCH, training(pytorchReplicaSpecs={"Master": role(replicas=2)}), [f"{ROLES}[Master].replicas"]),
    "fewer than no workers": (
        PYTORCH,
        training(pytorchReplicaSpecs={"Worker": role(replicas=-1)}),
        [f"{ROLES}[Worker].replicas"],
    ),
    "a restart policy": (
        PYTORCH,
        training(pytorchReplicaSpecs={"Worker": role(restartPolicy="x")}),
        [f"{ROLES}[Worker].restartPolicy"],
    ),
    "no container that trains": (
        PYTORCH,
        training(pytorchReplicaSpecs={"Worker": {"template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}}),
        [f"{ROLES}[Worker].template.spec.containers"],
    ),
    "a pod that cannot be": (
        PYTORCH,
        training(pytorchReplicaSpecs={"Worker": {"template": {"spec": {"containers": [{"name": "pytorch"}]}}}}),
        [f"{ROLES}[Worker].template.spec.containers[0].image"],
    ),
    "a way to clean up": (PYTORCH, training(runPolicy={"cleanPodPolicy": "Some"}), ["spec.runPolicy.cleanPodPolicy"]),
    "processes": (PYTORCH, training(nprocPerNode="many"), ["spec.nprocPerNode"]),
    "no processes": (PYTORCH, training(nprocPerNode="0"), ["spec.nprocPerNode"]),
    "processes said twice": (
        PYTORCH,
        training(nprocPerNode="2", elasticPolicy={"nProcPerNode": 2}),
        ["spec.elasticPolicy.nProcPerNode"],
    ),
    "elastic the wrong way": (
        PYTORCH,
        training(elasticPolicy={"minReplicas": 4, "maxReplicas": 1}),
        ["spec.elasticPolicy.maxReplicas"],
    ),
}


@pytest.mark.parametrize(("kind", "document", "expected"), BAD.values(), ids=BAD.keys())
def test_bad(kind, document, expected):
    assert [problem.path for problem in kind.validate(view(kind, document))] == expected


UPDATES = {
    "the value of a class": (CLASS, {"value": 1}, {"value": 2}, ["value"]),
    "the description of a class": (CLASS, {"value": 1}, {"value": 1, "description": "x"}, []),
    "whether a class preempts": (CLASS, {}, {"preemptionPolicy": "Never"}, ["preemptionPolicy"]),
    "a budget": (BUDGET, {"spec": {"minAvailable": 1}}, {"spec": {"maxUnavailable": 1}}, []),
    "who holds a lease": (LEASE, {"spec": {"holderIdentity": "a"}}, {"spec": {"holderIdentity": "b"}}, []),
    "who manages training": (
        PYTORCH,
        training(),
        training(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}),
        ["spec.runPolicy.managedBy"],
    ),
}


@pytest.mark.parametrize(("kind", "old", "new", "expected"), UPDATES.values(), ids=UPDATES.keys())
def test_updates(kind, old, new, expected):
    assert [problem.path for problem in kind.validate_update(view(kind, old), view(kind, new))] == expected
