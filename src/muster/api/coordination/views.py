"""View of Lease."""

from muster.api.meta import Resource, View
from muster.api.scalars import Int32


class LeaseSpec(View, frozen=True):
    """Who holds the lease, since when, and for how long without renewal."""

    acquire_time: str | None = None
    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    lease_transitions: Int32 | None = None
    preferred_holder: str | None = None
    renew_time: str | None = None
    strategy: str | None = None


class Lease(Resource, frozen=True):
    """A claim that must be renewed: leadership of a component, or the heartbeat of a node."""

    spec: LeaseSpec = LeaseSpec()
