"""Accounts over fresh records, as after a first start, for tests."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argon2 import PasswordHasher

from muster.accounts.audit import By
from muster.accounts.bootstrapping import bootstrap
from muster.accounts.callers import Caller, UserId, WorkspaceId
from muster.accounts.passwords import Passwords
from muster.accounts.permissions import BY_NAME
from muster.accounts.removing import Occupant
from muster.accounts.roles import Assignment
from muster.accounts.service import Newcomers, Password
from muster.accounts.services import AccountServices
from muster.accounts.users import NewUser, User
from muster.api.meta import Instant
from muster.records import Database
from muster.testing.databases import fresh_database

FAST: Final = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
PASSWORD: Final = "Passw0rd!"  # noqa: S105 - of everybody here
ADMIN: Final = By(Caller(UserId(1), "admin", is_admin=True), "10.0.0.1")


@dataclass
class HandClock:
    """Time moves when a test says so."""

    seconds: float = 1_700_000_000.0

    def now(self) -> Instant:
        return Instant(self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class FixedPools:
    pools: Sequence[str] = ("default", "gold", "silver")

    async def names(self) -> Sequence[str]:
        return self.pools


@dataclass(frozen=True)
class Ground:
    """Everything about accounts. Blank passwords are allowed, as on loopback, and new users hold no roles."""

    services: AccountServices
    database: Database
    clock: HandClock

    async def person(self, username: str = "ann", *, is_remote: bool = False) -> User:
        password = Password("" if is_remote else PASSWORD)
        return await self.services.accounts.create_user(ADMIN, NewUser(username, is_remote=is_remote), password)

    async def caller(self, username: str = "ann", role: str = "", workspace: int | None = None) -> Caller:
        """A new user, with a role if one is named: in the whole cluster, or in a workspace."""
        user = await self.person(username)
        if role:
            await self.grant(user.id, role, workspace)
        return Caller(user.id, user.username)

    async def grant(self, user: UserId, role: str, workspace: int | None = None) -> None:
        where = None if workspace is None else WorkspaceId(workspace)
        await self.services.roles.assign(ADMIN, [Assignment(BY_NAME[role].id, user, workspace=where)])


@asynccontextmanager
async def ground(folder: Path, occupants: Sequence[Occupant] = ()) -> AsyncIterator[Ground]:
    """`folder`: a test's own."""
    async with fresh_database(folder) as database:
        clock, passwords = HandClock(), Passwords(FAST, may_be_blank=True)
        services = AccountServices.over(
            database, clock, passwords, FixedPools(), occupants=occupants, newcomers=Newcomers((), ())
        )
        await bootstrap(database, clock, passwords, services.accounts, "")
        yield Ground(services, database, clock)
