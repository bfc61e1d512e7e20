"""The names under which Muster stands in a cluster."""

from collections.abc import Mapping

from muster.api import visibility

NAMESPACE = "muster-system"
CONTROLLER = "muster-controller"
WEBHOOK = "muster-webhook"
VISIBILITY = "muster-visibility"
API_SERVICES = tuple(f"{version}.{group}" for group, version in visibility.VERSIONS)
METRICS = "muster-metrics"
SERVER = "muster-server"
PRIORITY_CLASS = "muster-critical"
DATABASE_SECRET = "muster-database"  # noqa: S105  the name of one

PART_OF = "app.kubernetes.io/part-of"
LABELS: Mapping[str, str] = {PART_OF: "muster"}
"""On everything that an installation consists of: what carries it is ours to change and to remove."""

LEADER = "muster.dev/leader"
"""On the pod that leads, by which the Service of what only it knows finds it."""
