"""The first start, and what it leaves to the second."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.accounts.bootstrapping import bootstrap
from muster.accounts.passwords import Passwords
from muster.accounts.permissions import Permission
from muster.accounts.service import UNCATEGORIZED, Password
from muster.accounts.services import AccountServices
from muster.accounts.users import NewUser, UserFilter
from muster.api import errors
from muster.records import Database
from muster.testing.accounts import ADMIN, FAST, FixedPools, HandClock
from muster.testing.databases import fresh_database

pytestmark = pytest.mark.postgres


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with fresh_database(tmp_path) as found:
        yield found


def services(database: Database, passwords: Passwords) -> AccountServices:
    return AccountServices.over(database, HandClock(), passwords, FixedPools())


async def test_an_administrator_gets_a_password_that_is_shown_once_and_nobody_else_gets_in(database: Database) -> None:
    passwords = Passwords(FAST)
    ours = services(database, passwords)
    first = await bootstrap(database, HandClock(), passwords, ours.accounts)
    assert first is not None
    assert first.generated is not None
    login = await ours.accounts.login("admin", Password(first.generated))
    assert (login.user.id, login.user.is_admin) == (1, True)
    for username in ("determined", "admin"):
        with pytest.raises(errors.Unauthorized):
            await ours.accounts.login(username, Password(""))
    assert await bootstrap(database, HandClock(), passwords, ours.accounts, "Other0ne!") is None
    with pytest.raises(errors.Unauthorized):
        await ours.accounts.login("admin", Password("Other0ne!"))


async def test_a_password_that_is_given_is_for_both_users(database: Database) -> None:
    passwords = Passwords(FAST)
    ours = services(database, passwords)
    first = await bootstrap(database, HandClock(), passwords, ours.accounts, "G1venpassword")
    assert first is not None
    assert first.generated is None
    for username, number in (("admin", 1), ("determined", 2)):
        assert (await ours.accounts.login(username, Password("G1venpassword"))).user.id == number


@pytest.mark.parametrize("password", ["", "short"])
async def test_a_blank_or_weak_password_is_refused_beyond_loopback_and_nothing_is_made(
    database: Database, password: str
) -> None:
    passwords = Passwords(FAST)
    ours = services(database, passwords)
    with pytest.raises(errors.BadRequest, match=r"^security.initial_user_password: "):
        await bootstrap(database, HandClock(), passwords, ours.accounts, password)
    assert (await ours.accounts.users(UserFilter())).total == 0


async def test_newcomers_may_work_where_nobody_said_where_and_make_workspaces(database: Database) -> None:
    passwords = Passwords(FAST)
    ours = services(database, passwords)
    await bootstrap(database, HandClock(), passwords, ours.accounts)
    user = await ours.accounts.create_user(ADMIN, NewUser("ann"), Password("Passw0rd!"))
    assert user.id == 3
    rights = await ours.authorizer.rights(user.id)
    assert rights.allow(Permission.CREATE_TASKS, UNCATEGORIZED)
    assert rights.allow(Permission.CREATE_WORKSPACES, None)
    assert rights.allow(Permission.VIEW_CLUSTER, None)
    assert not rights.allow(Permission.VIEW_WORKSPACE, None)
    assert not rights.allow(Permission.ADMINISTRATE_USERS, None)
