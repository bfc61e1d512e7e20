"""Verdicts: how many answers in a row they take, and when they are asked for."""

from collections.abc import Iterator

from muster.agent import probes
from muster.agent.probes import Verdict
from muster.api import core
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time


class Answers:
    def __init__(self, clock: VirtualClock, answers: str) -> None:
        self.clock = clock
        self.asked_at: list[float] = []
        self._answers: Iterator[str] = iter(answers)

    async def ask(self, _probe: core.Probe) -> bool:
        self.asked_at.append(self.clock.monotonic())
        return next(self._answers) == "+"


async def verdicts(name: str, probe: core.Probe, clock: VirtualClock, answers: Answers, count: int) -> list[Verdict]:
    found: list[Verdict] = []
    async for verdict in probes.watch(name, probe, answers.ask, clock):
        found.append(verdict)
        if len(found) == count:
            break
    return found


@on_virtual_time
async def test_standard_numbers(clock: VirtualClock) -> None:
    answers = Answers(clock, "+--+---")
    found = await verdicts("readiness", core.Probe(), clock, answers, 2)
    assert found == [Verdict("readiness", True), Verdict("readiness", False)]
    assert answers.asked_at == [0, 10, 20, 30, 40, 50, 60], "every ten seconds; three failures in a row, one success"


@on_virtual_time
async def test_own_numbers(clock: VirtualClock) -> None:
    probe = core.Probe(initial_delay_seconds=5, period_seconds=2, success_threshold=2, failure_threshold=1)
    answers = Answers(clock, "-+-++")
    found = await verdicts("readiness", probe, clock, answers, 2)
    assert [verdict.is_good for verdict in found] == [False, True]
    assert answers.asked_at == [5, 7, 9, 11, 13]


@on_virtual_time
async def test_liveness_says_nothing_until_it_fails_and_then_ends(clock: VirtualClock) -> None:
    found = await verdicts("liveness", core.Probe(failure_threshold=2), clock, Answers(clock, "++-+--"), 99)
    assert found == [Verdict("liveness", False)]


@on_virtual_time
async def test_startup_ends_with_its_first_verdict(clock: VirtualClock) -> None:
    found = await verdicts("startup", core.Probe(), clock, Answers(clock, "-+"), 99)
    assert found == [Verdict("startup", True)]
