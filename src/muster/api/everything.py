"""All kinds that Muster knows, in one registry.

Order matters to `Registry.find`: built-in kinds stand first, so that `job` means batch/v1 and
Volcano's is `vcjob` or `job.batch.volcano.sh`, as it is with kubectl.
"""

from muster.api import (
    batch,
    coordination,
    core,
    kubeflow,
    kueue,
    muster,
    networking,
    node,
    policy,
    scheduling,
    storage,
    volcano,
)
from muster.api.registry import Registry

REGISTRY = Registry(
    (
        *core.KINDS,
        *scheduling.KINDS,
        *batch.KINDS,
        *coordination.KINDS,
        *policy.KINDS,
        *node.KINDS,
        *storage.KINDS,
        *networking.KINDS,
        *kubeflow.KINDS,
        *kueue.KINDS,
        *volcano.KINDS,
        *muster.KINDS,
    )
)
