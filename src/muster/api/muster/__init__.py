"""muster.dev: Allocation, one run of a task."""

from muster.api.muster.kinds import ALLOCATION, KINDS
from muster.api.muster.views import AllocatedResource, Allocation, AllocationSpec, AllocationStatus

__all__ = ["ALLOCATION", "KINDS", "AllocatedResource", "Allocation", "AllocationSpec", "AllocationStatus"]
