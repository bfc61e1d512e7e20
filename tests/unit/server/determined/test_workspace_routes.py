"""What Determined's client asks about workspaces, projects, templates and policies, and gets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.unit.server.determined import account_api
from tests.unit.server.determined.account_api import Api, Refused

from muster.accounts.callers import WorkspaceId
from muster.accounts.policies import Policy, Workload
from muster.accounts.projects import ProjectId
from muster.api import errors

pytestmark = pytest.mark.postgres


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with account_api.api(tmp_path) as found:
        yield found


async def refusal(api: Api, method: str, path: str, body: object = None) -> Refused:
    with pytest.raises(Refused) as caught:
        await api(method, path, body)
    return caught.value


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
        assert "being deleted" in (await refusal(api, "PATCH", "/workspaces/2", {"name": "q"})).message
        assert (await api("DELETE", "/workspaces/2")) == {"completed": False}  # a client that tries again
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
