"""A pod's status as the lifecycle's state says it. Pure: the same state always renders the same document.

Only what the node owns is rendered: conditions that others set (PodScheduled) survive because the patch is strategic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.agent import lifecycle
from muster.agent.runtime import Exit
from muster.agent.states import Container, Phase, PodPhase, Role, State
from muster.api import core, raw, timestamps
from muster.api.meta import Instant
from muster.api.raw import Document


@dataclass(frozen=True, slots=True)
class Place:
    """Where the pod runs."""

    host_ip: str
    uid: str


def render(pod: core.Pod, state: State, place: Place, previous: Document, now: Instant) -> Document:
    """The status to report. `previous` is the last known one: the times of conditions that did not change are kept."""
    images = {c.name: c.image or "" for c in (*pod.spec.init_containers, *pod.spec.containers)}
    status: Document = {
        "phase": str(state.phase),
        "conditions": _conditions(state, previous, now),
        "hostIP": place.host_ip,
        "hostIPs": [{"ip": place.host_ip}],
        "podIP": place.host_ip,
        "podIPs": [{"ip": place.host_ip}],
    }
    if state.start_time is not None:
        status["startTime"] = timestamps.to_text(state.start_time)
    if state.reason:
        status["reason"] = state.reason
    if state.message:
        status["message"] = state.message
    inits = [c for c in state.containers if c.role is not Role.MAIN]
    mains = [c for c in state.containers if c.role is Role.MAIN]
    if inits:
        status["initContainerStatuses"] = [_container(c, state, place, images) for c in inits]
    status["containerStatuses"] = [_container(c, state, place, images) for c in mains]
    return status


def _container(container: Container, state: State, place: Place, images: Mapping[str, str]) -> Document:
    identity = f"muster://{place.uid}/{container.name}/{container.attempt}" if container.attempt >= 0 else ""
    rendered: Document = {
        "name": container.name,
        "image": images.get(container.name, ""),
        "imageID": "",
        "ready": _is_ready(container),
        "started": container.is_started,
        "restartCount": max(container.attempt, 0),
        "state": _current(container, state, identity),
        "lastState": {},
    }
    if identity:
        rendered["containerID"] = identity
    before = container.exit if "waiting" in rendered["state"] and container.exit is not None else container.last_exit
    if before is not None:
        number = container.attempt if before is container.exit else container.attempt - 1
        rendered["lastState"] = _terminated(before, f"muster://{place.uid}/{container.name}/{number}")
    return rendered


def _is_ready(container: Container) -> bool:
    if container.role is Role.INIT:
        return container.phase is Phase.EXITED and container.exit is not None and container.exit.exit_code == 0
    return container.is_ready


def _current(container: Container, state: State, identity: str) -> Document:
    if container.phase in (Phase.RUNNING, Phase.STOPPING):
        return {"running": {"startedAt": timestamps.to_text(container.started_at or Instant(0))}}
    if container.phase is Phase.EXITED and container.exit is not None:
        if state.is_over or not lifecycle.is_restart_pending(state, container):
            return _terminated(container.exit, identity)
        wait = lifecycle.backoff_seconds(container.crashes)
        return _waiting("CrashLoopBackOff", f"back-off {wait:g}s restarting failed container={container.name}")
    if container.waiting_reason:
        return _waiting(container.waiting_reason, container.waiting_message)
    is_turn = container.phase is Phase.STARTING or state.is_initialized or not _has_inits(state)
    return _waiting("ContainerCreating" if is_turn else "PodInitializing", "")


def _has_inits(state: State) -> bool:
    return any(c.role is not Role.MAIN for c in state.containers)


def _waiting(reason: str, message: str) -> Document:
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def _terminated(end: Exit, identity: str) -> Document:
    told: Document = {
        "exitCode": end.exit_code,
        "reason": end.reason,
        "startedAt": timestamps.to_text(end.started_at),
        "finishedAt": timestamps.to_text(end.finished_at),
        "containerID": identity,
    }
    if end.signal:
        told["signal"] = end.signal
    if end.message:
        told["message"] = end.message
    return {"terminated": told}


def _conditions(state: State, previous: Document, now: Instant) -> list[Document]:
    known = {str(c.get("type")): c for c in raw.dig(previous, "conditions", default=[]) if isinstance(c, dict)}
    unready = [c.name for c in state.containers if c.role is not Role.INIT and not c.is_ready]
    uninitialized = [c.name for c in state.containers if c.role is not Role.MAIN and not _is_initialized(c)]
    is_initialized = state.is_initialized or not uninitialized
    rendered: list[Document] = []
    for kind in ("Initialized", "ContainersReady", "Ready"):
        condition: Document
        if kind == "Initialized":
            condition = {"status": _word(is_initialized)}
            if not is_initialized:
                condition["reason"] = "ContainersNotInitialized"
                condition["message"] = f"containers with incomplete status: {_listed(uninitialized)}"
            elif state.phase is PodPhase.SUCCEEDED:
                condition["reason"] = "PodCompleted"
        else:
            condition = {"status": _word(not unready and not state.is_over)}
            if state.is_over:
                condition["reason"] = "PodCompleted" if state.phase is PodPhase.SUCCEEDED else "PodFailed"
            elif unready:
                condition["reason"] = "ContainersNotReady"
                condition["message"] = f"containers with unready status: {_listed(unready)}"
        before = known.get(kind, {})
        kept = before.get("lastTransitionTime") if before.get("status") == condition["status"] else None
        rendered.append({"type": kind, **condition, "lastTransitionTime": kept or timestamps.to_text(now)})
        # Merged by type with what is stored, so what no longer holds is taken away by name.
        for field in ("reason", "message"):
            if field in before and field not in condition:
                rendered[-1][field] = None
    return rendered


def _is_initialized(container: Container) -> bool:
    return container.was_started if container.role is Role.SIDECAR else _is_ready(container)


def _word(is_true: bool) -> str:
    return "True" if is_true else "False"


def _listed(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"
