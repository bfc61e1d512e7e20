"""The server is killed between any two durable writes: its searches decide the same, and nothing runs twice."""

import asyncio

import pytest
from tests.unit.experiments.experiment_worlds import BAD, Plan, World, a_config, alive, programs

from muster.api.raw import Document
from muster.experiments.states import ExperimentState
from muster.runtime.clock import VirtualClock, run_virtual

ASHA = {
    "name": "async_halving",
    "max_trials": 6,
    "max_concurrent_trials": 2,
    "num_rungs": 2,
    "divisor": 2.0,
    "max_time": 4,
    "time_metric": "steps",
}


def plan(trial: int, run: int) -> Plan:
    """One trial fails at first; they all have other metrics, and other lengths."""
    if trial == 1 and run == 1:
        return Plan(seconds=0.5, exit=BAD)
    return Plan(seconds=0.5 + trial % 3, metric=float(trial * 7 % 5))


async def outcome(world: World, config: Document, crash_after: int | None) -> tuple[object, ...]:
    """How it all ended. Where it was killed, the next life begins some seconds later."""
    async with programs(world):
        async with alive(world) as life:
            id = await world.make(config)
            world.database.arm(crash_after)
            life.conductors.begin(id)
            ended = asyncio.ensure_future(world.until_ended(id))
            crashed = asyncio.ensure_future(world.database.crashed.wait())
            await asyncio.wait([ended, crashed], return_when=asyncio.FIRST_COMPLETED)
            was_crashed = crashed.done()
            for task in (ended, crashed):
                task.cancel()
        world.database.arm(None)
        await world.clock.sleep(3 if was_crashed else 0)
        async with alive(world):
            experiment = await world.until_ended(id)
            await world.clock.sleep(2)
    trials = await world.trials(id)
    assert not world.machine.entries, "nothing is left"
    assert world.begun == list(dict.fromkeys(world.begun)), "no run was begun twice"
    return experiment.state, [(trial.hparams, trial.state, trial.restarts, trial.run) for trial in trials]


def test_any_crash_leads_to_the_same_end() -> None:
    async def whole(clock: VirtualClock) -> tuple[tuple[object, ...], int]:
        world = World(clock, slots=1, plan=plan)
        found = await outcome(world, a_config({"name": "random", "max_trials": 2, "max_concurrent_trials": 1}), None)
        return found, world.database.writes

    expected, writes = run_virtual(whole)
    assert expected[0] is ExperimentState.COMPLETED
    assert writes > 20
    for crash_after in range(writes):

        async def crashing(clock: VirtualClock, crash_after: int = crash_after) -> tuple[object, ...]:
            world = World(clock, slots=1, plan=plan)
            config = a_config({"name": "random", "max_trials": 2, "max_concurrent_trials": 1})
            return await outcome(world, config, crash_after)

        state, trials = run_virtual(crashing)
        assert state is expected[0], crash_after
        assert [found[:3] for found in trials] == [found[:3] for found in expected[1]], crash_after  # type: ignore[attr-defined]


@pytest.mark.parametrize("crash_after", range(5, 100, 19))
def test_a_search_that_stops_trials_early_survives_crashes(crash_after: int) -> None:
    async def crashing(clock: VirtualClock) -> tuple[object, ...]:
        return await outcome(World(clock, slots=2, plan=plan), a_config(ASHA), crash_after)

    state, trials = run_virtual(crashing)
    assert state is ExperimentState.COMPLETED
    assert len(trials) == 6  # type: ignore[arg-type]
