"""What says that something belongs to a job, so that it goes when the job goes."""

from muster.api import volcano
from muster.api.raw import Document


def owner_reference(job: volcano.Job) -> Document:
    return {
        "apiVersion": volcano.JOB.api_version,
        "kind": volcano.JOB.name,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
