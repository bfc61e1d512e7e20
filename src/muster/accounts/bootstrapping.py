"""The first start: the users and the workspace that Determined's clients expect to be there."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, select, text

from muster.accounts import passwords, projects, users, workspaces
from muster.accounts.audit import SYSTEM, Deed, note
from muster.accounts.callers import UserId
from muster.accounts.passwords import Passwords
from muster.accounts.projects import ProjectPatch
from muster.accounts.service import UNCATEGORIZED, Accounts
from muster.accounts.users import NewUser
from muster.accounts.workspaces import WorkspacePatch
from muster.records import Database
from muster.records.tables_accounts import PROJECTS, USERS, WORKSPACES
from muster.runtime.clock import Clock

ADMIN: Final = "admin"
DETERMINED: Final = "determined"
"""Whom Determined's client logs in as where nobody was named, with a blank password."""
_NAME: Final = "Uncategorized"


@dataclass(frozen=True, slots=True)
class FirstStart:
    """`generated`: the administrator's password where we made one. It is shown now or never."""

    generated: str | None


async def bootstrap(
    database: Database, clock: Clock, secrets: Passwords, accounts: Accounts, password: str | None = None
) -> FirstStart | None:
    """None where users are there already. `password`: for `admin` and `determined`; None makes one for `admin`, and
    nobody is `determined` until they are given one. Raises BadRequest where the rules for passwords forbid it."""
    if await database.read(_has_users):
        return None
    wanted = passwords.generated() if password is None else password
    generated = wanted if password is None else None
    hashed = await secrets.hash(secrets.checked(wanted, is_hashed=False, field="security.initial_user_password"))

    def change(connection: Connection) -> bool:
        if _has_users(connection):
            return False  # another replica was first
        now = clock.now()
        admin = users.create(connection, NewUser(ADMIN, is_admin=True), hashed, now, id=1)
        other = users.create(connection, NewUser(DETERMINED), "" if generated else hashed, now, id=2)
        names = WorkspacePatch(name=_NAME)
        workspaces.insert_workspace(connection, names, admin.id, now, id=UNCATEGORIZED, immutable=True)
        project = ProjectPatch(name=_NAME)
        projects.insert_project(connection, UNCATEGORIZED, project, UserId(1), now, id=1, immutable=True)
        for user in (admin, other):
            accounts.welcome(connection, user)
        _continue_numbers(connection)
        note(connection, now, SYSTEM, Deed("first start", ADMIN))
        return True

    return FirstStart(generated) if await database.write(change) else None


def _has_users(connection: Connection) -> bool:
    return connection.scalar(select(USERS.c.id).limit(1)) is not None


def _continue_numbers(connection: Connection) -> None:
    """PostgreSQL counts apart from what is in the table."""
    if connection.dialect.name != "postgresql":
        return
    for table in (USERS, WORKSPACES, PROJECTS):
        highest = connection.scalar(select(func.max(table.c.id)))
        sequence = connection.scalar(text("SELECT pg_get_serial_sequence(:name, 'id')"), {"name": table.name})
        connection.execute(text("SELECT setval(:sequence, :highest)"), {"sequence": sequence, "highest": highest})
