"""The claims to storage behind a job's volumes: made for the job where it says what it wants, else looked for."""

import hashlib
from collections.abc import Callable, Iterator, Mapping

from muster.api import volcano
from muster.api.raw import Document
from muster.jobs.volcano.owning import owner_reference

_RECORD = "volume-pvc-"
_SUFFIX_LENGTH = 12


def name_of(job: volcano.Job, number: int) -> str:
    """Of a claim that is made for the job: the same whenever it is asked for, so that none is made twice."""
    return job.spec.volumes[number].volume_claim_name or f"{job.metadata.name}-pvc-{suffix(job, 'claim', number)}"


def suffix(job: volcano.Job, what: str, number: int) -> str:
    return hashlib.sha256(f"{job.metadata.uid}/{what}/{number}".encode()).hexdigest()[:_SUFFIX_LENGTH]


def records(job: volcano.Job) -> dict[str, str]:
    """What is kept for the job when all its claims are there."""
    names = (name_of(job, number) for number in range(len(job.spec.volumes)))
    return {f"{_RECORD}{name}": name for name in names}


def missing(job: volcano.Job, is_there: Callable[[str], bool]) -> str | None:
    """The first claim that somebody else should have made, and has not."""
    named = (volume.volume_claim_name for volume in job.spec.volumes if volume.volume_claim is None)
    return next((name for name in named if name and not is_there(name)), None)


def wanted(job: volcano.Job, recorded: Mapping[str, str]) -> Iterator[Document]:
    """The claims to make: not those that are on record, which outlive whatever becomes of the job's pods."""
    for number, volume in enumerate(job.spec.volumes):
        name = name_of(job, number)
        if volume.volume_claim is not None and f"{_RECORD}{name}" not in recorded:
            meta = {
                "name": name,
                "namespace": job.metadata.namespace,
                "ownerReferences": [owner_reference(job)],
            }
            yield {"metadata": meta, "spec": dict(volume.volume_claim)}
