"""What of a pod's life is told to people as Kubernetes Events. Pure.

Only trouble: what starts and ends well is in the pod's status, and thousands of short pods must not write thousands of
events. The same thing said again raises a count (see `runtime.recording`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from muster.agent import lifecycle
from muster.agent.messages import Event, Exited, Probed, Refused, Unprepared
from muster.agent.runtime import Exit
from muster.agent.states import Container, Phase, State
from muster.runtime.recording import EventType

_UNSTARTED = ("ContainerCannotRun", "StartError")


class Told(NamedTuple):
    type: EventType
    reason: str
    message: str


def tell(before: State, event: Event, after: State) -> Iterator[Told]:
    """What to say about one step of the lifecycle, with the reasons and words of a kubelet."""
    if after.is_abandoned:
        return  # there is nobody left to tell it about
    match event:
        case Refused(_, reason, message) if not before.is_over:
            yield Told("Warning", reason, message)
        case Unprepared(_, name, _, _, message, told):
            yield Told("Warning", told, f"Error: {message}" if told == "Failed" else message)
        case Exited(_, name, attempt, end) if _find(before, name).attempt == attempt and _find(before, name).is_alive:
            yield from _tell_end(after, name, end)
        case Probed(_, name, _, probe, False) if _is_new_in(before, after, name, Phase.STOPPING):
            if probe == "postStart":
                yield Told("Warning", "FailedPostStartHook", f"PostStartHook of container {name} failed")
            else:
                yield Told("Normal", "Killing", f"Container {name} failed {probe} probe, will be restarted")
        case _:
            pass
    if before.stop is None and after.stop is not None and after.stop.reason == "DeadlineExceeded":
        for container in after.containers:
            if container.phase is Phase.STOPPING:
                yield Told("Normal", "Killing", f"Stopping container {container.name}: {after.stop.message}")


def _tell_end(after: State, name: str, end: Exit) -> Iterator[Told]:
    if end.reason in _UNSTARTED:
        yield Told("Warning", "Failed", f"Error: {end.message}")
    if end.reason == "OOMKilled":
        yield Told("Warning", "OOMKilling", f"Container {name} used more memory than its limit and was killed")
    if _is_backing_off(after, name):
        yield Told("Warning", "BackOff", f"Back-off restarting failed container {name}")


def _find(state: State, name: str) -> Container:
    return next(container for container in state.containers if container.name == name)


def _is_backing_off(state: State, name: str) -> bool:
    container = _find(state, name)
    is_pending = container.phase is Phase.EXITED and lifecycle.is_restart_pending(state, container)
    return is_pending and lifecycle.backoff_seconds(container.crashes) > 0


def _is_new_in(before: State, after: State, name: str, phase: Phase) -> bool:
    return _find(before, name).phase is not phase and _find(after, name).phase is phase
