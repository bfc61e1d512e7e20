"""Groups of users, who hold roles together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NewType

from sqlalchemy import Connection, delete, func, insert, select, update

from muster.accounts import names, users
from muster.accounts.audit import By, Deed, note
from muster.accounts.authorizing import Authorizer
from muster.accounts.users import User
from muster.api import errors
from muster.records import Database
from muster.records.paging import WHOLE, Page, Window, select_page
from muster.records.tables_accounts import GROUP_MEMBERS, GROUPS, USERS
from muster.runtime.clock import Clock

GroupId = NewType("GroupId", int)
_BY_HAND: Final = ""


@dataclass(frozen=True, slots=True)
class Group:
    id: GroupId
    name: str


@dataclass(frozen=True, slots=True)
class GroupPatch:
    """`name`: None leaves it as it is."""

    name: str | None = None
    add: Sequence[int] = ()
    remove: Sequence[int] = ()


class Groups:
    def __init__(self, database: Database, clock: Clock, authorizer: Authorizer) -> None:
        self._database = database
        self._clock = clock
        self._authorizer = authorizer

    async def get(self, group: GroupId) -> tuple[Group, Sequence[User]]:
        """With its members. Raises NotFound."""
        return await self._database.read(lambda connection: (get(connection, group), members(connection, group)))

    async def list(self, *, name: str = "", user: int | None = None, window: Window = WHOLE) -> Page[tuple[Group, int]]:
        """With the number of members. `name`: the whole of it. `user`: those that the user is in."""
        return await self._database.read(lambda connection: _listed(connection, name, user, window))

    async def create(self, by: By, name: str, members: Sequence[int] = ()) -> tuple[Group, Sequence[User]]:
        """Raises AlreadyExists, and NotFound for members."""

        def change(connection: Connection) -> Group:
            made = create(connection, name)
            _add(connection, made, members)
            note(connection, self._clock.now(), by, Deed("group.create", made.name, _numbers("users", members)))
            return made

        made = await self._database.write(change)
        self._authorizer.forget()
        return await self.get(made.id)

    async def patch(self, by: By, group: GroupId, wanted: GroupPatch) -> tuple[Group, Sequence[User]]:
        """Raises NotFound, AlreadyExists."""

        def change(connection: Connection) -> None:
            found = get(connection, group)
            if wanted.name is not None and wanted.name != found.name:
                _must_be_free(connection, wanted.name)
                name = names.checked("name", wanted.name)
                connection.execute(update(GROUPS).where(GROUPS.c.id == group).values(name=name))
            _add(connection, found, wanted.add)
            _remove(connection, found, wanted.remove)
            detail = f"{_numbers('added', wanted.add)} {_numbers('removed', wanted.remove)} name={wanted.name}"
            note(connection, self._clock.now(), by, Deed("group.change", found.name, detail))

        await self._database.write(change)
        self._authorizer.forget()
        return await self.get(group)

    async def delete(self, by: By, group: GroupId) -> None:
        """With its members' rights through it. Raises NotFound."""

        def change(connection: Connection) -> None:
            found = get(connection, group)
            connection.execute(delete(GROUPS).where(GROUPS.c.id == group))
            note(connection, self._clock.now(), by, Deed("group.delete", found.name))

        await self._database.write(change)
        self._authorizer.forget()

    async def change_many(self, by: By, people: Sequence[int], add: Sequence[int], remove: Sequence[int]) -> None:
        """Puts users into some groups and takes them out of others, all or none of it. Raises NotFound."""

        def change(connection: Connection) -> None:
            users.must_exist(connection, people, "userIds")
            for group in add:
                _add(connection, get(connection, GroupId(group)), people)
            for group in remove:
                _remove(connection, get(connection, GroupId(group)), people)
            detail = f"{_numbers('into', add)} {_numbers('out of', remove)}"
            note(connection, self._clock.now(), by, Deed("group.change", _numbers("users", people), detail))

        await self._database.write(change)
        self._authorizer.forget()


def get(connection: Connection, group: int) -> Group:
    """Raises NotFound."""
    row = connection.execute(select(GROUPS).where(GROUPS.c.id == group)).one_or_none()
    if row is None:
        raise errors.NotFound(f"group {group} not found")
    return Group(GroupId(row.id), row.name)


def members(connection: Connection, group: int) -> Sequence[User]:
    inside = select(GROUP_MEMBERS.c.user_id).where(GROUP_MEMBERS.c.group_id == group)
    return [
        users.of(row) for row in connection.execute(select(USERS).where(USERS.c.id.in_(inside)).order_by(USERS.c.id))
    ]


def create(connection: Connection, name: str) -> Group:
    """Raises AlreadyExists."""
    checked = names.checked("name", name)
    _must_be_free(connection, checked)
    made = connection.scalar(insert(GROUPS).values(name=checked).returning(GROUPS.c.id))
    assert made is not None
    return Group(GroupId(made), checked)


def follow_claims(connection: Connection, user: int, source: str, claimed: Iterable[str]) -> bool:
    """Makes the user a member of exactly these groups as far as `source` has a say; what was done by hand stays. Groups
    that are not there are made. Returns whether anything changed."""
    wanted = {_found_or_made(connection, name) for name in claimed}
    is_mine = (GROUP_MEMBERS.c.user_id == user) & (GROUP_MEMBERS.c.source == source)
    present = set(connection.scalars(select(GROUP_MEMBERS.c.group_id).where(is_mine)))
    for group in wanted - present:
        connection.execute(insert(GROUP_MEMBERS).values(group_id=group, user_id=user, source=source))
    if present - wanted:
        connection.execute(delete(GROUP_MEMBERS).where(is_mine, GROUP_MEMBERS.c.group_id.in_(present - wanted)))
    return wanted != present


def _found_or_made(connection: Connection, name: str) -> int:
    found = connection.scalar(select(GROUPS.c.id).where(GROUPS.c.name == name))
    return found if found is not None else create(connection, name).id


def _listed(connection: Connection, name: str, user: int | None, window: Window) -> Page[tuple[Group, int]]:
    size = select(func.count(GROUP_MEMBERS.c.user_id.distinct())).where(GROUP_MEMBERS.c.group_id == GROUPS.c.id)
    query = select(GROUPS, size.scalar_subquery().label("size")).order_by(GROUPS.c.id)
    if name:
        query = query.where(GROUPS.c.name == name)
    if user is not None:
        query = query.where(GROUPS.c.id.in_(select(GROUP_MEMBERS.c.group_id).where(GROUP_MEMBERS.c.user_id == user)))
    page = select_page(connection, query, window)
    return Page(tuple((Group(row.id, row.name), row.size) for row in page.items), page.start, page.total)


def _add(connection: Connection, group: Group, wanted: Sequence[int]) -> None:
    if not wanted:
        return
    users.must_exist(connection, wanted, "addUsers")
    by_hand = (GROUP_MEMBERS.c.group_id == group.id) & (GROUP_MEMBERS.c.source == _BY_HAND)
    present = set(connection.scalars(select(GROUP_MEMBERS.c.user_id).where(by_hand)))
    for user in sorted(set(wanted) - present):
        connection.execute(insert(GROUP_MEMBERS).values(group_id=group.id, user_id=user, source=_BY_HAND))


def _remove(connection: Connection, group: Group, unwanted: Sequence[int]) -> None:
    """Also who is in it by a claim; the next login brings those back, as long as the claim is made."""
    if unwanted:
        connection.execute(
            delete(GROUP_MEMBERS).where(GROUP_MEMBERS.c.group_id == group.id, GROUP_MEMBERS.c.user_id.in_(unwanted))
        )


def _must_be_free(connection: Connection, name: str) -> None:
    if connection.scalar(select(GROUPS.c.id).where(GROUPS.c.name == name)) is not None:
        raise errors.AlreadyExists(f"name: there is a group {name!r} already")


def _numbers(what: str, ids: Sequence[int]) -> str:
    return f"{what} {','.join(map(str, ids))}" if ids else ""
