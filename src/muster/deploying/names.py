"""The names under which Muster stands in a cluster."""

from collections.abc import Mapping

NAMESPACE = "muster-system"
CONTROLLER = "muster-controller"
WEBHOOK = "muster-webhook"
METRICS = "muster-metrics"
SERVER = "muster-server"
PRIORITY_CLASS = "muster-critical"
DATABASE_SECRET = "muster-database"  # noqa: S105  the name of one

PART_OF = "app.kubernetes.io/part-of"
LABELS: Mapping[str, str] = {PART_OF: "muster"}
"""On everything that an installation consists of: what carries it is ours to change and to remove."""
