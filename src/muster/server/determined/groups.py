"""Groups of users."""

from collections.abc import Sequence

from muster.accounts import groups as books
from muster.accounts.groups import GroupId, GroupPatch, Groups
from muster.accounts.permissions import Permission
from muster.accounts.users import User as Person
from muster.server.determined import acting, paging, users
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route
from muster.server.determined.users import User


class Group(Message, frozen=True):
    group_id: int
    name: str


class GroupDetails(Message, frozen=True):
    group_id: int
    name: str
    users: Sequence[User]


class GroupReply(Message, frozen=True):
    group: GroupDetails


class GroupSearchResult(Message, frozen=True):
    group: Group
    num_members: int


class GetGroups(Paged, frozen=True):
    name: str = ""
    user_id: Id | None = None


class GetGroupsReply(Message, frozen=True):
    groups: Sequence[GroupSearchResult]
    pagination: Pagination


class GroupAsked(Message, frozen=True):
    group_id: Id = 0


class CreateGroup(Message, frozen=True):
    name: str = ""
    add_users: Sequence[Id] = ()


class UpdateGroup(Message, frozen=True):
    group_id: Id = 0
    name: str | None = None
    add_users: Sequence[Id] = ()
    remove_users: Sequence[Id] = ()


class AssignMultipleGroups(Message, frozen=True):
    user_ids: Sequence[Id] = ()
    add_groups: Sequence[Id] = ()
    remove_groups: Sequence[Id] = ()


def told(group: books.Group, members: Sequence[Person]) -> GroupDetails:
    return GroupDetails(group_id=group.id, name=group.name, users=[users.told(member) for member in members])


class _Groups:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def search(self, call: Call, asked: GetGroups) -> GetGroupsReply:
        page = await self._groups.list(name=asked.name, user=asked.user_id, window=asked.window)
        found = [
            GroupSearchResult(group=Group(group_id=group.id, name=group.name), num_members=size)
            for group, size in page.items
        ]
        return GetGroupsReply(groups=found, pagination=paging.told(page, asked))

    async def get(self, call: Call, asked: GroupAsked) -> GroupReply:
        return GroupReply(group=told(*await self._groups.get(GroupId(asked.group_id))))

    async def create(self, call: Call, asked: CreateGroup) -> GroupReply:
        return GroupReply(group=told(*await self._groups.create(acting.by(call), asked.name, asked.add_users)))

    async def update(self, call: Call, asked: UpdateGroup) -> GroupReply:
        wanted = GroupPatch(asked.name or None, asked.add_users, asked.remove_users)
        return GroupReply(group=told(*await self._groups.patch(acting.by(call), GroupId(asked.group_id), wanted)))

    async def delete(self, call: Call, asked: GroupAsked) -> Nothing:
        await self._groups.delete(acting.by(call), GroupId(asked.group_id))
        return Nothing()

    async def assign_many(self, call: Call, asked: AssignMultipleGroups) -> Nothing:
        await self._groups.change_many(acting.by(call), asked.user_ids, asked.add_groups, asked.remove_groups)
        return Nothing()


def routes(groups: Groups) -> Sequence[Route]:
    here, each = "/api/v1/groups", "/api/v1/groups/{groupId}"
    handlers, admin = _Groups(groups), Permission.ADMINISTRATE_USERS
    many = "/api/v1/users/assignments"
    return (
        route("POST", f"{here}/search", GetGroups, GetGroupsReply, known(), handlers.search),
        route("POST", here, CreateGroup, GroupReply, Rule(admin), handlers.create),
        route("GET", each, GroupAsked, GroupReply, known(), handlers.get),
        route("PUT", each, UpdateGroup, GroupReply, Rule(admin), handlers.update),
        route("DELETE", each, GroupAsked, Nothing, Rule(admin), handlers.delete),
        route("PATCH", many, AssignMultipleGroups, Nothing, Rule(admin), handlers.assign_many),
    )
