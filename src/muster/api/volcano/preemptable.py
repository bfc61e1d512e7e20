"""Volcano's mark of pods and groups that are not to be evicted for others, whatever their priority."""

from typing import Final

from muster.api.meta import ObjectMeta

PREEMPTABLE: Final = "volcano.sh/preemptable"


def is_protected(meta: ObjectMeta) -> bool:
    """What the annotation says, or else the label."""
    said = (meta.annotations or {}).get(PREEMPTABLE) or (meta.labels or {}).get(PREEMPTABLE)
    return said == "false"
