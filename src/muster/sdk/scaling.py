"""Changing how many pods a job has, while it runs or waits."""

import re
from collections.abc import Mapping, Sequence

from muster.api import errors, raw
from muster.api.raw import JSON, Document
from muster.sdk import dialects, finding, reading
from muster.sdk.client import Client
from muster.sdk.dialects import Job

ONLY = ""
"""The task of a job that has one."""


def parse(texts: Sequence[str]) -> dict[str, int]:
    """`worker=3`, or `3` for a job with one task. Raises BadRequest."""
    found: dict[str, int] = {}
    for text in texts:
        task, equals, number = text.rpartition("=")
        if not re.fullmatch(r"\d{1,9}", number, re.ASCII) or (equals and not task):
            raise errors.BadRequest(f"--replicas {text!r}: write TASK=N, or N for a job with one task")
        found[task] = int(number)
    return found


def scale(client: Client, job: Job, replicas: Mapping[str, int]) -> Sequence[str]:
    """`replicas` by task; what changes, a line each. A gang of all its pods stays one: where `minAvailable` was all of
    them it still is. Raises BadRequest for a task that is not there, Invalid where the job does not allow it."""
    fresh = finding.refresh(client, job)
    patch, changes = plan(fresh, replicas)
    if patch:
        client.patch(job.dialect.resource, job.name, patch, job.namespace, type="json")
    return changes


def plan(job: Job, replicas: Mapping[str, int]) -> tuple[list[JSON], list[str]]:
    """The JSON patch, and what it changes in words. Pure."""
    if job.dialect is dialects.VOLCANO:
        return _volcano(job, replicas)
    if job.dialect is dialects.PYTORCH:
        return _pytorch(job, replicas)
    if job.dialect is dialects.BATCH:
        return _batch(job, replicas)
    raise errors.BadRequest(
        f"{job.shown} cannot be scaled: only batch, volcano and pytorch jobs can; "
        + (
            "scale its jobs instead"
            if job.dialect in dialects.MAKERS
            else "stop it and run it again with another --replicas"
        )
    )


def _chosen(job: Job, replicas: Mapping[str, int], names: Sequence[str]) -> dict[int, int]:
    """By the number of the task."""
    found = {}
    lowered = [name.lower() for name in names]
    for task, count in replicas.items():
        if task == ONLY and len(names) == 1:
            found[0] = count
        elif task.lower() in lowered:
            found[lowered.index(task.lower())] = count
        else:
            asked = f"has no task {task!r}" if task else f"has {len(names)} tasks"
            example = " ".join(f"--replicas {name}=N" for name in names[:2])
            raise errors.BadRequest(
                f"{job.shown} {asked}; it has {', '.join(names)}: muster scale {job.name} {example}"
            )
    return found


def _replaced(path: str, before: JSON, after: JSON) -> list[JSON]:
    """Refused where somebody else has changed it meanwhile."""
    test: list[JSON] = [{"op": "test", "path": path, "value": before}] if before is not None else []
    return [*test, {"op": "replace" if before is not None else "add", "path": path, "value": after}]


def _volcano(job: Job, replicas: Mapping[str, int]) -> tuple[list[JSON], list[str]]:
    tasks = reading.objects(job.document, "spec", "tasks")
    chosen = _chosen(job, replicas, [reading.text(task, "name") for task in tasks])
    patch: list[JSON] = []
    changes: list[str] = []
    before = sum(_number(task, "replicas") for task in tasks)
    after = before
    for index, count in chosen.items():
        task, path = tasks[index], f"/spec/tasks/{index}"
        was = _number(task, "replicas")
        if was == count:
            continue
        patch += [{"op": "test", "path": f"{path}/name", "value": task.get("name")}]
        patch += _replaced(f"{path}/replicas", task.get("replicas"), count)
        changes.append(f"{reading.text(task, 'name')}: {was} -> {count}")
        if task.get("minAvailable") == was:
            patch += _replaced(f"{path}/minAvailable", was, count)
        after += count - was
    if patch and raw.dig(job.document, "spec", "minAvailable") == before:
        patch += _replaced("/spec/minAvailable", before, after)
        changes.append(f"minAvailable: {before} -> {after}")
    return patch, changes


def _pytorch(job: Job, replicas: Mapping[str, int]) -> tuple[list[JSON], list[str]]:
    roles = reading.section(job.document, "spec", "pytorchReplicaSpecs")
    # A master is always one, so a number alone means the workers.
    names = ["Worker"] if ONLY in replicas and "Worker" in roles else sorted(roles)
    patch: list[JSON] = []
    changes: list[str] = []
    for index, count in _chosen(job, replicas, names).items():
        was = raw.dig(roles, names[index], "replicas")
        if was != count:
            patch += _replaced(f"/spec/pytorchReplicaSpecs/{names[index]}/replicas", was, count)
            changes.append(f"{names[index]}: {was} -> {count}")
    return patch, changes


def _batch(job: Job, replicas: Mapping[str, int]) -> tuple[list[JSON], list[str]]:
    spec = reading.section(job.document, "spec")
    was = spec.get("parallelism")
    count = _chosen(job, replicas, ["parallelism"]).get(0, was)
    if was == count:
        return [], []
    patch = _replaced("/spec/parallelism", was, count)
    changes = [f"parallelism: {was} -> {count}"]
    if spec.get("completionMode") == "Indexed" and spec.get("completions") == was:
        # Of an elastic job each index is a worker: they grow and shrink together.
        patch += _replaced("/spec/completions", was, count)
        changes.append(f"completions: {was} -> {count}")
    return patch, changes


def _number(document: Document, name: str) -> int:
    found = document.get(name)
    return found if isinstance(found, int) else 0
