"""Which steps of a pod's life are told as Events."""

import pytest

from muster.agent import lifecycle, telling
from muster.agent.messages import (
    Abandoned,
    Admitted,
    Event,
    Exited,
    Probed,
    Refused,
    Started,
    StopRequested,
    Tick,
    Unprepared,
)
from muster.agent.runtime import Exit
from muster.agent.states import ContainerPlan, Plan, Role
from muster.agent.telling import Told
from muster.api.meta import Instant

T0 = Instant(1_000_000.0)
MAIN = ContainerPlan("main", Role.MAIN, has_liveness=True)
BACK_OFF = Told("Warning", "BackOff", "Back-off restarting failed container main")


def at(seconds: float) -> Instant:
    return Instant(T0 + seconds)


def run(attempt: int = 0, when: float = 0) -> Event:
    return Started(at(when), "main", attempt, at(when))


def ended(code: int, attempt: int = 0, when: float = 1, reason: str = "", message: str = "") -> Event:
    return Exited(at(when), "main", attempt, Exit(code, 0, reason, message, at(when), at(when)))


def told(*events: Event, policy: str = "Always", deadline: float | None = None) -> list[Told]:
    state = lifecycle.begin(Plan((MAIN,), policy, deadline))
    said: list[Told] = []
    for event in events:
        after, _ = lifecycle.step(state, event)
        said += telling.tell(state, event, after)
        state = after
    return said


ADMITTED = Admitted(T0, T0)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([ADMITTED, run(), ended(0)], []),
        ([ADMITTED, run(), ended(1)], []),
        ([ADMITTED, run(), StopRequested(at(1), 5.0), ended(143, when=2)], []),
        ([ADMITTED, run(), ended(1), run(1, 1), ended(1, 1, 2)], [BACK_OFF]),
        ([ADMITTED, run(), ended(1), run(1, 1), ended(1, 1, 2), ended(1, 1, 2)], [BACK_OFF]),
        (
            [ADMITTED, run(), ended(137, reason="OOMKilled")],
            [Told("Warning", "OOMKilling", "Container main used more memory than its limit and was killed")],
        ),
        (
            [ADMITTED, ended(127, reason="ContainerCannotRun", message="no such command")],
            [Told("Warning", "Failed", "Error: no such command")],
        ),
        (
            [ADMITTED, Unprepared(at(1), "main", 0, "CreateContainerConfigError", 'secret "x" not found')],
            [Told("Warning", "Failed", 'Error: secret "x" not found')],
        ),
        (
            [ADMITTED, Unprepared(at(1), "main", 0, "CreateContainerConfigError", "no volume", "FailedMount")],
            [Told("Warning", "FailedMount", "no volume")],
        ),
        ([Refused(T0, "OutOfcpu", "too much")], [Told("Warning", "OutOfcpu", "too much")]),
        (
            [ADMITTED, run(), Probed(at(5), "main", 0, "liveness", is_good=False)],
            [Told("Normal", "Killing", "Container main failed liveness probe, will be restarted")],
        ),
        ([ADMITTED, run(), Abandoned(at(1), 5.0), ended(137, reason="OOMKilled")], []),
    ],
)
def test_only_trouble_is_told(events: list[Event], said: list[Told]) -> None:
    assert told(*events) == said


def test_a_deadline_is_told_once() -> None:
    said = told(ADMITTED, run(), Tick(at(10)), Tick(at(11)), ended(143, when=12), deadline=10)
    assert [(one.type, one.reason) for one in said] == [("Normal", "Killing")]
    assert "longer than the specified deadline" in said[0].message
