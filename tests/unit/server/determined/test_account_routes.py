"""What Determined's client asks about users, tokens, groups and roles, and gets."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.server.determined import account_api
from tests.unit.server.determined.account_api import Api, Refused

from muster.accounts.service import Password

pytestmark = pytest.mark.postgres
HASHED = "0123456789abcdef" * 8


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with account_api.api(tmp_path) as found:
        yield found


async def refusal(api: Api, method: str, path: str, body: object = None) -> Refused:
    with pytest.raises(Refused) as caught:
        await api(method, path, body)
    return caught.value


# Users


async def test_a_user_is_made_found_and_changed_as_the_client_does_it(api: Api) -> None:
    wanted = {
        "user": {"username": "Ann", "admin": False, "active": True, "remote": False},
        "password": HASHED,
        "isHashed": True,
    }
    made = (await api("POST", "/users", wanted))["user"]
    assert made == {
        "id": 3, "username": "ann", "admin": False, "active": True, "agentUserGroup": None, "displayName": "",
        "modifiedAt": "2023-11-14T22:13:20.000000Z", "remote": False, "lastAuthAt": None,
    }  # fmt: skip
    agent = {"agentUid": 1000, "agentGid": 1000, "agentUser": "ann", "agentGroup": "ann"}
    await api("PATCH", "/users/3", {"agentUserGroup": agent})
    await api("PATCH", "/users/3", {"displayName": "Ann E.", "username": "anne"})
    found = (await api("GET", "/users/anne/by-username"))["user"]
    assert (found["agentUserGroup"], found["displayName"]) == (agent, "Ann E.")
    assert (await api("GET", "/users/3"))["user"] == found
    login = await api.by(None)("POST", "/auth/login", {"username": "anne", "password": HASHED, "isHashed": True})
    assert login["user"]["username"] == "anne"
    assert await api.ground.services.accounts.authenticate(login["token"]) is not None


async def test_lists_of_users_are_chosen_ordered_and_cut(api: Api) -> None:
    for name in ("cat", "bob", "dan"):
        await api.ground.person(name)
    await api("PATCH", "/users/4", {"active": False, "displayName": "Zed"})

    async def names(**query: object) -> list[str]:
        return [user["username"] for user in (await api("GET", "/users", **query))["users"]]

    assert await names() == ["admin", "determined", "cat", "bob", "dan"]
    assert await names(active="true", offset=2) == ["cat", "dan"]
    assert await names(admin="true") == ["admin"]
    assert await names(name="ze") == ["bob"]
    assert await names(name="%") == []
    assert await names(sortBy="SORT_BY_USER_NAME", orderBy="ORDER_BY_DESC", limit=2) == ["determined", "dan"]
    assert await names(sortBy="SORT_BY_NAME")
    assert await names(sortBy="SORT_BY_LAST_AUTH_TIME", orderBy="ORDER_BY_DESC")
    page = await api("GET", "/users", limit=2, offset=4)
    assert page["pagination"] == {"offset": 4, "limit": 2, "startIndex": 4, "endIndex": 5, "total": 5}
    beyond = (await api("GET", "/users", offset=9))["pagination"]
    assert (beyond["startIndex"], beyond["endIndex"], beyond["total"]) == (5, 5, 5)
    assert await names(limit=-2) == []
    assert await names(offset=-1) == ["dan"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("POST", "/users", {}, 400, "user: required"),
        ("POST", "/users", {"user": {"username": "x"}, "password": "short"}, 400, "password: must have at least 8"),
        ("POST", "/users", {"user": {"username": " "}, "password": "Passw0rd!"}, 400, "username: must not be empty"),
        ("POST", "/users", {"user": {"username": "a/b"}, "password": "Passw0rd!"}, 400, "username: must have no slash"),
        ("POST", "/users", {"user": {"username": "a\0b"}, "password": "Passw0rd!"}, 400, "username: "),
        ("POST", "/users", {"user": {"username": "x" * 255}, "password": "Passw0rd!"}, 400, "username: must not be"),
        ("POST", "/users", {"user": {"username": "ADMIN"}, "password": "Passw0rd!"}, 409, "username: 'admin' is taken"),
        ("POST", "/users", {"user": {"username": "r", "remote": True}, "password": "Passw0rd!"}, 400, "remote"),
        ("PATCH", "/users/2", {"username": "admin"}, 409, "taken"),
        ("PATCH", "/users/2", {"agentUserGroup": {"agentUid": -1}}, 400, "agentUserGroup.agentUid"),
        ("PATCH", "/users/1", {"active": False}, 400, "only active administrator"),
        ("PATCH", "/users/1", {"admin": False}, 400, "only active administrator"),
        ("PATCH", "/users/77", {"active": False}, 404, "user 77 not found"),
        ("GET", "/users/99999999999999999999", None, 400, "userId: "),
        ("GET", "/users/nobody/by-username", None, 404, "'nobody' not found"),
        ("GET", "/users?sortBy=SORT_BY_NOTHING", None, 400, "sortBy: "),
        ("PATCH", "/users/setting", None, 400, "userId"),
        ("POST", "/users/setting", {"settings": [{"key": ""}]}, 400, "settings[0].key: "),
    ],
)  # fmt: skip
async def test_bad_input_about_users_is_told_by_its_field(
    api: Api, method: str, path: str, body: object, status: int, told: str
) -> None:
    path, _, query = path.partition("?")
    name, _, value = query.partition("=")
    with pytest.raises(Refused) as caught:
        await api(method, path, body, **({name: value} if name else {}))
    assert caught.value.status == status
    assert told in caught.value.message


async def test_users_change_their_own_password_and_display_name_and_nothing_else(api: Api) -> None:
    ann = await api.new_user()
    assert ann.caller is not None
    mine = f"/users/{ann.caller.user}"
    await ann("PATCH", mine, {"displayName": "Ann"})
    await ann("PATCH", mine, {"password": HASHED, "isHashed": True})
    await ann("POST", f"{mine}/password", "An0therone")
    await api.ground.services.accounts.login("ann", Password("An0therone"))
    for body in (
        {"admin": True},
        {"active": False},
        {"username": "root"},
        {"remote": True},
        {"agentUserGroup": {"agentUid": 0}},
    ):
        assert (await refusal(ann, "PATCH", mine, body)).status == 403
    assert (await refusal(ann, "PATCH", "/users/1", {"password": HASHED, "isHashed": True})).status == 403
    assert (await refusal(ann, "PATCH", "/users/1", {"displayName": "me"})).status == 403


async def test_a_remote_user_has_no_password(api: Api) -> None:
    ann = await api.new_user()
    assert ann.caller is not None
    await api("PATCH", f"/users/{ann.caller.user}", {"remote": True})
    login = {"username": "ann", "password": "Passw0rd!"}
    assert (await refusal(api.by(None), "POST", "/auth/login", login)).status == 401
    assert "remote" in (await refusal(ann, "POST", f"/users/{ann.caller.user}/password", "Passw0rd!")).message


async def test_many_users_are_switched_off_each_with_its_own_answer(api: Api) -> None:
    await api.new_user("ann")
    told = await api("PATCH", "/users", {"userIds": [1, 3, 50], "activate": False})
    assert [(each["id"], bool(each["error"])) for each in told["results"]] == [(1, True), (3, False), (50, True)]
    assert not (await api("GET", "/users/3"))["user"]["active"]
    await api("PATCH", "/users", {"userIds": [], "activate": True, "filters": {"name": "an"}})
    assert (await api("GET", "/users/3"))["user"]["active"]


async def test_settings_are_kept_for_each_user(api: Api) -> None:
    ann = await api.new_user()
    await ann("POST", "/users/setting", {"settings": [{"key": "theme", "storagePath": "ui", "value": "dark"}]})
    await ann("POST", "/users/setting", {"settings": [{"key": "theme", "storagePath": "ui", "value": "light"}]})
    assert (await ann("GET", "/users/setting"))["settings"] == [{"key": "theme", "storagePath": "ui", "value": "light"}]
    assert (await api("GET", "/users/setting"))["settings"] == []
    await ann("POST", "/users/setting/reset")
    assert (await ann("GET", "/users/setting"))["settings"] == []


async def test_tokens_are_each_users_own(api: Api) -> None:
    ann = await api.new_user()
    assert ann.caller is not None
    made = await ann("POST", "/tokens", {"userId": ann.caller.user, "lifespan": "24h", "description": "ci"})
    caller = await api.ground.services.accounts.authenticate(made["token"])
    assert caller is not None
    assert caller.user == ann.caller.user
    assert (await refusal(ann, "POST", "/tokens", {"userId": 1})).status == 403
    await api("POST", "/tokens", {"userId": 1, "lifespan": None, "description": None})
    listed = (await ann("GET", "/tokens"))["tokenInfo"]
    assert listed == [
        {
            "id": made["tokenId"], "userId": ann.caller.user, "expiry": "2023-11-15T22:13:20.000000Z",
            "createdAt": "2023-11-14T22:13:20.000000Z", "tokenType": "TOKEN_TYPE_ACCESS_TOKEN", "revoked": False,
            "description": "ci",
        }
    ]  # fmt: skip
    assert len((await api("GET", "/tokens"))["tokenInfo"]) == 2
    with pytest.raises(Refused, match="403"):
        await ann("GET", "/tokens", username="admin")
    assert (await refusal(ann, "PATCH", f"/tokens/{made['tokenId'] + 1}", {"setRevoked": True})).status == 404
    changed = await ann("PATCH", f"/tokens/{made['tokenId']}", {"setRevoked": True, "description": None})
    assert changed["tokenInfo"]["revoked"]
    assert (await ann("GET", "/tokens"))["tokenInfo"] == []
    assert len((await ann("GET", "/tokens", showInactive="true"))["tokenInfo"]) == 1
    assert await api.ground.services.accounts.authenticate(made["token"]) is None


# Groups and roles


async def test_groups_as_the_client_walks_them(api: Api) -> None:
    ann, bob = await api.ground.person("ann"), await api.ground.person("bob")
    made = (await api("POST", "/groups", {"name": "team", "addUsers": [ann.id]}))["group"]
    assert (made["groupId"], made["name"], [user["username"] for user in made["users"]]) == (1, "team", ["ann"])
    found = await api("POST", "/groups/search", {"name": "team", "limit": 1, "offset": 0})
    assert found["groups"] == [{"group": {"groupId": 1, "name": "team"}, "numMembers": 1}]
    await api("PUT", "/groups/1", {"groupId": 1, "addUsers": [bob.id], "removeUsers": [ann.id], "name": "crew"})
    detail = (await api("GET", "/groups/1"))["group"]
    assert (detail["name"], [user["username"] for user in detail["users"]]) == ("crew", ["bob"])
    await api("PATCH", "/users/assignments", {"userIds": [ann.id, bob.id], "addGroups": [1], "removeGroups": []})
    mine = await api("POST", "/groups/search", {"limit": 10, "userId": ann.id})
    assert [(each["group"]["name"], each["numMembers"]) for each in mine["groups"]] == [("crew", 2)]
    assert (await refusal(api, "POST", "/groups", {"name": "crew"})).status == 409
    assert "77" in (await refusal(api, "PUT", "/groups/1", {"addUsers": [77]})).message
    await api("DELETE", "/groups/1")
    assert (await refusal(api, "GET", "/groups/1")).status == 404


async def test_roles_as_the_client_walks_them(api: Api) -> None:
    ann = await api.new_user()
    assert ann.caller is not None
    every = (await api("POST", "/roles/search", {"limit": 500, "offset": 0}))["roles"]
    assert {"ClusterAdmin", "WorkspaceAdmin", "Viewer", "Editor"} <= {role["name"] for role in every}
    here = (await api("POST", "/roles/search/by-assignability", {"limit": 500, "workspaceId": 1}))["roles"]
    assert "ClusterAdmin" not in {role["name"] for role in here}
    viewer = next(role for role in every if role["name"] == "Viewer")
    place = {"role": {"roleId": viewer["roleId"]}}
    wanted = {"userRoleAssignments": [{"userId": ann.caller.user, "roleAssignment": place}]}
    await api("POST", "/roles/add-assignments", wanted)
    await api("POST", "/roles/add-assignments", wanted)
    (held,) = (await ann("GET", f"/roles/search/by-user/{ann.caller.user}"))["roles"]
    (assignment,) = held["userRoleAssignments"]
    assert assignment["roleAssignment"]["scopeCluster"] is True
    assert assignment["roleAssignment"]["scopeWorkspaceId"] is None
    (described,) = (await api("POST", "/roles/search/by-ids", {"roleIds": [viewer["roleId"]]}))["roles"]
    assert [each["userId"] for each in described["userRoleAssignments"]] == [ann.caller.user]
    assert [user["username"] for user in (await api("GET", "/users", roleIdAssignedDirectlyToUser=[4]))["users"]] == [
        "ann"
    ]
    await api("POST", "/roles/remove-assignments", wanted)
    assert (await refusal(api, "POST", "/roles/remove-assignments", wanted)).status == 404
    assert (await ann("GET", "/permissions/summary")) == {"roles": [], "assignments": []}
    assert (await api("GET", "/permissions/summary"))["assignments"] == [
        {"roleId": 1, "scopeCluster": True, "scopeWorkspaceIds": []}
    ]


async def test_members_of_a_workspace_are_users_and_groups(api: Api) -> None:
    ann, bob = await api.ground.person("ann"), await api.ground.person("bob")
    await api("POST", "/groups", {"name": "team", "addUsers": [bob.id]})
    place = {"role": {"roleId": 4}, "scopeWorkspaceId": 1}
    await api(
        "POST", "/roles/add-assignments",
        {
            "userRoleAssignments": [{"userId": ann.id, "roleAssignment": place}],
            "groupRoleAssignments": [{"groupId": 1, "roleAssignment": place}],
        },
    )  # fmt: skip
    found = await api("GET", "/roles/workspace/1")
    assert [user["username"] for user in found["usersAssignedDirectly"]] == ["ann"]
    assert [(group["name"], group["users"][0]["username"]) for group in found["groups"]] == [("team", "bob")]
    (held,) = found["assignments"]
    assert (len(held["userRoleAssignments"]), len(held["groupRoleAssignments"])) == (1, 1)
    only = await api("GET", "/roles/workspace/1", name="tea")
    assert (only["usersAssignedDirectly"], len(only["groups"])) == ([], 1)


# Who did it


async def test_changes_and_logins_are_on_record_with_who_and_from_where(api: Api) -> None:
    await api("POST", "/users", {"user": {"username": "ann", "active": True}, "password": "Passw0rd!"})
    await api("PATCH", "/users/3", {"admin": True, "password": "An0therone"})
    entries = (await api("GET", "/audit", action="user."))["entries"]
    assert [(each["action"], each["target"], each["outcome"]) for each in entries] == [
        ("user.password", "ann", "done"), ("user.create", "ann", "done"),
    ]  # fmt: skip
    assert {(each["username"], each["remoteAddress"], each["userId"]) for each in entries} == {("admin", "10.9.9.9", 1)}
    assert "An0therone" not in str(await api("GET", "/audit"))
    assert (await refusal(await api.new_user("bob"), "GET", "/audit")).status == 403
