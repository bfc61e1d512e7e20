"""Volcano's mark of pods and groups that are not to be evicted for others, whatever their priority."""

from typing import Final

from muster.api.meta import ObjectMeta

PREEMPTABLE: Final = "volcano.sh/preemptable"


def is_protected(meta: ObjectMeta) -> bool:
    """What the annotation says, or else the label."""
    annotations, labels = meta.annotations, meta.labels
    if not annotations and not labels:
        return False  # asked of every workload that holds quota, and most have neither
    said = (annotations or {}).get(PREEMPTABLE) or (labels or {}).get(PREEMPTABLE)
    return said == "false"
