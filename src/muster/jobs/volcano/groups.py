"""The PodGroup of a job: the gang that its pods form."""

from collections.abc import Mapping

import msgspec

from muster.api import patching, volcano
from muster.api.kueue.names import ADMITTED_REPLICAS_ANNOTATION, HELD_ANNOTATION
from muster.api.raw import Document
from muster.jobs.volcano import minimum, names
from muster.jobs.volcano.owning import owner_reference

ADMITTED_NOT = (None, "", "Pending")


def is_admitted(group: volcano.PodGroup | None) -> bool:
    """Whether its pods may be made."""
    return group is not None and group.status.phase not in ADMITTED_NOT


def document(job: volcano.Job, priorities: Mapping[str, int]) -> Document:
    meta = job.metadata
    spec: Document = {
        "minMember": job.spec.min_available or 0,
        "minTaskMember": task_members(job),
        "minResources": minimum.resources(job, priorities),
    }
    if job.spec.queue:
        spec["queue"] = job.spec.queue
    if job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    if job.spec.network_topology is not None:
        spec["networkTopology"] = _topology(job.spec.network_topology)
    policies = sub_group_policies(job)
    if policies:
        spec["subGroupPolicy"] = policies
    return {
        "metadata": {
            "name": names.group_name(job),
            "namespace": meta.namespace,
            "labels": dict(meta.labels or {}),
            "annotations": {
                name: value for name, value in (meta.annotations or {}).items() if name != ADMITTED_REPLICAS_ANNOTATION
            },
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def update(job: volcano.Job, group: volcano.PodGroup, priorities: Mapping[str, int]) -> Document | None:
    """What to merge into the group after the job was edited, or let in, or held back. Its queue and its place in the
    network stay."""
    found: Document = msgspec.to_builtins(group.spec)
    wanted = dict(found)
    if (job.spec.priority_class_name or "") != (group.spec.priority_class_name or ""):
        wanted["priorityClassName"] = job.spec.priority_class_name
    least = minimum.resources(job, priorities)
    if (job.spec.min_available or 0) != (group.spec.min_member or 0) or least != dict(group.spec.min_resources or {}):
        wanted["minMember"], wanted["minResources"] = job.spec.min_available or 0, least
    wanted["minTaskMember"] = {**(group.spec.min_task_member or {}), **task_members(job)}
    if not wanted["minTaskMember"] and "minTaskMember" not in found:
        del wanted["minTaskMember"]
    policies = sub_group_policies(job)
    if policies != found.get("subGroupPolicy", []):
        wanted["subGroupPolicy"] = policies
    changed = patching.difference(found, wanted)
    held, is_held = ((found.metadata.annotations or {}).get(HELD_ANNOTATION) for found in (job, group))
    body: Document = {"spec": changed} if changed else {}
    if held != is_held:
        body["metadata"] = {"annotations": {HELD_ANNOTATION: held}}
    return body or None


def task_members(job: volcano.Job) -> dict[str, int]:
    """How few pods of each task will do."""
    return {names.task_name(task): _minimum(task) for task in job.spec.tasks}


def _minimum(task: volcano.TaskSpec) -> int:
    if task.min_available is not None:
        return task.min_available
    policy = task.partition_policy
    partitions = (policy.min_partitions or 0) * (policy.partition_size or 0) if policy is not None else 0
    return partitions or task.replicas or 0


def sub_group_policies(job: volcano.Job) -> list[Document]:
    return [
        sub_group_policy(task, task.partition_policy) for task in job.spec.tasks if task.partition_policy is not None
    ]


def sub_group_policy(task: volcano.TaskSpec, policy: volcano.PartitionPolicySpec) -> Document:
    """The partitions of a task: pods of the same number belong together."""
    found: Document = {
        "name": names.task_name(task),
        "subGroupSize": policy.partition_size or 0,
        "minSubGroups": policy.min_partitions or 0,
        "labelSelector": {"matchLabels": {names.TASK: names.task_name(task)}},
        "matchLabelKeys": [names.PARTITION],
    }
    if policy.network_topology is not None:
        found["networkTopology"] = _topology(policy.network_topology)
    return found


def _topology(wanted: volcano.NetworkTopologySpec) -> Document:
    found: Document = {"mode": wanted.mode} if wanted.mode else {}
    if wanted.highest_tier_allowed is not None:
        found["highestTierAllowed"] = wanted.highest_tier_allowed
    elif wanted.highest_tier_name:
        found["highestTierName"] = wanted.highest_tier_name
    return found
