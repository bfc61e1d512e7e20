"""What may be left out of an Allocation."""

from muster.api.core.pod_defaults import default_pod_template
from muster.api.documents import drop_nulls, fill, made_child, text
from muster.api.kueue.names import QUEUE_LABEL
from muster.api.muster.names import DEFAULT_PREEMPTION_SECONDS
from muster.api.raw import Document


def default_allocation(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill(spec, "pods", 1)
    fill(spec, "slots", 0)
    fill(spec, "isPreemptible", False)
    fill(spec, "preemptionTimeoutSeconds", DEFAULT_PREEMPTION_SECONDS)
    fill(spec, "suspend", False)
    template = made_child(spec, "template")
    fill(made_child(template, "spec"), "restartPolicy", "Never")
    default_pod_template(template)
    if text(spec, "queueName"):
        # Everything that queues is found by this label, whatever its kind.
        fill(made_child(made_child(document, "metadata"), "labels"), QUEUE_LABEL, spec["queueName"])
