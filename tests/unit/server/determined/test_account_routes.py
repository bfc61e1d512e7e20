"""What Determined's client asks about accounts and workspaces, and gets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.unit.server.determined import account_api
from tests.unit.server.determined.account_api import Api, Refused

from muster.accounts.callers import WorkspaceId
from muster.accounts.policies import Policy, Workload
from muster.accounts.projects import ProjectId
from muster.accounts.service import Password
from muster.api import errors

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
        ("PATCH", "/users/setting", None, 405, ""),
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
    assert (await refusal(ann, "PATCH", f"/tokens/{made['tokenId'] + 1}", {"setRevoked": True})).status == 403
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


# Workspaces


async def test_the_first_workspace_and_project_are_as_the_client_expects(api: Api) -> None:
    (workspace,) = (await api("GET", "/workspaces"))["workspaces"]
    assert workspace == {
        "id": 1, "name": "Uncategorized", "archived": False, "username": "admin", "immutable": True, "numProjects": 1,
        "pinned": False, "userId": 1, "numExperiments": 0, "state": "WORKSPACE_STATE_UNSPECIFIED", "errorMessage": "",
        "agentUserGroup": None, "checkpointStorageConfig": None, "defaultComputePool": "", "defaultAuxPool": "",
        "autoCreatedNamespace": "", "pinnedAt": None,
    }  # fmt: skip
    project = (await api("GET", "/projects/1"))["project"]
    assert (project["name"], project["immutable"], project["workspaceName"]) == ("Uncategorized", True, "Uncategorized")
    for method, path in (
        ("PATCH", "/workspaces/1"), ("POST", "/workspaces/1/archive"), ("DELETE", "/workspaces/1"),
        ("PATCH", "/projects/1"), ("DELETE", "/projects/1"), ("POST", "/projects/1/archive"),
    ):  # fmt: skip
        assert "immutable" in (await refusal(api, method, path, {"name": "x"})).message


async def test_workspaces_are_made_changed_and_found(api: Api) -> None:
    made = await api("POST", "/workspaces", {"name": "Lab", "agentUserGroup": None, "checkpointStorageConfig": None})
    assert made["namespaceBindings"] == {}
    assert made["workspace"]["id"] == 2
    await api("POST", "/workspaces", {"name": "Labor", "defaultComputePool": "gold"})
    storage = {"type": "s3", "bucket": "b", "access_key": "AK", "secret_key": "SK"}
    await api("PATCH", "/workspaces/2", {"checkpointStorageConfig": storage, "defaultAuxResourcePool": "silver"})
    shown = (await api("GET", "/workspaces/2"))["workspace"]
    assert shown["checkpointStorageConfig"] == {**storage, "access_key": "********", "secret_key": "********"}
    assert shown["defaultAuxPool"] == "silver"
    await api(
        "PATCH", "/workspaces/2", {"checkpointStorageConfig": {**shown["checkpointStorageConfig"], "bucket": "c"}}
    )
    kept = await api.ground.services.workspaces.get(2)
    assert kept.checkpoint_storage == {**storage, "bucket": "c"}

    async def names(**query: object) -> list[str]:
        return [each["name"] for each in (await api("GET", "/workspaces", **query))["workspaces"]]

    assert await names(nameCaseSensitive="Lab") == ["Lab"]
    assert await names(nameCaseSensitive="lab") == []
    assert await names(name="lab") == ["Lab"]
    assert await names(sortBy="SORT_BY_NAME", orderBy="ORDER_BY_DESC", limit=2) == ["Uncategorized", "Labor"]
    assert await names(users=["admin", "x"], archived="false") == ["Uncategorized", "Lab", "Labor"]
    assert await names(userIds=[2]) == []
    await api("POST", "/workspaces/2/pin")
    assert await names(pinned="true") == ["Lab"]
    assert (await api("GET", "/workspaces/2"))["workspace"]["pinnedAt"] == "2023-11-14T22:13:20.000000Z"
    await api("POST", "/workspaces/2/unpin")
    assert await names(pinned="false") == ["Uncategorized", "Lab", "Labor"]
    assert (await refusal(api, "POST", "/workspaces", {"name": "LAB"})).status == 409
    assert (await refusal(api, "PATCH", "/workspaces/3", {"name": "lab"})).status == 409
    assert (await refusal(api, "POST", "/workspaces", {"name": ""})).message.startswith("name: ")
    bad = {"name": "x", "checkpointStorageConfig": {"type": "tape"}}
    assert (await refusal(api, "POST", "/workspaces", bad)).message.startswith("checkpointStorageConfig.type: ")
    assert (await refusal(api, "GET", "/workspaces/9")).message == "workspace 9 not found"


async def test_archiving_a_workspace_archives_its_projects_and_stops_changes(api: Api) -> None:
    await api("POST", "/workspaces", {"name": "lab"})
    await api("POST", "/workspaces/2/projects", {"name": "p"})
    await api("POST", "/workspaces/2/archive")
    assert (await api("GET", "/projects/2"))["project"]["archived"]
    assert "archived" in (await refusal(api, "PATCH", "/workspaces/2", {"name": "x"})).message
    assert "archived" in (await refusal(api, "POST", "/workspaces/2/projects", {"name": "q"})).message
    assert "archived" in (await refusal(api, "POST", "/projects/2/unarchive")).message
    await api("POST", "/workspaces/2/unarchive")
    assert not (await api("GET", "/projects/2"))["project"]["archived"]


async def test_projects_are_made_changed_and_found(api: Api) -> None:
    await api("POST", "/workspaces", {"name": "lab"})
    first = (await api("POST", "/workspaces/2/projects", {"name": "Vision", "workspaceId": 2, "description": None}))[
        "project"
    ]
    second = (await api("POST", "/workspaces/2/projects", {"name": "Visual", "description": "a"}))["project"]
    assert (first["id"], first["key"], second["key"], first["description"]) == (2, "VIS", "VIS1", "")
    assert (await api("GET", "/projects/key/vis1"))["project"]["name"] == "Visual"
    await api("PATCH", "/projects/2", {"name": "Sight", "key": "sg"})
    assert (await api("GET", "/projects/2"))["project"]["key"] == "SG"

    async def names(**query: object) -> list[str]:
        return [each["name"] for each in (await api("GET", "/workspaces/2/projects", **query))["projects"]]

    assert await names() == ["Sight", "Visual"]
    assert await names(name="visual") == ["Visual"]
    assert await names(sortBy="SORT_BY_NAME", orderBy="ORDER_BY_DESC") == ["Visual", "Sight"]
    assert await names(sortBy="SORT_BY_DESCRIPTION") == ["Sight", "Visual"]
    assert await names(users=["nobody"]) == []
    await api("POST", "/projects/2/archive")
    assert await names(archived="true") == ["Sight"]
    await api("POST", "/projects/2/unarchive")
    note = {"name": "n", "contents": "c"}
    assert (await api("POST", "/projects/2/notes", note))["notes"] == [note]
    assert (await api("PUT", "/projects/2/notes", {"projectId": 2, "notes": [note, note]}))["notes"] == [note, note]
    assert (await api("GET", "/projects/2"))["project"]["notes"] == [note, note]
    await api("POST", "/projects/2/move", {"projectId": 2, "destinationWorkspaceId": 1})
    assert (await api("GET", "/projects/2"))["project"]["workspaceId"] == 1
    await api(
        "POST",
        "/users/activity",
        {"entityType": "ENTITY_TYPE_PROJECT", "activityType": "ACTIVITY_TYPE_GET", "entityId": 2},
    )
    assert [each["id"] for each in (await api("GET", "/user/projects/activity", limit=5))["projects"]] == [2]
    for body, told in (
        ({"name": "visual"}, "name: "),
        ({"name": "x", "key": "toolong"}, "key: "),
        ({"name": "x", "key": "sg"}, "key: "),
    ):
        assert (await refusal(api, "POST", "/workspaces/2/projects", body)).message.startswith(told)


async def test_what_is_empty_is_deleted_at_once(api: Api) -> None:
    await api("POST", "/workspaces", {"name": "lab"})
    await api("POST", "/workspaces/1/projects", {"name": "p"})
    assert (await api("DELETE", "/projects/2")) == {"completed": True}
    assert (await api("DELETE", "/workspaces/2")) == {"completed": True}
    assert (await refusal(api, "GET", "/workspaces/2")).status == 404
    assert (await api("POST", "/workspaces", {"name": "lab"}))["workspace"]["id"] == 3


class Tenant:
    """Lives in workspace 2, and moves out when the door is opened."""

    def __init__(self) -> None:
        self.door = asyncio.Event()
        self.is_stubborn = False

    async def is_in(self, workspace: WorkspaceId, project: ProjectId | None) -> bool:
        return workspace == 2

    async def vacate(self, workspace: WorkspaceId, project: ProjectId | None) -> None:
        await self.door.wait()
        if self.is_stubborn:
            raise errors.Conflict("a task does not stop")


async def test_what_is_lived_in_is_deleted_in_the_background_and_a_failure_is_told(tmp_path: Path) -> None:
    tenant = Tenant()
    async with account_api.api(tmp_path, [tenant]) as api:
        await api("POST", "/workspaces", {"name": "lab"})
        await api("POST", "/workspaces/2/projects", {"name": "p"})
        removing = asyncio.create_task(api.ground.services.remover.run())
        assert (await api("DELETE", "/workspaces/2")) == {"completed": False}
        assert (await api("GET", "/workspaces/2"))["workspace"]["state"] == "WORKSPACE_STATE_DELETING"
        assert "being deleted" in (await refusal(api, "POST", "/workspaces/2/projects", {"name": "q"})).message
        assert "being deleted" in (await refusal(api, "DELETE", "/workspaces/2")).message
        tenant.is_stubborn = True
        tenant.door.set()
        failed = (await until(api, "/workspaces/2", "WORKSPACE_STATE_DELETE_FAILED"))["workspace"]
        assert failed["errorMessage"] == "a task does not stop"
        tenant.is_stubborn = False
        assert (await api("DELETE", "/workspaces/2")) == {"completed": False}
        await until(api, "/workspaces/2", "gone")
        assert (await refusal(api, "GET", "/projects/2")).status == 404
        removing.cancel()


async def until(api: Api, path: str, state: str) -> dict[str, dict[str, object]]:
    for _ in range(500):
        try:
            found = await api("GET", path)
        except Refused:
            if state == "gone":
                return {}
            raise
        if found["workspace"]["state"] == state:
            return dict(found)
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path} is not {state}")


async def test_a_deletion_goes_on_after_a_restart(tmp_path: Path) -> None:
    tenant = Tenant()
    async with account_api.api(tmp_path, [tenant]) as api:
        await api("POST", "/workspaces", {"name": "lab"})
        assert (await api("DELETE", "/workspaces/2")) == {"completed": False}
        tenant.door.set()
        await api.ground.services.remover.remove_marked()
        assert (await refusal(api, "GET", "/workspaces/2")).status == 404


# What workspaces may use


async def test_a_pool_that_is_bound_is_for_its_workspaces_only(api: Api) -> None:
    await api("POST", "/workspaces", {"name": "lab"})
    bindings = "/resource-pools/gold/workspace-bindings"
    await api("POST", bindings, {"resourcePoolName": "gold", "workspaceNames": ["lab"]})
    assert (await api("GET", bindings))["workspaceIds"] == [2]
    assert (await api("GET", "/workspaces/1/available-resource-pools"))["resourcePools"] == ["default", "silver"]
    assert (await api("GET", "/workspaces/2/available-resource-pools"))["resourcePools"] == [
        "default",
        "gold",
        "silver",
    ]
    await api("PUT", bindings, {"workspaceIds": [1]})
    assert (await api("GET", bindings))["workspaceIds"] == [1]
    await api("DELETE", bindings, {"workspaceNames": ["Uncategorized"]})
    assert (await api("GET", bindings))["workspaceIds"] == []
    assert "'nowhere'" in (await refusal(api, "POST", bindings, {"workspaceNames": ["nowhere"]})).message
    assert (await refusal(api, "GET", "/resource-pools/tin/workspace-bindings")).status == 404


async def test_namespaces_and_quotas_are_kept(api: Api) -> None:
    await api("POST", "/workspaces", {"name": "lab"})
    assert (await api("GET", "/namespace-bindings/workspace-ids-with-default-bindings"))["workspaceIds"] == [1, 2]
    wanted = {"clusterNamespaceMeta": {"": {"clusterName": "", "namespace": "lab-ns", "autoCreateNamespace": False}}}
    bound = (await api("POST", "/workspaces/2/namespace-bindings", wanted))["namespaceBindings"]
    assert bound == {"": {"workspaceId": 2, "clusterName": "", "namespace": "lab-ns", "autoCreateNamespace": False}}
    assert (await api("GET", "/workspaces/2/list-namespace-bindings"))["namespaceBindings"] == bound
    await api("POST", "/workspaces/2/set-resource-quota", {"id": 2, "clusterQuotaPairs": {"": 8}})
    assert (await api("GET", "/workspaces/2/get-k8s-resource-quotas"))["resourceQuotas"] == {"": 8}
    await api("DELETE", "/workspaces/2/namespace-bindings", clusterNames="")
    assert (await refusal(api, "DELETE", "/workspaces/2/namespace-bindings")).status == 404
    bad = {"clusterNamespaceMeta": {"": {"namespace": "No!"}}}
    assert "namespace: must be a name" in (await refusal(api, "POST", "/workspaces/2/namespace-bindings", bad)).message
    made = await api(
        "POST",
        "/workspaces",
        {"name": "own", "clusterNamespaceMeta": {"": {"autoCreateNamespace": True, "resourceQuota": 3}}},
    )
    assert made["namespaceBindings"][""]["namespace"] == "workspace-3" == made["workspace"]["autoCreatedNamespace"]
    assert (await refusal(api, "POST", "/workspaces", {"name": "bad", **bad})).status == 400
    assert (await refusal(api, "GET", "/workspaces/4")).status == 404


# Templates and policies


async def test_templates_as_the_client_walks_them(api: Api) -> None:
    await api("POST", "/workspaces", {"name": "lab"})
    assert (await refusal(api, "GET", "/templates/base")).status == 404
    config = {"environment": {"image": "x"}, "description": "größe"}
    await api("POST", "/templates/base", {"name": "base", "config": config, "workspaceId": 0})
    assert (await api("GET", "/templates/base"))["template"] == {"name": "base", "config": config, "workspaceId": 1}
    await api("POST", "/templates/other", {"name": "other", "config": {}, "workspaceId": 2})
    await api("PATCH", "/templates/base", {"environment": {"image": "y"}})
    assert (await api("GET", "/templates/base"))["template"]["config"] == {"environment": {"image": "y"}}
    assert [each["name"] for each in (await api("GET", "/templates"))["templates"]] == ["base", "other"]
    assert [each["name"] for each in (await api("GET", "/templates", workspaceIds=[2]))["templates"]] == ["other"]
    assert [each["name"] for each in (await api("GET", "/templates", name="BA"))["templates"]] == ["base"]
    assert (
        await refusal(api, "POST", "/templates/base", {"name": "base", "config": {}, "workspaceId": 0})
    ).status == 409
    assert (await refusal(api, "POST", "/templates/a", {"name": "b", "config": {}})).message.startswith("name: ")
    await api("PATCH", "/template/rename", {"oldName": "base", "newName": "basis"})
    await api("PUT", "/templates/basis", {"name": "basis", "config": {"a": 1}, "workspaceId": 2})
    assert (await api("GET", "/templates/basis"))["template"] == {"name": "basis", "config": {"a": 1}, "workspaceId": 1}
    await api("DELETE", "/templates/basis")
    assert (await refusal(api, "DELETE", "/templates/basis")).status == 404


async def test_policies_as_the_client_walks_them(api: Api) -> None:
    where = "/config-policies/global/NTSC"
    assert (await api("GET", where)) == {"configPolicies": {}}
    text = (
        "invariant_config: {resources: {priority: 50}}\nconstraints:\n  priority_limit: 10\n  resources: {max_slots: 4}"
    )
    told = {
        "invariant_config": {"resources": {"priority": 50}},
        "constraints": {"priority_limit": 10, "resources": {"max_slots": 4}},
    }
    assert (await api("PUT", where, {"configPolicies": text, "workloadType": "NTSC"})) == {"configPolicies": told}
    assert (await api("GET", where)) == {"configPolicies": told}
    assert (await api("GET", "/config-policies/global/EXPERIMENT")) == {"configPolicies": {}}
    lab = "/config-policies/workspaces/1/NTSC"
    await api("PUT", lab, {"configPolicies": "constraints: {resources: {max_slots: 9}}"})
    assert [policy.constraints.max_slots for policy in await applying(api)] == [9, 4]
    await api("DELETE", where)
    assert (await refusal(api, "DELETE", where)).status == 404
    assert (await api("GET", lab))["configPolicies"] == {"constraints": {"resources": {"max_slots": 9}}}
    assert "workloadType" in (await refusal(api, "GET", "/config-policies/global/CMD")).message


async def applying(api: Api) -> Sequence[Policy]:
    return await api.ground.services.policies.applying(Workload.TASK, WorkspaceId(1))


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
