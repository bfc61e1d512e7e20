"""What a workload says of preemption besides its priority: that it is no victim, or that it makes nobody one."""

from typing import Final

from muster.api import kueue
from muster.api.volcano.preemptable import is_protected as is_marked

PREEMPTION_ANNOTATION: Final = "muster.dev/preemption-policy"
"""Of a workload: "Never" where its priority class says so."""
NEVER: Final = "Never"


def is_protected(view: kueue.Workload) -> bool:
    """It is not evicted for others: it says so itself, or all its pods do."""
    if is_marked(view.metadata):
        return True
    for pods in view.spec.pod_sets:
        if not is_marked(pods.template.metadata):
            return False
    return bool(view.spec.pod_sets)


def never_preempts(view: kueue.Workload) -> bool:
    """Others are not evicted for it: its class says so, or all its pods do."""
    if (view.metadata.annotations or {}).get(PREEMPTION_ANNOTATION) == NEVER:
        return True
    listed = view.spec.pod_sets
    return bool(listed) and all(pods.template.spec.preemption_policy == NEVER for pods in listed)
