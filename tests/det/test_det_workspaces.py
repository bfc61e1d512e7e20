"""Workspaces, projects, templates, policies, groups and roles, through the unmodified client."""

import contextlib

from tests.det.det_client import Det
from tests.det.det_platform import DetPlatform, eventually
from tests.det.det_tasks import Watcher, new_mark, processes

from muster.sdk import Client, Selection
from muster.sdk.config import connection
from muster.sdk.resources import PODS

POLICY = "invariant_config:\n  resources: {priority: 50}\nconstraints: {priority_limit: 10}\n"


def test_workspaces_live_and_end(det: Det):
    made = det("workspace", "create", "lab", "--default-compute-pool", "default", "--json").json
    assert made["name"] == "lab"
    assert det("workspace", "describe", "lab", "--json").json["defaultComputePool"] == "default"
    det("workspace", "edit", "lab", "--name", "lab two")
    assert [row["Name"] for row in det("workspace", "list").rows] == ["Uncategorized", "lab two"]
    det("workspace", "archive", "lab two")
    assert det("workspace", "describe", "lab two", "--json").json["archived"] is True
    det("workspace", "unarchive", "lab two")
    assert det("workspace", "describe", "lab two", "--json").json["archived"] is False
    assert "default" in det("workspace", "list-pools", "lab two").out
    members = det("workspace", "list-members", "lab two").rows
    assert ("admin", "WorkspaceAdmin") in [(row["User/Group Name"], row["Role Name"]) for row in members]
    det("workspace", "delete", "lab two", "--yes")
    assert [row["Name"] for row in det("workspace", "list").rows] == ["Uncategorized"]
    assert "not found" in det("workspace", "describe", "lab two", code=1).text.lower()
    assert det.start("workspace", "delete", "Uncategorized", "--yes").wait().code == 1


def test_workspaces_are_bound_to_namespaces_and_quotas(det: Det):
    det("workspace", "create", "bound", "--namespace", "team-a")
    assert "team-a" in det("workspace", "bindings", "list", "bound").out
    det("workspace", "bindings", "set", "bound", "--namespace", "team-b")
    assert "team-b" in det("workspace", "bindings", "list", "bound").out
    det("workspace", "resource-quota", "set", "bound", "4")
    det("workspace", "bindings", "delete", "bound")
    assert "team-b" not in det("workspace", "bindings", "list", "bound").out


def test_tasks_of_a_workspace_run_in_its_namespace(det: Det, platform: DetPlatform, watch: Watcher):
    det("workspace", "create", "apart", "--namespace", "team-c")
    identity = watch.command("echo here; while :; do sleep 1; done", "-w", "apart")
    watch.until_logged(identity, "here")
    assert identity in det("cmd", "list", "-q", "-w", "apart").lines
    assert det("cmd", "list", "-q", "-w", "Uncategorized").lines == []
    with contextlib.closing(Client(connection(data=platform.data))) as client:
        pods = client.list(PODS, Selection(namespace="team-c"))
    assert [identity in pod["metadata"]["name"] for pod in pods] == [True]
    slot = next(slot for slot in det("slot", "list", "--json").json if slot["task_name"] != "FREE")
    assert (slot["type"], identity in slot["allocation_id"]) == ("cpu", True)
    det("workspace", "resource-quota", "set", "apart", "1")
    refused = det("cmd", "run", "-d", "-w", "apart", "true", code=1)
    assert "the workspace may hold 1 slots" in refused.text
    det("cmd", "kill", identity)
    watch.until_ended(identity)
    assert "room again" in det("cmd", "run", "-w", "apart", "echo room again").out


def test_the_end_of_a_workspace_is_the_end_of_its_tasks(det: Det, watch: Watcher):
    det("workspace", "create", "doomed")
    mark = new_mark()
    identity = watch.command(f"echo begun; while :; do sleep 1; done # {mark}", "-w", "doomed")
    watch.until_logged(identity, "begun")
    det("workspace", "delete", "doomed", "--yes")
    eventually(lambda: not processes(mark))
    assert "not found" in det("workspace", "describe", "doomed", code=1).text.lower()


def test_projects_live_and_end(det: Det):
    det("workspace", "create", "with-projects")
    det("project", "create", "with-projects", "vis", "--description", "images")
    assert [row["Name"] for row in det("project", "list", "with-projects").rows] == ["vis"]
    det("project", "edit", "with-projects", "vis", "--new_name", "viz", "--description", "pictures")
    row = det("workspace", "list-projects", "with-projects").rows[0]
    assert (row["Name"], row["Description"]) == ("viz", "pictures")
    det("project", "archive", "with-projects", "viz")
    refused = det("project", "edit", "with-projects", "viz", "--description", "x", code=1)
    assert "archived" in refused.text
    det("project", "unarchive", "with-projects", "viz")
    det("project", "delete", "with-projects", "viz", "--yes")
    assert det("project", "list", "with-projects", "--json").json == []


def test_templates_live_and_end(det: Det):
    det("workspace", "create", "with-templates")
    first = det.write("first.yaml", "environment: {environment_variables: {cpu: [A=1]}}\n")
    second = det.write("second.yaml", "resources: {slots: 2}\n")
    det("template", "create", "tpl", first, "-w", "with-templates")
    assert "A=1" in det("template", "describe", "tpl").out
    det("template", "set", "tpl", second)
    assert "slots: 2" in det("template", "describe", "tpl").out
    det("template", "set", "other", second)
    det("template", "set-value", "config", "other", first)
    assert "A=1" in det("template", "describe", "other").out
    rows = {row["Name"]: row["Workspace"] for row in det("template", "list").rows}
    assert rows == {"tpl": "with-templates", "other": "Uncategorized"}
    det("template", "remove", "tpl")
    assert "not found" in det("template", "describe", "tpl", code=1).text.lower()


def test_policies_live_and_end(det: Det):
    det("workspace", "create", "with-policies")
    path = det.write("policy.yaml", POLICY)
    det("config-policies", "set", "tasks", path)
    assert "priority_limit: 10" in det("config-policies", "describe", "tasks").out
    det("config-policies", "set", "experiment", path, "-w", "with-policies")
    assert "priority_limit: 10" in det("config-policies", "describe", "experiment", "-w", "with-policies").out
    assert "priority_limit" not in det("config-policies", "describe", "experiment").out
    det("config-policies", "delete", "tasks")
    assert "priority_limit" not in det("config-policies", "describe", "tasks").out
    broken = det.write("broken-policy.yaml", "constraints: {priority_limit: soon}\n")
    assert "priority_limit" in det("config-policies", "set", "tasks", broken, code=1).text


def members(det: Det, group: str) -> list[str]:
    return [user["username"] for user in det("user-group", "describe", group, "--json").json["users"]]


def test_groups_live_and_end(det: Det, platform: DetPlatform):
    platform.new_user("gus")
    platform.new_user("gia")
    det("user-group", "create", "team", "--add-user", "gus")
    det("user-group", "add-user", "team", "gia")
    assert [user["username"] for user in det("user-group", "describe", "team", "--json").json["users"]] == [
        "gus",
        "gia",
    ]
    assert "team" in det("user-group", "list", "--groups-user-belongs-to", "gia").out
    det("user-group", "remove-user", "team", "gus")
    det("user-group", "change-name", "team", "crew")
    assert members(det, "crew") == ["gia"]
    det("user-group", "delete", "crew", "--yes")
    assert "crew" not in det("user-group", "list").out


def test_a_role_lets_and_its_absence_refuses(det: Det, platform: DetPlatform):
    rolf = platform.new_user("rolf")
    det("workspace", "create", "closed")
    det("project", "create", "closed", "inside")
    assert "closed" not in rolf("workspace", "list").out
    assert "not found" in rolf("workspace", "describe", "closed", code=1).text.lower()
    det("rbac", "assign-role", "Viewer", "--username-to-assign", "rolf", "--workspace-name", "closed")
    assert "inside" in rolf("project", "list", "closed").out
    assert "may not" in rolf("project", "create", "closed", "mine", code=1).text
    det("user-group", "create", "editors", "--add-user", "rolf")
    det("rbac", "assign-role", "Editor", "--group-name-to-assign", "editors", "--workspace-name", "closed")
    rolf("project", "create", "closed", "mine")
    assert "may not" in rolf("workspace", "edit", "closed", "--name", "open", code=1).text
    assert "Editor" in det("rbac", "list-users-roles", "rolf").out
    assert "Editor" in det("rbac", "list-groups-roles", "editors").out
    assert "rolf" in det("rbac", "describe-role", "Viewer").out
    det("rbac", "unassign-role", "Editor", "--group-name-to-assign", "editors", "--workspace-name", "closed")
    assert "may not" in rolf("project", "create", "closed", "more", code=1).text
    assert "ClusterAdmin" in det("rbac", "list-roles").out
    assert "PERMISSION_TYPE_VIEW_WORKSPACE" in rolf("rbac", "my-permissions").out
    assert rolf.start("rbac", "assign-role", "ClusterAdmin", "--username-to-assign", "rolf").wait().code == 1


def pools_of(det: Det, workspace: str) -> list[str]:
    return det("workspace", "list-pools", workspace).rows[0]["Available Resource Pools"].split(", ")


def test_pools_are_bound_to_workspaces(det: Det):
    det("workspace", "create", "of-pool")
    det("resource-pool", "bindings", "add", "default", "of-pool")
    assert "of-pool" in det("resource-pool", "bindings", "list-workspaces", "default").out
    det("resource-pool", "bindings", "replace", "default", "Uncategorized")
    assert "of-pool" not in det("resource-pool", "bindings", "list-workspaces", "default").out
    assert "default" not in pools_of(det, "of-pool")
    det("resource-pool", "bindings", "remove", "default", "Uncategorized")
    assert "default" in pools_of(det, "of-pool")
    assert "no-such-pool" in det("resource-pool", "bindings", "add", "no-such-pool", "of-pool", code=1).text


def test_the_sdk_does_the_same(det: Det, platform: DetPlatform):
    told = det.python(
        f"""
from determined.experimental import client
d = client.Determined(master={platform.master!r}, user="admin", password={det.password!r})
user = d.create_user("sdk-user", admin=False, password="Passw0rdX")
user.rename("sdk-renamed")
user.change_display_name("From the SDK")
user.change_password("An0therPass")
user.deactivate(); user.activate()
print(d.get_user_by_name("sdk-renamed").display_name)
print("sdk-renamed" in [each.username for each in d.list_users()])
ws = d.create_workspace("sdk-ws")
project = ws.create_project("p", description="d")
print([each.name for each in ws.list_projects()], ws.get_project("p").description)
project.add_note("n", "text"); project.set_description("e"); project.archive(); project.unarchive()
print([note["name"] for note in project.notes], project.description)
print("default" in [pool.name for pool in ws.list_pools()])
print("sdk-ws" in [each.name for each in d.list_workspaces()])
ws.delete_project("p")
d.delete_workspace("sdk-ws")
print("sdk-ws" in [each.name for each in d.list_workspaces()])
"""
    )
    assert told.splitlines() == ["From the SDK", "True", "['p'] d", "['n'] e", "True", "True", "False"]
