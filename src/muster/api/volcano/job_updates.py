"""What may change in a Volcano job that exists: its size and its priority, nothing else.

But for what quota puts into its templates when it lets the job run, and takes out again when it holds the job back:
where the pods go, and which workload they belong to.
"""

from collections.abc import Iterator

import msgspec

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.kueue import sizing
from muster.api.kueue.labels import validate_label_update
from muster.api.kueue.names import WORKLOAD_ANNOTATION
from muster.api.volcano.views import Job, JobSpec, TaskSpec, VolumeSpec

_RULE = "job updates may not change fields other than `minAvailable`, `tasks[*].replicas`, `tasks[*].minAvailable`"
_MAY_CHANGE = frozenset({"min_available", "priority_class_name", "tasks", "volumes"})


def validate_job_update(old: Job, new: Job) -> list[FieldError]:
    was, now = (sizing.is_held(job.metadata.annotations) for job in (old, new))
    return [
        *validate_label_update(old.metadata, new.metadata, was_suspended=was, is_suspended=now),
        *_update(old.spec, new.spec, may_be_steered=was or now),
    ]


def _update(old: JobSpec, new: JobSpec, *, may_be_steered: bool) -> Iterator[FieldError]:
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
        if _fixed_task(before) != _fixed_task(after) and not (may_be_steered and _is_steered(before, after)):
            yield fields.forbidden(f"spec.tasks[{index}]", _RULE)


def _fixed_task(task: TaskSpec) -> TaskSpec:
    return msgspec.structs.replace(task, replicas=None, min_available=None)


def _is_steered(old: TaskSpec, new: TaskSpec) -> bool:
    """Whether the two differ only by what quota gives. One of them says that it was given."""
    templates = old.template, new.template
    if not any(WORKLOAD_ANNOTATION in (template.metadata.annotations or {}) for template in templates):
        return False
    before, after = (
        msgspec.structs.replace(
            template,
            metadata=msgspec.structs.replace(template.metadata, labels=None, annotations=None),
            spec=msgspec.structs.replace(template.spec, node_selector=None, tolerations=(), scheduling_gates=()),
        )
        for template in templates
    )
    return before == after and _fixed_task(msgspec.structs.replace(old, template=new.template)) == _fixed_task(new)


def _fixed_volume(volume: VolumeSpec) -> VolumeSpec:
    """The name of a claim that is made for the job is filled in by the controller."""
    return msgspec.structs.replace(volume, volume_claim_name=None) if volume.volume_claim is not None else volume
