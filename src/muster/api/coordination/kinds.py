"""The kinds of coordination.k8s.io as the platform stores and serves them."""

from muster.api.coordination import validation, views
from muster.api.documents import drop_nulls
from muster.api.kinds import Kind

LEASE = Kind(
    group="coordination.k8s.io",
    version="v1",
    name="Lease",
    plural="leases",
    view=views.Lease,
    subresources=frozenset(),
    built_in=True,
    default=drop_nulls,
    validate=validation.validate_lease,
)

KINDS = (LEASE,)
