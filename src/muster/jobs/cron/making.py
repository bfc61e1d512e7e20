"""The job of one run."""

from datetime import datetime

from muster.api import raw, volcano
from muster.api.documents import child
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.jobs.cron.timing import Timing

SCHEDULED_AT = "volcano.sh/cronjob-scheduled-timestamp"
CRON_JOB = volcano.CRON_JOB


def job_name(cron_job: str, scheduled: Instant) -> str:
    """One name a run: whoever makes the same run again finds that it is there."""
    return f"{cron_job}-{int(scheduled) // 60}"


def make_job(cron_job: Document, scheduled: Instant, timing: Timing) -> Document:
    """`cron_job` as stored."""
    metadata = cron_job["metadata"]
    template = child(cron_job, "spec", "jobTemplate")
    annotations = raw.copy(child(template, "metadata", "annotations"))
    annotations[SCHEDULED_AT] = datetime.fromtimestamp(scheduled, timing.zone).isoformat().replace("+00:00", "Z")
    made: Document = {
        "name": job_name(metadata["name"], scheduled),
        "namespace": metadata["namespace"],
        "annotations": annotations,
        "ownerReferences": [
            {
                "apiVersion": CRON_JOB.api_version,
                "kind": CRON_JOB.name,
                "name": metadata["name"],
                "uid": metadata["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    labels = child(template, "metadata", "labels")
    if labels:
        made["labels"] = raw.copy(labels)
    return {
        "apiVersion": volcano.JOB.api_version,
        "kind": volcano.JOB.name,
        "metadata": made,
        "spec": raw.copy(child(template, "spec")),
    }
