"""Changing the priority of a run that waits or runs."""

import contextlib

from muster.api import errors, kueue, muster
from muster.api.kueue.names import PRIORITY_CLASS_LABEL
from muster.api.muster.names import TASK_LABEL
from muster.api.selectors import LabelSelector, Operator, Requirement
from muster.engines import pod_documents
from muster.store.protocol import Create, Patch, Selection, Store, write_one


async def set_priority(store: Store, task: str, priority: int) -> None:
    """Of all that runs for a task. Raises NotFound, Conflict."""
    of_task = LabelSelector((Requirement(TASK_LABEL, Operator.IN, frozenset({task})),))
    found = (await store.list(Selection(muster.ALLOCATION, labels=of_task))).items
    if not found:
        raise errors.NotFound(f"nothing runs for task {task}")
    with contextlib.suppress(errors.AlreadyExists):
        await write_one(store, Create(kueue.WORKLOAD_PRIORITY_CLASS, pod_documents.priority_class(priority)))
    body = {
        "metadata": {"labels": {PRIORITY_CLASS_LABEL: pod_documents.priority_class_name(priority)}},
        "spec": {"priority": priority},
    }
    for each in found:
        await write_one(store, Patch(muster.ALLOCATION, each.key, body))
