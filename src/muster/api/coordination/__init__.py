"""coordination.k8s.io: leases."""

from muster.api.coordination.kinds import KINDS, LEASE
from muster.api.coordination.views import (
    Lease,
    LeaseSpec,
)

__all__ = [
    "KINDS",
    "LEASE",
    "Lease",
    "LeaseSpec",
]
