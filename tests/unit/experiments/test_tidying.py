"""Checkpoints that need not be kept are removed, sooner or later."""

import asyncio
from uuid import UUID

from sqlalchemy import Connection, select, update
from tests.unit.experiments.checkpoint_worlds import Asked, filled

from muster.accounts.audit import By
from muster.api import errors
from muster.experiments.checkpoint_records import NewCheckpoint
from muster.experiments.checkpoints import Checkpoints
from muster.experiments.experiment_records import Experiment
from muster.experiments.removals import Removal
from muster.experiments.tidying import Tidier
from muster.records.tables_experiments import EXPERIMENTS
from muster.runtime.clock import SystemClock
from muster.testing.inline_database import InlineDatabase
from muster.testing.staging import running


class Flaky(Asked):
    """Fails the first time."""

    tries = 0

    async def start(self, by: By, experiment: Experiment, wanted: Removal) -> list[str]:
        self.tries += 1
        if self.tries == 1:
            raise errors.TooManyRequests("too many wait to be made")
        return await super().start(by, experiment, wanted)


async def set_state(database: InlineDatabase, state: str, *, is_untidy: bool = True) -> None:
    def change(connection: Connection) -> None:
        connection.execute(update(EXPERIMENTS).values(state=state, is_untidy=is_untidy))

    await database.write(change)


async def is_untidy(database: InlineDatabase) -> bool | None:
    return await database.read(lambda connection: connection.scalar(select(EXPERIMENTS.c.is_untidy)))


async def settled(database: InlineDatabase, tidier: Tidier) -> None:
    async with running(tidier.run), asyncio.timeout(5):
        while await is_untidy(database):
            await asyncio.sleep(0.005)


async def test_what_has_ended_is_tidied_once() -> None:
    database, clock, asked = await filled(), SystemClock(), Flaky()
    checkpoints = Checkpoints(database, clock, asked, "c")  # type: ignore[arg-type]
    for number in (1, 2):
        new = NewCheckpoint(str(UUID(int=number)), "1.a", "1.a.1", {"x": 1}, {"steps_completed": number})
        await checkpoints.report(new)
    tidier = Tidier(database, clock, checkpoints)
    await set_state(database, "ACTIVE")
    async with running(tidier.run):
        await asyncio.sleep(0.05)
        assert asked.tries == 0  # it may still need them
    await set_state(database, "COMPLETED")
    async with running(tidier.run), asyncio.timeout(5):
        while not asked.tries:
            await asyncio.sleep(0.005)
    assert await is_untidy(database)  # it did not go well, and is tried again
    await settled(database, tidier)
    assert [removal.uuids for _, removal in asked.removals] == [[str(UUID(int=1))]]
    await settled(database, Tidier(database, clock, checkpoints))
    assert len(asked.removals) == 1
