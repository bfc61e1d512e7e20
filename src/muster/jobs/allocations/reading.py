"""What a pod says about its part of an allocation: `resources` of the status, one entry for each rank.

An entry whose pod has ended stays as it is: only the first end counts.
"""

from collections.abc import Mapping
from typing import Final

from muster.api import conditions, core
from muster.api.muster.names import RANK_LABEL, EndReason, ResourcePhase
from muster.api.muster.views import AllocatedResource
from muster.jobs.allocations.making import pod_name

FINISHED: Final = ("Succeeded", "Failed")
_HOPELESS: Final = frozenset({"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})
"""A pod that waits for one of these would wait without end."""
_DISRUPTED: Final[Mapping[str, EndReason]] = {"NodeLost": EndReason.NODE_LOST}
_LOST: Final = "its pod is gone, and nobody saw how it ended"


def rank_of(pod: core.Pod) -> int | None:
    text = (pod.metadata.labels or {}).get(RANK_LABEL, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def entry(
    name: str, rank: int, pod: core.Pod | None, before: AllocatedResource | None, now_text: str, *, has_begun: bool
) -> AllocatedResource:
    """`pod`: None where there is none any more, or yet."""
    if before is not None and before.phase == ResourcePhase.TERMINATED:
        return before
    if pod is None:
        known = before or AllocatedResource(name=pod_name(name, rank), rank=rank)
        if not has_begun:
            return AllocatedResource(name=known.name, rank=rank, phase=ResourcePhase.PENDING)
        return _gone(known, now_text)
    phase, status = _phase(pod), pod.status
    found = AllocatedResource(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        rank=rank,
        node=pod.spec.node_name,
        address=status.pod_ip,
        phase=phase,
        started_at=_started_at(pod),
    )
    return _ended(found, pod, now_text) if phase is ResourcePhase.TERMINATED else found


def is_ready(pod: core.Pod) -> bool:
    return conditions.is_true(pod.status.conditions, "Ready")


def has_failed(resource: AllocatedResource) -> bool:
    return resource.phase == ResourcePhase.TERMINATED and resource.exit_code != 0


def is_hopeless(pod: core.Pod) -> bool:
    """Its program will never start."""
    return _hopeless(pod) is not None and pod.status.phase not in FINISHED


def _hopeless(pod: core.Pod) -> core.ContainerStateWaiting | None:
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = container.state.waiting if container.state is not None else None
        if waiting is not None and waiting.reason in _HOPELESS:
            return waiting
    return None


def _phase(pod: core.Pod) -> ResourcePhase:
    if pod.status.phase in FINISHED or _hopeless(pod) is not None:
        return ResourcePhase.TERMINATED
    main = next(iter(pod.status.container_statuses), None)
    state = main.state if main is not None else None
    if state is not None and state.terminated is not None:
        return ResourcePhase.TERMINATED  # what runs beside it does not count
    if state is not None and state.running is not None:
        return ResourcePhase.RUNNING
    if not pod.spec.node_name:
        return ResourcePhase.PENDING
    return ResourcePhase.STARTING if pod.status.start_time else ResourcePhase.ASSIGNED


def _ended(found: AllocatedResource, pod: core.Pod, now_text: str) -> AllocatedResource:
    code, message, at = _exit(pod)
    disrupted = conditions.find(pod.status.conditions, "DisruptionTarget")
    if pod.status.phase == "Succeeded" or code == 0:
        reason, code = EndReason.COMPLETED, 0
    elif disrupted is not None and disrupted.status == conditions.TRUE:
        reason = _DISRUPTED.get(disrupted.reason or "", EndReason.EVICTED)
        message = disrupted.message or message
    elif pod.metadata.deletion_timestamp is not None:
        reason = EndReason.DELETED
    else:
        reason = EndReason.FAILED
    return AllocatedResource(
        name=found.name,
        uid=found.uid,
        rank=found.rank,
        node=found.node,
        address=found.address,
        phase=ResourcePhase.TERMINATED,
        exit_code=code,
        reason=reason,
        message=message or None,
        started_at=found.started_at,
        finished_at=at or now_text,
    )


def _exit(pod: core.Pod) -> tuple[int | None, str, str]:
    """Code, message and time: of the first container for the start that failed, else of the main one."""
    starting = [*pod.status.init_container_statuses]
    for container in [*starting, *pod.status.container_statuses[:1]]:
        ended = container.state.terminated if container.state is not None else None
        if ended is not None and (ended.exit_code or container not in starting):
            return ended.exit_code, ended.message or pod.status.message or "", ended.finished_at or ""
    waiting = _hopeless(pod)
    if waiting is not None:
        return None, f"{waiting.reason}: {waiting.message or 'its image cannot be had'}", ""
    return None, pod.status.message or pod.status.reason or "", ""


def _gone(before: AllocatedResource, now_text: str) -> AllocatedResource:
    return AllocatedResource(
        name=before.name,
        uid=before.uid,
        rank=before.rank,
        node=before.node,
        address=before.address,
        phase=ResourcePhase.TERMINATED,
        reason=EndReason.DELETED,
        message=_LOST,
        started_at=before.started_at,
        finished_at=now_text,
    )


def _started_at(pod: core.Pod) -> str | None:
    main = next(iter(pod.status.container_statuses), None)
    state = main.state if main is not None else None
    if state is None:
        return None
    if state.running is not None:
        return state.running.started_at
    return state.terminated.started_at if state.terminated is not None else None
