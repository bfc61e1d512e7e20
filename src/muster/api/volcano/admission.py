"""What may enter, given the queues and priority classes that there are: the rules of Volcano's webhooks that a look at
the object alone cannot decide. Pure: whoever calls has looked the other objects up.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from muster.api import core, fields
from muster.api.errors import FieldError
from muster.api.volcano.defaults import DEFAULT_QUEUE, ROOT_QUEUE, SCHEDULER
from muster.api.volcano.queue_tree import QueueTree, not_found
from muster.api.volcano.views import Job, PodGroup, Queue

OPEN = "Open"
JDB_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
JDB_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_JDB = (JDB_MIN_AVAILABLE, JDB_MAX_UNAVAILABLE)


def check_job(job: Job, tree: QueueTree, priority_classes: Sequence[str] | None = None) -> list[FieldError]:
    """`priority_classes`: those that exist, of which `named_priority_classes` tells which matter; None: do not ask."""
    found = [*_job_queue(job.spec.queue or DEFAULT_QUEUE, tree)]
    if priority_classes is not None:
        found += (
            fields.invalid(path, name, "there is no PriorityClass of this name")
            for path, name in named_priority_classes(job).items()
            if name not in priority_classes
        )
    return found


def named_priority_classes(job: Job) -> Mapping[str, str]:
    """Fields of the job that name a priority class, and which."""
    named = {
        f"spec.tasks[{index}].template.spec.priorityClassName": task.template.spec.priority_class_name
        for index, task in enumerate(job.spec.tasks)
    }
    named["spec.priorityClassName"] = job.spec.priority_class_name
    return {path: name for path, name in named.items() if name}


def _job_queue(name: str, tree: QueueTree) -> Iterator[FieldError]:
    if name == ROOT_QUEUE:
        return  # refused by the validation of the job itself
    queue = tree.by_name.get(name)
    if queue is None:
        yield from _missing("job queue", name)
        return
    yield from _closed("job", queue)
    children = tree.children(name)
    if children:
        message = f"can only submit job to leaf queue, queue `{name}` has {len(children)} child queues"
        yield fields.invalid("spec.queue", name, message)


def check_pod_group(group: PodGroup, tree: QueueTree) -> list[FieldError]:
    name = group.spec.queue
    if not name:
        return []
    queue = tree.by_name.get(name)
    return list(_missing("queue", name) if queue is None else _closed("PodGroup", queue))


def _missing(what: str, name: str) -> Iterator[FieldError]:
    # The default queue is made when the platform starts: somebody may well be faster.
    if name != DEFAULT_QUEUE:
        yield fields.invalid("spec.queue", name, f"unable to find {what}: {not_found(name)}")


def _closed(what: str, queue: Queue) -> Iterator[FieldError]:
    """A queue that has no state yet is about to open."""
    name, state = queue.metadata.name, queue.status.state
    if state and state != OPEN:
        message = f"can only submit {what} to queue with state `Open`, queue `{name}` status is `{state}`"
        yield fields.invalid("spec.queue", name, message)


def check_pod(pod: core.Pod) -> list[FieldError]:
    """How many pods of a group may be disrupted, said on a pod that Volcano's users schedule."""
    return list(_disruption(pod)) if pod.spec.scheduler_name == SCHEDULER else []


def _disruption(pod: core.Pod) -> Iterator[FieldError]:
    annotations = pod.metadata.annotations or {}
    for key in _JDB:
        problem = _share_problem(annotations[key]) if key in annotations else None
        if problem:
            message = f'invalid value <"{annotations[key]}"> for {key}, {problem}'
            yield fields.invalid(f"metadata.annotations[{key}]", annotations[key], message)
    if all(key in annotations for key in _JDB):
        message = f"not allow configure multiple annotations <[{' '.join(_JDB)}]> at same time"
        yield fields.invalid("metadata.annotations", JDB_MAX_UNAVAILABLE, message)


def _share_problem(text: str) -> str | None:
    """What is wrong with a number of pods, or a share of them."""
    number = text.removesuffix("%")
    if not _NUMBER.fullmatch(number):
        return "it must be a positive integer or a percentage"
    if text.endswith("%"):
        return None if 0 < int(number) < 100 else "it must be a valid percentage which between 1% ~ 99%"
    return None if 0 < int(number) < 2**31 else "it must be a positive integer"
