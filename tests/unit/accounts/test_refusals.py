"""What was refused is on record, but nobody can fill the records by being refused."""

import pytest

from muster.accounts.audit import By, Outcome
from muster.accounts.callers import Caller, UserId
from muster.testing.accounts import Ground

pytestmark = pytest.mark.postgres
BY = By(Caller(UserId(0), ""), "10.1.1.1")


async def test_a_refusal_is_written_with_the_next_others(ground: Ground) -> None:
    refusals, audit = ground.services.refusals, ground.services.audit
    refusals.note(BY, "request.forbidden", "POST /api/v1/x", "may not")
    assert (await audit.entries(action="request.")).items == ()
    await refusals.once()
    (entry,) = (await audit.entries(action="request.")).items
    assert (entry.deed.target, entry.remote, entry.deed.outcome) == ("POST /api/v1/x", "10.1.1.1", Outcome.REFUSED)


async def test_a_flood_is_counted_but_not_written(ground: Ground) -> None:
    refusals, audit = ground.services.refusals, ground.services.audit
    for _ in range(10_000):
        refusals.note(BY, "request.unknown", "GET /", "Unauthorized")
    await refusals.once()
    found = (await audit.entries(action="request")).items
    assert len(found) == 101
    assert found[0].deed.detail == "9900 more were refused"
    await refusals.once()
    assert (await audit.entries(action="request")).total == 101


async def test_a_flood_that_lasts_fills_no_disk(ground: Ground) -> None:
    refusals, audit = ground.services.refusals, ground.services.audit
    for _ in range(600):
        for _ in range(50):
            refusals.note(BY, "request.unknown", "GET /", "Unauthorized")
        await refusals.once()
        ground.clock.seconds += 1
    written = (await audit.entries(action="request.")).total
    assert 1200 <= written <= 1300
    ground.clock.seconds += 60
    refusals.note(BY, "request.forbidden", "POST /x", "may not")
    await refusals.once()
    assert (await audit.entries(action="request.")).total == written + 1
