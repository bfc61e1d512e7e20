"""The kinds of coordination.k8s.io as the platform stores and serves them."""

from muster.api.coordination import views
from muster.api.kinds import Kind

LEASE = Kind(
    group="coordination.k8s.io",
    version="v1",
    name="Lease",
    plural="leases",
    view=views.Lease,
    subresources=frozenset(),
    built_in=True,
)

KINDS = (LEASE,)
