"""What may change in a Volcano job that exists: its size and its priority, nothing else."""

from collections.abc import Iterator

import msgspec

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.volcano.views import Job, JobSpec, TaskSpec, VolumeSpec

_RULE = "job updates may not change fields other than `minAvailable`, `tasks[*].replicas`, `tasks[*].minAvailable`"
_MAY_CHANGE = frozenset({"min_available", "priority_class_name", "tasks", "volumes"})


def validate_job_update(old: Job, new: Job) -> list[FieldError]:
    return list(_update(old.spec, new.spec))


def _update(old: JobSpec, new: JobSpec) -> Iterator[FieldError]:
    names = dict(zip(JobSpec.__struct_fields__, JobSpec.__struct_encode_fields__, strict=True))
    for field, name in names.items():
        if field not in _MAY_CHANGE and getattr(old, field) != getattr(new, field):
            yield fields.forbidden(f"spec.{name}", _RULE)
    if [_fixed_volume(volume) for volume in old.volumes] != [_fixed_volume(volume) for volume in new.volumes]:
        yield fields.forbidden("spec.volumes", _RULE)
    if len(old.tasks) != len(new.tasks):
        yield fields.forbidden("spec.tasks", "job updates may not add or remove tasks")
        return
    for index, (before, after) in enumerate(zip(old.tasks, new.tasks, strict=True)):
        if _fixed_task(before) != _fixed_task(after):
            yield fields.forbidden(f"spec.tasks[{index}]", _RULE)


def _fixed_task(task: TaskSpec) -> TaskSpec:
    return msgspec.structs.replace(task, replicas=None, min_available=None)


def _fixed_volume(volume: VolumeSpec) -> VolumeSpec:
    """The name of a claim that is made for the job is filled in by the controller."""
    return msgspec.structs.replace(volume, volume_claim_name=None) if volume.volume_claim is not None else volume
