"""HTTP extenders, without HTTP: whom to ask about which pod, what to say, and what to make of the answer.

Placing a pod is a generator where extenders take part: it yields an `Ask` and is sent what came of it, `Answered` or
`Failed`; who runs the generator does the talking. An answer is believed only as far as it makes sense: one that names
nodes which it was not asked about, or is of another shape than kube-scheduler's extenders speak, is a failure.
A failure never raises. It costs the pod this attempt, or nothing where the extender may be ignored.
"""

from muster.placement.extending.binding import apply_bind_answer, bind_request, binder_of
from muster.placement.extending.choosing import (
    MAX_PRIORITY,
    Filtered,
    Prioritized,
    apply_filter_answer,
    apply_prioritize_answer,
    filter_request,
    filtering,
    prioritize_request,
    prioritizing,
)
from muster.placement.extending.evicting import (
    Consultant,
    Extending,
    apply_preempt_answer,
    consulting,
    preempt_request,
)
from muster.placement.extending.messages import (
    EXTENDER,
    Answered,
    Ask,
    Documents,
    ExtenderConfig,
    Failed,
    FromColumns,
    ManagedResource,
    Reply,
    TlsConfig,
    Verb,
)

__all__ = [
    "EXTENDER",
    "MAX_PRIORITY",
    "Answered",
    "Ask",
    "Consultant",
    "Documents",
    "ExtenderConfig",
    "Extending",
    "Failed",
    "Filtered",
    "FromColumns",
    "ManagedResource",
    "Prioritized",
    "Reply",
    "TlsConfig",
    "Verb",
    "apply_bind_answer",
    "apply_filter_answer",
    "apply_preempt_answer",
    "apply_prioritize_answer",
    "bind_request",
    "binder_of",
    "consulting",
    "filter_request",
    "filtering",
    "preempt_request",
    "prioritize_request",
    "prioritizing",
]
