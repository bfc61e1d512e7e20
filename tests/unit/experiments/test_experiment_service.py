"""Experiments that run: over real records and allocations, with pretended programs."""

from sqlalchemy import select
from tests.unit.experiments.experiment_worlds import BAD, Plan, World, a_config, alive, programs

from muster.experiments.states import ExperimentState, TrialState
from muster.records.tables_tasks import TASKS
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time

E, T = ExperimentState, TrialState


@on_virtual_time
async def test_a_single_trial_runs_to_its_end(clock: VirtualClock) -> None:
    world = World(clock, plan=lambda trial, run: Plan(seconds=10, metric=0.5))
    async with programs(world), alive(world) as life:
        id = await world.make()
        life.conductors.begin(id)
        ended = await world.until_ended(id)
        await clock.sleep(1)
    assert (ended.state, ended.progress, ended.trial_count) == (E.COMPLETED, 1.0, 1)
    assert 10.0 <= ended.slot_seconds < 11.0
    [trial] = await world.trials(id)
    assert (trial.state, trial.run, trial.restarts) == (T.COMPLETED, 1, 0)
    assert trial.task.startswith(f"{id}.")
    assert world.lines.ends == [trial.task]

    query = select(TASKS.c.type).where(TASKS.c.id == trial.task, TASKS.c.ended.is_not(None))
    assert await world.database.read(lambda connection: connection.scalar(query)) == "TRIAL"


@on_virtual_time
async def test_a_program_that_breaks_is_run_again_as_often_as_it_may(clock: VirtualClock) -> None:
    world = World(clock, plan=lambda trial, run: Plan(exit=BAD))
    async with programs(world), alive(world) as life:
        id = await world.make()
        life.conductors.begin(id)
        ended = await world.until_ended(id)
    [trial] = await world.trials(id)
    assert (ended.state, trial.state, trial.run, trial.restarts) == (E.ERROR, T.ERROR, 3, 2)
    assert "has failed" in world.lines.told[-1][2]


@on_virtual_time
async def test_a_search_of_many_trials_keeps_to_its_concurrency(clock: VirtualClock) -> None:
    searcher = {"name": "random", "max_trials": 20, "max_concurrent_trials": 3}
    world = World(clock, plan=lambda trial, run: Plan(metric=float(trial)))
    async with programs(world), alive(world) as life:
        id = await world.make(a_config(searcher))
        life.conductors.begin(id)
        ended = await world.until_ended(id)
    assert (ended.state, ended.trial_count, world.most_at_once) == (E.COMPLETED, 20, 3)
    assert {trial.state for trial in await world.trials(id)} == {T.COMPLETED}


@on_virtual_time
async def test_max_slots_holds_trials_back(clock: VirtualClock) -> None:
    searcher = {"name": "random", "max_trials": 6, "max_concurrent_trials": 4}
    world = World(clock)
    async with programs(world), alive(world) as life:
        config = a_config(searcher, resources={"slots_per_trial": 2})
        id = await world.make(config, max_slots=2)
        life.conductors.begin(id)
        await world.until_ended(id)
    assert world.most_at_once == 1
