"""Experiments that run: over real records and allocations, with pretended programs."""

from sqlalchemy import select
from tests.unit.experiments.experiment_worlds import BAD, Plan, World, a_config, alive, programs

from muster.api import errors
from muster.api.meta import Instant
from muster.experiments import inbox
from muster.experiments.budgets import Budgets, due
from muster.experiments.experiment import StopAsked
from muster.experiments.inbox import EarlyExit, Gave
from muster.experiments.states import ExperimentState, TrialState
from muster.records.tables_tasks import TASKS
from muster.runtime.clock import VirtualClock
from muster.tasks.log_lines import Line, Origin
from muster.testing.staging import running
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


@on_virtual_time
async def test_a_trial_that_its_search_gives_up_is_stopped_by_the_signal_and_its_slot_is_free_at_once(
    clock: VirtualClock,
) -> None:
    """Programs report once, and would train for a day; the search keeps one half of them."""
    searcher = {
        "name": "async_halving", "max_trials": 4, "max_concurrent_trials": 2, "num_rungs": 2, "divisor": 2.0,
        "max_time": 2, "time_metric": "steps",
    }  # fmt: skip
    world = World(clock, slots=2)
    async with programs(world), alive(world) as life:
        id = await world.make(a_config(searcher))
        world.plan = lambda trial, run: Plan(seconds=86_400.0)
        life.conductors.begin(id)
        await clock.sleep(2)
        for metric, trial in enumerate(await world.trials(id)):
            await world.report(trial, float(metric), 1.0)
        await clock.sleep(3)
        trials = await world.trials(id)
        assert [trial.state for trial in trials] == [T.ACTIVE, T.COMPLETED, T.ACTIVE]
        assert trials[1].run == trials[2].run == 1
        await life.conductors.tell(id, StopAsked(E.STOPPING_KILLED, "enough"))
        await world.until_ended(id)


@on_virtual_time
async def test_a_program_that_does_not_heed_the_signal_is_ended_after_its_time(clock: VirtualClock) -> None:
    world = World(clock, plan=lambda trial, run: Plan(seconds=86_400.0, heeds=False))
    async with programs(world), alive(world) as life:
        id = await world.make()
        life.conductors.begin(id)
        await clock.sleep(2)
        await life.conductors.tell(id, StopAsked(E.STOPPING_CANCELED, "by its user"))
        await clock.sleep(50)
        assert (await world.experiment(id)).state is E.STOPPING_CANCELED
        await clock.sleep(20)
        assert (await world.experiment(id)).state is E.CANCELED


@on_virtual_time
async def test_a_program_that_gives_up_and_does_not_leave_is_ended_soon(clock: VirtualClock) -> None:
    world = World(clock, plan=lambda trial, run: Plan(seconds=86_400.0))
    async with programs(world), alive(world) as life:
        id = await world.make()
        life.conductors.begin(id)
        await clock.sleep(2)
        [trial] = await world.trials(id)
        gave = Gave(trial.id, EarlyExit.INVALID_HP)
        await world.database.write(lambda connection: inbox.post(connection, id, gave))
        life.conductors.wake(id)
        await clock.sleep(9)
        assert (await world.trials(id))[0].state is T.ACTIVE
        await clock.sleep(4)
    assert [trial.state for trial in await world.trials(id)] == [T.COMPLETED]


@on_virtual_time
async def test_a_start_that_fails_for_a_while_is_tried_again_and_one_that_can_never_succeed_is_not(
    clock: VirtualClock,
) -> None:
    world = World(clock)
    world.launcher.broken = [errors.Unavailable("not now"), OSError("the disk is away")]
    async with programs(world), alive(world) as life:
        patient = await world.make(a_config(max_restarts=0))
        life.conductors.begin(patient)
        assert (await world.until_ended(patient)).state is E.COMPLETED
        world.launcher.broken = [errors.NotFound("there is no such pool")]
        hopeless = await world.make()
        life.conductors.begin(hopeless)
        assert (await world.until_ended(hopeless)).state is E.ERROR
    assert [trial.run for trial in await world.trials(patient)] == [3]
    assert "no such pool" in " ".join(text for _, _, text in world.lines.told)


@on_virtual_time
async def test_records_that_are_away_for_a_moment_lose_nothing(clock: VirtualClock) -> None:
    world = World(clock, plan=lambda trial, run: Plan(seconds=5.0, metric=1.0))
    async with programs(world), alive(world) as life:
        id = await world.make(a_config({"name": "random", "max_trials": 4, "max_concurrent_trials": 2}))
        life.conductors.begin(id)
        for _ in range(4):
            await clock.sleep(2)
            world.database.failures = [errors.Unavailable("away")] * 2
        ended = await world.until_ended(id)
    assert (ended.state, ended.trial_count) == (E.COMPLETED, 4)


@on_virtual_time
async def test_log_policies_end_retries_and_keep_trials_off_a_node(clock: VirtualClock) -> None:
    policies = [
        {"name": "bad node", "pattern": "ECC", "action": "exclude_node"},
        {"name": "hopeless", "pattern": "^out of luck", "action": "cancel_retries"},
        {"name": "off", "pattern": None, "action": None},
    ]
    world = World(clock, plan=lambda trial, run: Plan(exit=BAD))
    async with programs(world), alive(world) as life:
        id = await world.make(a_config(max_restarts=5, log_policies=policies))
        life.conductors.begin(id)
        while not world.begun:
            await clock.sleep(0.1)
        [trial] = await world.trials(id)
        world.lines.written = [
            (Origin(f"{trial.task}.1", agent="n7"), Line(1, "an ECC error")),
            (Origin(f"{trial.task}.2", agent="n8"), Line(2, "out of luck")),
        ]
        ended = await world.until_ended(id)
    [trial] = await world.trials(id)
    assert (ended.state, trial.run, trial.restarts) == (E.ERROR, 2, 1)
    assert world.launcher.excluded == [(), ("n7",)]


@on_virtual_time
async def test_a_budget_ends_a_search_gracefully(clock: VirtualClock) -> None:
    """A tenth of an hour on two slots at a time: after three minutes."""
    world = World(clock, slots=2, plan=lambda trial, run: Plan(seconds=60.0))
    searcher = {"name": "random", "max_trials": 50, "max_concurrent_trials": 2}
    resources = {"slots_per_trial": 1, "budget_gpu_hours": 0.1}
    async with programs(world), alive(world) as life:
        budgets = Budgets(life.conductors, life.service, clock)
        async with running(budgets.run):
            id = await world.make(a_config(searcher, resources=resources))
            life.conductors.begin(id)
            ended = await world.until_ended(id)
    assert ended.state is E.COMPLETED
    assert "budget of 0.1 GPU-hours" in ended.notes
    assert 360.0 <= ended.slot_seconds < 366.0
    assert {trial.state for trial in await world.trials(id)} == {T.COMPLETED}


def test_when_a_budget_is_spent() -> None:
    now = Instant(1000.0)
    assert due(100.0, 40.0, [], now) is None
    assert due(100.0, 100.0, [], now) == now
    assert due(100.0, 40.0, [(Instant(990.0), 4)], now) == Instant(1005.0)
    assert due(100.0, 40.0, [(Instant(980.0), 4)], now) == now
