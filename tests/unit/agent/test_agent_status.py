"""What the status says for each state."""

from typing import Any

import msgspec

from muster.agent import lifecycle, status
from muster.agent.messages import Admitted, Event, Exited, Refused, Started, Unprepared
from muster.agent.runtime import Exit
from muster.agent.states import ContainerPlan, Plan, Role
from muster.api import core
from muster.api.meta import Instant
from muster.api.raw import Document

T0 = Instant(1_767_323_045.0)  # 2026-01-02T03:04:05Z
PLACE = status.Place("10.0.0.7", "u-1")


def pod() -> core.Pod:
    document = {"spec": {"containers": [{"name": "main", "image": "host"}], "initContainers": [{"name": "one"}]}}
    return msgspec.convert(document, core.Pod)


def rendered(*events: Event, policy: str = "Never", init: bool = False, previous: Document | None = None) -> Document:
    containers = [ContainerPlan("main", Role.MAIN)]
    if init:
        containers.insert(0, ContainerPlan("one", Role.INIT))
    state = lifecycle.begin(Plan(tuple(containers), policy))
    for event in (Admitted(T0, T0), *events):
        state, _ = lifecycle.step(state, event)
    return status.render(pod(), state, PLACE, previous or {}, T0)


def started(attempt: int = 0, name: str = "main") -> Started:
    return Started(T0, name, attempt, T0)


def exited(code: int, *, attempt: int = 0, signal: int = 0, reason: str = "Error", name: str = "main") -> Exited:
    return Exited(Instant(T0 + 2), name, attempt, Exit(code, signal, reason, "", T0, Instant(T0 + 2)))


def conditions(document: Document) -> dict[str, tuple[str, Any]]:
    return {c["type"]: (c["status"], c.get("reason")) for c in document["conditions"]}


def test_before_it_runs() -> None:
    found = rendered()
    assert found["phase"] == "Pending"
    assert found["startTime"] == "2026-01-02T03:04:05Z"
    assert (found["hostIP"], found["podIP"]) == ("10.0.0.7", "10.0.0.7")
    assert found["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert conditions(found)["Ready"] == ("False", "ContainersNotReady")


def test_while_init_containers_run() -> None:
    found = rendered(started(name="one"), init=True)
    assert "running" in found["initContainerStatuses"][0]["state"]
    assert found["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert conditions(found)["Initialized"] == ("False", "ContainersNotInitialized")


def test_running() -> None:
    found = rendered(started())
    assert found["phase"] == "Running"
    container = found["containerStatuses"][0]
    assert container["state"] == {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
    assert (container["ready"], container["started"], container["restartCount"]) == (True, True, 0)
    assert container["image"] == "host"
    assert conditions(found) == {
        "Initialized": ("True", None),
        "ContainersReady": ("True", None),
        "Ready": ("True", None),
    }


def test_succeeded() -> None:
    found = rendered(started(), exited(0, reason="Completed"))
    assert found["phase"] == "Succeeded"
    assert found["containerStatuses"][0]["state"]["terminated"] == {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": "2026-01-02T03:04:05Z",
        "finishedAt": "2026-01-02T03:04:07Z",
        "containerID": "muster://u-1/main/0",
    }
    assert conditions(found)["Ready"] == ("False", "PodCompleted")


def test_killed_for_memory() -> None:
    found = rendered(started(), exited(137, signal=9, reason="OOMKilled"))
    ended = found["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["signal"], ended["reason"]) == (137, 9, "OOMKilled")
    assert found["phase"] == "Failed"
    assert conditions(found)["Ready"] == ("False", "PodFailed")


def test_crash_loop() -> None:
    found = rendered(started(), exited(1), started(1), exited(2, attempt=1), policy="Always")
    container = found["containerStatuses"][0]
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert "10s" in container["state"]["waiting"]["message"]
    assert container["lastState"]["terminated"]["exitCode"] == 2
    assert container["lastState"]["terminated"]["containerID"].endswith("/main/1")
    assert container["restartCount"] == 1
    assert found["phase"] == "Running"


def test_after_a_restart_the_last_end_is_remembered() -> None:
    container = rendered(started(), exited(1), started(1), policy="Always")["containerStatuses"][0]
    assert "running" in container["state"]
    assert container["lastState"]["terminated"]["exitCode"] == 1
    assert container["lastState"]["terminated"]["containerID"].endswith("/main/0")


def test_missing_configuration() -> None:
    found = rendered(Unprepared(T0, "main", 0, "CreateContainerConfigError", 'configmap "x" not found'))
    waiting = found["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'configmap "x" not found'}
    assert found["phase"] == "Pending"


def test_refused() -> None:
    state = lifecycle.begin(Plan((ContainerPlan("main", Role.MAIN),)))
    state, _ = lifecycle.step(state, Refused(T0, "OutOfcpu", "no room"))
    found = status.render(pod(), state, PLACE, {}, T0)
    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "OutOfcpu", "no room")
    assert "startTime" not in found


def test_times_of_conditions_move_only_when_they_change() -> None:
    before = rendered()
    later = Instant(T0 + 60)
    state = lifecycle.begin(Plan((ContainerPlan("main", Role.MAIN),)))
    for event in (Admitted(T0, T0), started()):
        state, _ = lifecycle.step(state, event)
    found = status.render(pod(), state, PLACE, before, later)
    times = {c["type"]: c["lastTransitionTime"] for c in found["conditions"]}
    assert times == {
        "Initialized": "2026-01-02T03:04:05Z",
        "ContainersReady": "2026-01-02T03:05:05Z",
        "Ready": "2026-01-02T03:05:05Z",
    }
    ready = next(c for c in found["conditions"] if c["type"] == "Ready")
    assert ready["reason"] is None, "a reason that no longer holds is taken away by the merge"
