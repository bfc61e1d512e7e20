"""Why a job has no pods yet: reasons in the state of a job that waits, written by whoever runs it and read by quota."""

from typing import Final

WAITING_FOR_QUOTA: Final = "WaitingForQuota"
QUEUE_MISSING: Final = "QueueNotFound"
QUEUE_CLOSED: Final = "QueueNotOpen"
CLASS_MISSING: Final = "PriorityClassNotFound"
PLUGIN_ERROR: Final = "PluginError"
CLAIM_MISSING: Final = "PVCError"

OBSTACLES: Final = frozenset({QUEUE_MISSING, QUEUE_CLOSED, CLASS_MISSING, PLUGIN_ERROR, CLAIM_MISSING})
SETTLED: Final = OBSTACLES | {WAITING_FOR_QUOTA}
"""With one of these written down, no pods are made before it is gone from there."""
