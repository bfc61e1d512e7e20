"""The table of pods. STATUS tells what a person wants to know first, which is seldom the phase."""

from collections.abc import Sequence

from muster.api import core
from muster.api.core import ContainerStateTerminated, ContainerStatus
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import JSON
from muster.server.columns.printing import AGE, NAME, NONE, Column, Printer, age, condition, instant, since

_COLUMNS = (
    NAME,
    Column("Ready", description="Containers that are ready, of all containers."),
    Column("Status", description="What the pod is doing, or what keeps it from doing it."),
    Column("Restarts", description="How often containers were restarted, and when last."),
    AGE,
    Column("IP", priority=1),
    Column("Node", priority=1),
    Column("Nominated Node", priority=1),
    Column("Readiness Gates", priority=1),
)


def _cells(found: Object, now: Instant) -> Sequence[JSON]:
    pod = found.read(core.Pod)
    spec, status = pod.spec, pod.status
    staying = _staying(pod)
    ready = sum(s.ready for s in status.container_statuses) + sum(
        s.ready for s in status.init_container_statuses if s.name in staying
    )
    gates = [gate.condition_type for gate in spec.readiness_gates]
    passed = sum(condition(status.conditions, gate) == "True" for gate in gates)
    return (
        found.key.name,
        f"{ready}/{len(spec.containers) + len(staying)}",
        reason(pod),
        _restarts(pod, now),
        age(found, now),
        status.pod_ip or NONE,
        spec.node_name or NONE,
        status.nominated_node_name or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    )


PRINTER = Printer(_COLUMNS, _cells)


def reason(pod: core.Pod) -> str:
    """What STATUS says: by the same precedence as kubectl users know it."""
    status = pod.status
    is_lost = status.reason == "NodeLost"
    if pod.metadata.deletion_timestamp is not None:
        if is_lost:
            return "Unknown"
        if status.phase not in ("Succeeded", "Failed"):
            return "Terminating"
    initial = _initial_reason(pod)
    if initial is not None and condition(status.conditions, "Initialized") != "True":
        return initial
    return _regular_reason(pod)


def _initial_reason(pod: core.Pod) -> str | None:
    """What the first init container that is not done says; None when all are."""
    staying = _staying(pod)
    for index, status in enumerate(pod.status.init_container_statuses):
        state = status.state or core.ContainerState()
        if state.terminated is not None:
            if state.terminated.exit_code == 0:
                continue
            return f"Init:{_ending(state.terminated)}"
        if status.name in staying and status.started:
            continue
        if state.waiting is not None and state.waiting.reason not in (None, "", "PodInitializing"):
            return f"Init:{state.waiting.reason}"
        return f"Init:{index}/{len(pod.spec.init_containers)}"
    return None


def _regular_reason(pod: core.Pod) -> str:
    status = pod.status
    found = status.reason or status.phase or "Unknown"
    if any(c.type == "PodScheduled" and c.reason == "SchedulingGated" for c in status.conditions):
        found = "SchedulingGated"
    is_running = False
    # From the last to the first: where several have something to say, the first container is heard.
    for container in reversed(status.container_statuses):
        state = container.state or core.ContainerState()
        if state.waiting is not None and state.waiting.reason:
            found = state.waiting.reason
        elif state.terminated is not None:
            found = _ending(state.terminated)
        elif container.ready and state.running is not None:
            is_running = True
    if found == "Completed" and is_running:
        return "Running" if condition(status.conditions, "Ready") == "True" else "NotReady"
    return found


def _ending(terminated: ContainerStateTerminated) -> str:
    if terminated.reason:
        return terminated.reason
    return f"Signal:{terminated.signal}" if terminated.signal else f"ExitCode:{terminated.exit_code}"


def _staying(pod: core.Pod) -> frozenset[str]:
    """Init containers that keep running beside the regular ones."""
    return frozenset(c.name for c in pod.spec.init_containers if c.restart_policy == "Always")


def _restarts(pod: core.Pod, now: Instant) -> str:
    status = pod.status
    is_initializing = _initial_reason(pod) is not None and condition(status.conditions, "Initialized") != "True"
    staying = _staying(pod)
    counted: list[ContainerStatus] = [s for s in status.init_container_statuses if is_initializing or s.name in staying]
    if not is_initializing:
        counted += status.container_statuses
    restarts = sum(s.restart_count for s in counted)
    ends = [s.last_state.terminated.finished_at for s in counted if s.last_state and s.last_state.terminated]
    latest = max((end for end in ends if instant(end) is not None), key=lambda end: instant(end) or 0, default=None)
    return f"{restarts} ({since(latest, now)} ago)" if restarts and latest else str(restarts)
