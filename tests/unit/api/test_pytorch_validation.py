"""What a PyTorchJob may not ask for, because it would never be done: each a field error at once."""

import msgspec
import pytest

from muster.api import kubeflow
from muster.api.raw import JSON, Document


def problems(name: str = "j", roles: Document | None = None, **spec: JSON) -> list[str]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    if roles is None:
        roles = {"Master": {"template": template}, "Worker": {"replicas": 3, "template": template}}
    document: Document = {"metadata": {"name": name}, "spec": {"pytorchReplicaSpecs": roles, **spec}}
    kubeflow.PYTORCH_JOB.default(document)
    job = msgspec.convert(document, kubeflow.PyTorchJob)
    return [problem.path for problem in kubeflow.PYTORCH_JOB.validate(job)]


GANG = "spec.runPolicy.schedulingPolicy"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"elasticPolicy": {"nProcPerNode": 0}}, "spec.elasticPolicy.nProcPerNode"),
        ({"elasticPolicy": {"minReplicas": 0}}, "spec.elasticPolicy.minReplicas"),
        ({"elasticPolicy": {"maxRestarts": -1}}, "spec.elasticPolicy.maxRestarts"),
        ({"elasticPolicy": {"rdzvPort": 65536}}, "spec.elasticPolicy.rdzvPort"),
        ({"runPolicy": {"schedulingPolicy": {"minAvailable": 5}}}, f"{GANG}.minAvailable"),
        ({"runPolicy": {"schedulingPolicy": {"scheduleTimeoutSeconds": -1}}}, f"{GANG}.scheduleTimeoutSeconds"),
        ({"runPolicy": {"schedulingPolicy": {"minResources": {"cpu": "lots"}}}}, f"{GANG}.minResources.cpu"),
        ({"name": "x" * 55}, "metadata.name"),
    ],
)  # fmt: skip
def test_what_cannot_be(spec: dict[str, JSON], path: str) -> None:
    assert problems(**spec) == [path]


def test_what_is_just_possible() -> None:
    policy = {"schedulingPolicy": {"minAvailable": 4, "minResources": {"cpu": "1"}}}
    elastic = {"nProcPerNode": 1, "minReplicas": 1, "maxRestarts": 0, "rdzvPort": 65535}
    assert problems("x" * 54, runPolicy=policy, elasticPolicy=elastic) == []


def test_an_elastic_job_has_workers() -> None:
    master = {"Master": {"template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}}
    assert problems(roles=master, elasticPolicy={"rdzvId": "1"}) == ["spec.pytorchReplicaSpecs[Worker]"]
