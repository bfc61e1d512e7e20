"""Every route about accounts has a rule, and none lets a viewer change what is not theirs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.server.determined import account_api
from tests.unit.server.determined.account_api import Api, Refused

from muster.accounts.permissions import CLUSTER_ONLY, ROLES, Permission
from muster.server.determined import permission_names
from muster.server.determined.routing import Route

pytestmark = pytest.mark.postgres

READING_POSTS = {
    "/api/v1/groups/search",
    "/api/v1/roles/search",
    "/api/v1/roles/search/by-assignability",
}
OWN = {
    "POST /api/v1/auth/login",
    "POST /api/v1/auth/logout",
    "POST /api/v1/users/setting",
    "POST /api/v1/users/setting/reset",
    "POST /api/v1/users/activity",
    "POST /api/v1/workspaces/{id}/pin",
    "POST /api/v1/workspaces/{id}/unpin",
}
"""What everybody may change of their own. (Own tokens and passwords are tested below.)"""
HIDDEN = {"PATCH /api/v1/tokens/{tokenId}"}
"""What is somebody else's is not there, also for who may see the cluster."""
BODIES = {
    "POST /api/v1/roles/add-assignments": {
        "userRoleAssignments": [{"userId": 3, "roleAssignment": {"role": {"roleId": 1}}}]
    },
    "POST /api/v1/roles/remove-assignments": {
        "userRoleAssignments": [{"userId": 3, "roleAssignment": {"role": {"roleId": 4}, "scopeWorkspaceId": 2}}]
    },
    "POST /api/v1/tokens": {"userId": 1},
    "POST /api/v1/users/{userId}/password": "An0therone",
    "PATCH /api/v1/template/rename": {"oldName": "tpl", "newName": "other"},
}
PATHS = {
    "{userId}": "1", "{tokenId}": "1", "{groupId}": "1", "{workspaceId}": "2", "{id}": "2", "{projectId}": "2",
    "{templateName}": "tpl", "{template_name}": "tpl", "{workloadType}": "NTSC", "{resourcePoolName}": "gold",
    "{username}": "ann", "{key}": "KEY",
}  # fmt: skip


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with account_api.api(tmp_path) as found:
        await found("POST", "/workspaces", {"name": "lab"})
        await found("POST", "/workspaces/2/projects", {"name": "vision"})
        await found("POST", "/templates/tpl", {"name": "tpl", "config": {}, "workspaceId": 2})
        await found("POST", "/groups", {"name": "team"})
        await found("POST", "/tokens", {"userId": 1})
        await found("PUT", "/config-policies/workspaces/2/NTSC", {"configPolicies": "constraints: {priority_limit: 3}"})
        yield found


def is_changing(route: Route) -> bool:
    return route.method != "GET" and route.path not in READING_POSTS


def concrete(route: Route) -> str:
    path = route.path.removeprefix("/api/v1")
    for name, value in PATHS.items():
        path = path.replace(name, value)
    assert "{" not in path
    return path


async def test_a_viewer_changes_nothing_and_a_stranger_not_even_sees_it(api: Api) -> None:
    viewer, stranger = await api.new_user("vic", "Viewer"), await api.new_user("sid")
    checked = 0
    for route in api.router.routes:
        name = f"{route.method} {route.path}"
        if not is_changing(route) or name in OWN:
            continue
        checked += 1
        for caller, statuses in ((viewer, {404} if name in HIDDEN else {403}), (stranger, {403, 404})):
            with pytest.raises(Refused) as caught:
                await caller(route.method, concrete(route), BODIES.get(name, {}))
            assert caught.value.status in statuses, (name, caught.value)
    assert checked > 35


async def test_only_what_is_public_is_for_those_who_are_not_known(api: Api) -> None:
    public = {f"{route.method} {route.path}" for route in api.router.routes if route.rule.is_public}
    assert public == {"POST /api/v1/auth/login"}
    for route in api.router.routes:
        if not route.rule.is_public and route.path.startswith("/api/v1"):
            with pytest.raises(Refused) as caught:
                await api.by(None)(route.method, concrete(route))
            assert caught.value.status == 401


async def test_a_tasks_token_changes_nothing_of_its_users_account(api: Api) -> None:
    ann = await api.new_user("ann", "ClusterAdmin")
    assert ann.caller is not None
    task = api.by(type(ann.caller)(ann.caller.user, "ann", allocation="t.0", task="t"))
    mine = f"/users/{ann.caller.user}"
    for method, path in (
        ("POST", "/auth/logout"), ("POST", "/tokens"), ("PATCH", mine), ("POST", "/users/setting/reset"),
        ("POST", "/workspaces/2/pin"), ("POST", "/workspaces"), ("DELETE", "/workspaces/2"),
    ):  # fmt: skip
        with pytest.raises(Refused) as caught:
            await task(method, path, {"userId": ann.caller.user, "name": "x"})
        assert caught.value.status == 403, (method, path)


async def test_the_administrator_may_do_all_of_it(api: Api) -> None:
    for route in api.router.routes:
        name = f"{route.method} {route.path}"
        if is_changing(route) and route.rule.permission is not None:
            status = 200
            try:
                await api(route.method, concrete(route), BODIES.get(name, {}))
            except Refused as refused:
                status = refused.status
            assert status in (200, 400, 404, 409), name


async def test_an_editor_edits_in_the_own_workspace_only(api: Api) -> None:
    await api("POST", "/workspaces", {"name": "other"})
    editor = await api.new_user("ed", "Editor", 2)
    await editor("PATCH", "/projects/2", {"description": "mine"})
    await editor("PATCH", "/templates/tpl", {"a": 1})
    assert [each["name"] for each in (await editor("GET", "/workspaces"))["workspaces"]] == ["lab"]
    for method, path, body, status in (
        ("PATCH", "/workspaces/2", {"name": "taken over"}, 403),
        ("GET", "/workspaces/3", None, 404),
        ("GET", "/workspaces/3/projects", None, 404),
        ("POST", "/workspaces/3/projects", {"name": "x"}, 404),
        ("POST", "/projects/2/move", {"destinationWorkspaceId": 3}, 404),
        ("POST", "/templates/new", {"workspaceId": 3}, 404),
        ("POST", "/roles/add-assignments", BODIES["POST /api/v1/roles/add-assignments"], 403),
    ):
        with pytest.raises(Refused) as caught:
            await editor(method, path, body)
        assert caught.value.status == status, (method, path, caught.value)


async def test_the_administrator_of_a_workspace_gives_rights_there_and_nowhere_else(api: Api) -> None:
    boss = await api.new_user("boss", "WorkspaceAdmin", 2)
    friend = await api.new_user("friend")
    assert friend.caller is not None
    user = friend.caller.user

    def wanted(role: int, workspace: int | None) -> dict[str, object]:
        assignment = {"role": {"roleId": role}, "scopeWorkspaceId": workspace}
        return {"userRoleAssignments": [{"userId": user, "roleAssignment": assignment}]}

    with pytest.raises(Refused, match="404"):
        await friend("GET", "/workspaces/2")
    await boss("POST", "/roles/add-assignments", wanted(4, 2))
    assert (await friend("GET", "/workspaces/2"))["workspace"]["name"] == "lab"
    for role, workspace, status in ((4, None, 403), (1, None, 403), (1, 2, 400), (4, 1, 404), (99, 2, 404)):
        with pytest.raises(Refused) as caught:
            await boss("POST", "/roles/add-assignments", wanted(role, workspace))
        assert caught.value.status == status, (role, workspace, caught.value)
    await boss("POST", "/roles/remove-assignments", wanted(4, 2))
    with pytest.raises(Refused, match="404"):
        await friend("GET", "/workspaces/2")


async def test_a_group_hands_its_rights_to_who_is_in_it_and_takes_them_with_it(api: Api) -> None:
    ann = await api.new_user()
    assert ann.caller is not None
    place = {"role": {"roleId": 4}, "scopeWorkspaceId": 2}
    await api("POST", "/roles/add-assignments", {"groupRoleAssignments": [{"groupId": 1, "roleAssignment": place}]})
    with pytest.raises(Refused, match="404"):
        await ann("GET", "/workspaces/2")
    await api("PUT", "/groups/1", {"addUsers": [ann.caller.user]})
    await ann("GET", "/workspaces/2")
    summary = await ann("GET", "/permissions/summary")
    assert summary["assignments"] == [{"roleId": 4, "scopeCluster": False, "scopeWorkspaceIds": [2]}]
    await api("DELETE", "/groups/1")
    with pytest.raises(Refused, match="404"):
        await ann("GET", "/workspaces/2")


async def test_what_a_group_may_is_for_its_members_to_know(api: Api) -> None:
    ann, eve = await api.new_user("ann"), await api.new_user("eve")
    assert ann.caller is not None
    place = {"role": {"roleId": 4}, "scopeWorkspaceId": 2}
    await api("POST", "/roles/add-assignments", {"groupRoleAssignments": [{"groupId": 1, "roleAssignment": place}]})
    await api("PUT", "/groups/1", {"addUsers": [ann.caller.user]})
    for caller in (api, ann):
        found = await caller("GET", "/roles/search/by-group/1")
        assert found["assignments"] == [{"roleId": 4, "scopeCluster": False, "scopeWorkspaceIds": [2]}]
    with pytest.raises(Refused, match="403"):
        await eve("GET", "/roles/search/by-group/1")


async def test_a_user_may_be_called_like_a_word_of_ours(api: Api) -> None:
    for username in ("setting", "activity", "assignments"):
        await api.new_user(username)
        found = await api("GET", f"/users/{username}/by-username")
        assert found["user"]["username"] == username


async def test_a_template_of_others_is_not_replaced_nor_told_of(api: Api) -> None:
    await api("POST", "/workspaces", {"name": "other"})
    editor, viewer = await api.new_user("ed", "Editor", 3), await api.new_user("vic", "Editor", 3)
    assert viewer.caller is not None
    await api.ground.grant(viewer.caller.user, "Viewer", 2)
    for caller, status, told in ((editor, 409, "already"), (viewer, 403, "edit templates")):
        with pytest.raises(Refused, match=told) as caught:
            await caller("PUT", "/templates/tpl", {"config": {"mine": 1}, "workspaceId": 3})
        assert caught.value.status == status
    await api.ground.grant(viewer.caller.user, "Editor", 2)
    kept = await viewer("PUT", "/templates/tpl", {"config": {"mine": 1}, "workspaceId": 3})
    assert kept["template"] == {"name": "tpl", "config": {"mine": 1}, "workspaceId": 2}


async def test_whoever_makes_a_workspace_administrates_it(api: Api) -> None:
    maker = await api.new_user("max", "WorkspaceCreator")
    made = (await maker("POST", "/workspaces", {"name": "mine"}))["workspace"]
    await maker("PATCH", f"/workspaces/{made['id']}", {"name": "still mine"})
    with pytest.raises(Refused, match="404"):
        await maker("PATCH", "/workspaces/2", {"name": "not mine"})
    for method, path in (("POST", "/workspaces"), ("PATCH", f"/workspaces/{made['id']}")):
        for body in ({"agentUserGroup": {"agentUid": 0}}, {"clusterNamespaceMeta": {"": {"namespace": "kube-system"}}}):
            with pytest.raises(Refused, match="403"):
                await maker(method, path, {"name": "root", **body})


def test_roles_for_a_workspace_give_nothing_that_is_the_clusters() -> None:
    for role in ROLES.values():
        if not role.is_for_workspace:
            continue
        assert not (role.permissions & CLUSTER_ONLY) - {Permission.VIEW_CLUSTER}


def test_every_permission_has_a_name_that_the_client_knows() -> None:
    shown = [name for permission in Permission for name in permission_names.names(permission)]
    assert len(shown) == len(set(shown))
    assert all(name.startswith("PERMISSION_TYPE_") for name in shown)
