"""Tasks of all kinds through Determined's API: what is launched, seen, ended, and by whom."""

import asyncio
import base64
import io
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, delete
from tests.unit.server.determined.account_api import Refused
from tests.unit.server.determined.task_api import Life, World, a_world, alive, generic

from muster.accounts.callers import Caller, UserId
from muster.api import core, muster
from muster.api.kueue.names import PRIORITY_CLASS_LABEL
from muster.api.objects import Key
from muster.engines.protocol import Exit, Failure
from muster.records.tables_tasks import ALLOCATIONS
from muster.settings.sections import PlatformSettings
from muster.settings.sections import Tasks as TasksSection
from muster.store.protocol import Create, Selection, write_one

TRUE = {"config": {"entrypoint": ["true"], "resources": {"slots": 1}}}
KINDS = ("command", "notebook", "shell", "tensorboard")
BODIES: dict[str, dict[str, Any]] = {
    "command": TRUE,
    "notebook": {"config": {"resources": {"slots": 1}}},
    "shell": {"config": {"resources": {"slots": 1}}},
    "tensorboard": {"config": {"work_dir": "/logs"}},
}
DONE, BAD = Exit(0), Exit(3, Failure.RESOURCES_FAILED, "it broke")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as found:
        yield found


@pytest.fixture
async def life(world: World) -> AsyncIterator[Life]:
    async with alive(world) as found:
        yield found


async def launch(life: Life, kind: str = "command", **more: Any) -> str:
    reply = await life.api("POST", f"/{kind}s", {**BODIES[kind], **more})
    found: str = reply[kind]["id"]
    return found


async def refusal(life: Life, method: str, path: str, body: object = None) -> Refused:
    with pytest.raises(Refused) as caught:
        await life.api(method, path, body)
    return caught.value


async def pod_of(life: Life, task: str) -> dict[str, Any]:
    entry = life.world.machine.entries[f"{task}.1"]  # type: ignore[index]
    found: dict[str, Any] = entry.request.template
    return found


async def environment(life: Life, task: str) -> dict[str, str]:
    (container,) = (await pod_of(life, task))["spec"]["containers"]
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_is_launched_listed_got_and_killed(life: Life, kind: str) -> None:
    reply = await life.api("POST", f"/{kind}s", BODIES[kind])
    task = reply[kind]["id"]
    assert reply["warnings"] == []
    assert reply["config"]["resources"]["priority"] == 42
    await life.until_runs(task)
    (listed,) = (await life.api("GET", f"/{kind}s"))[f"{kind}s"]
    got = await life.api("GET", f"/{kind}s/{task}")
    assert listed["id"] == task == got[kind]["id"]
    assert got[kind]["state"] == "STATE_RUNNING"
    assert got[kind]["container"]["parent"] == "n1"
    assert (got[kind]["username"], got[kind]["workspaceId"]) == ("admin", 1)
    assert got["config"] == reply["config"]
    await life.api("POST", f"/{kind}s/{task}/kill")
    await life.until_ended(task)
    got = await life.api("GET", f"/{kind}s/{task}")
    assert got[kind]["state"] == "STATE_TERMINATED"
    assert "killed after user admin asked for it" in got[kind]["exitStatus"]
    await life.api("POST", f"/{kind}s/{task}/kill")  # again


async def test_a_task_of_another_kind_is_not_found(life: Life) -> None:
    task = await launch(life)
    assert (await refusal(life, "GET", f"/notebooks/{task}")).status == 404
    assert (await refusal(life, "POST", f"/shells/{task}/kill")).status == 404
    assert (await refusal(life, "GET", "/commands/nothing")).status == 404


async def test_what_a_task_is_told(life: Life) -> None:
    task = await launch(
        life, config={**TRUE["config"], "environment": {"environment_variables": ["A=$(B)", "DET_USER=x"]}}
    )
    env = await environment(life, task)
    assert env["DET_USER"] == "admin"
    assert env["DET_MASTER"] == "http://127.0.0.1:7077"
    assert env["A"] == "$$(B)"
    assert env["DET_TASK_ID"] == task
    secrets = life.world.machine.entries[f"{task}.1"].secrets  # type: ignore[index]
    caller = await life.world.ground.services.accounts.authenticate(secrets["DET_USER_TOKEN"])
    assert caller is not None
    assert caller.username == "admin"
    maps = await life.world.store.list(Selection(core.CONFIG_MAP))
    assert [found.key.name for found in maps.items] == [
        volume["configMap"]["name"] for volume in (await pod_of(life, task))["spec"]["volumes"] if "configMap" in volume
    ]
    life.finish(task, DONE)
    await life.until_ended(task)
    assert await life.world.ground.services.accounts.authenticate(secrets["DET_USER_TOKEN"]) is None


async def test_how_a_task_ended_is_seen(life: Life) -> None:
    task = await launch(life)
    await life.until_runs(task)
    life.finish(task, BAD)
    await life.until_ended(task)
    found = (await life.api("GET", f"/tasks/{task}"))["task"]
    assert found["endTime"] is not None
    assert found["taskType"] == "TASK_TYPE_COMMAND"
    (run,) = found["allocations"]
    assert (run["state"], run["statusCode"], run["isReady"]) == ("STATE_TERMINATED", 3, False)


async def test_a_service_is_ready_when_it_says_so(life: Life) -> None:
    task = await launch(life, "notebook")
    await life.until_runs(task)
    assert not (await life.api("GET", f"/tasks/{task}"))["task"]["allocations"][0]["isReady"]
    itself = life.api.by(Caller(UserId(1), "admin", allocation=f"{task}.1", task=task))
    await itself("POST", f"/allocations/{task}.1/ready")
    assert (await life.api("GET", f"/tasks/{task}"))["task"]["allocations"][0]["isReady"]


# Files


async def test_files_are_there_for_the_task_itself_and_go_with_it(life: Life) -> None:
    content = base64.b64encode(b"hello").decode()
    files = [{"path": "a.txt", "type": 48, "content": content, "mode": 420, "mtime": "12", "uid": 0, "gid": 0}]
    task = await launch(life, files=files)
    assert (await environment(life, task))["DET_HAS_CONTEXT"] == "1"
    itself = life.api.by(Caller(UserId(1), "admin", allocation=f"{task}.1", task=task))
    packed = base64.b64decode((await itself("GET", f"/tasks/{task}/context_directory"))["b64Tgz"])
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        found = archive.extractfile("a.txt")
        assert found is not None
        assert found.read() == b"hello"
    other = life.api.by(Caller(UserId(1), "admin", allocation="x.1", task="x"))
    with pytest.raises(Refused) as caught:
        await other("GET", f"/tasks/{task}/context_directory")
    assert caught.value.status == 403
    await life.until_runs(task)
    life.finish(task, DONE)
    await life.until_ended(task)
    async with asyncio.timeout(5):
        while (await life.api("GET", f"/tasks/{task}/context_directory"))["b64Tgz"]:
            await asyncio.sleep(0.005)


def packed_with(name: str, kind: bytes = tarfile.REGTYPE) -> str:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return base64.b64encode(out.getvalue()).decode()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"files": [{"path": "../x", "content": ""}]}, "files[0].path"),
        ({"files": [{"path": "/etc/x", "content": ""}]}, "files[0].path"),
        ({"files": [{"path": "x", "content": "???"}]}, "files[0].content"),
        ({"b64Tgz": packed_with("../x")}, "contextDirectory: must be a relative path"),
        ({"b64Tgz": packed_with("x", tarfile.SYMTYPE)}, "neither a file nor a directory"),
        ({"b64Tgz": "AAAA"}, "is not a whole tar.gz"),
        ({"b64Tgz": "?"}, "b64Tgz: is not base64"),
        ({"config": {}}, "entrypoint: must name what to run"),
        ({"config": {"entrypoint": ["x"], "resources": {"resource_pool": "iron"}}}, "no pool 'iron'"),
        ({"config": {"entrypoint": ["x"], "resources": {"slots": 99}}}, "resources.slots"),
        ({"config": {"entrypoint": ["x"], "bind_mounts": [{"host_path": "/etc", "container_path": "x"}]}}, "/etc may"),
        ({"templateName": "none"}, "template 'none' not found"),
        ({"workspaceId": 77}, "workspace 77 not found"),
        ({"config": {"entrypoint": ["x"], "environment": {"proxy_ports": [{"proxy_port": 8}] * 2}}}, "8 is taken"),
    ],
)  # fmt: skip
async def test_what_will_not_do_is_refused_and_leaves_nothing(life: Life, body: dict[str, Any], says: str) -> None:
    found = await refusal(life, "POST", "/commands", {**TRUE, **body})
    assert found.status in (400, 404, 413)
    assert says in found.message
    assert (await life.api("GET", "/commands"))["commands"] == []
    assert not list((life.world.folder / "contexts").glob("*"))
    assert life.world.machine.entries == {}


# Who may


async def test_others_see_and_do_what_their_roles_allow(life: Life) -> None:
    task = await launch(life, "shell")
    viewer = await life.api.new_user("viewer", "Viewer", 1)
    stranger = await life.api.new_user("stranger")
    assert (await viewer("GET", f"/shells/{task}"))["shell"]["id"] == task
    assert len((await viewer("GET", "/shells"))["shells"]) == 1
    assert (await stranger("GET", "/shells"))["shells"] == []
    for who, method, path, status in (
        (viewer, "POST", f"/shells/{task}/kill", 403),
        (viewer, "POST", "/shells", 403),
        (stranger, "GET", f"/shells/{task}", 404),
        (stranger, "GET", f"/tasks/{task}", 404),
        (stranger, "POST", f"/shells/{task}/kill", 404),
        (stranger, "POST", "/shells", 404),
    ):
        with pytest.raises(Refused) as caught:
            await who(method, path, BODIES["shell"] if path == "/shells" else None)
        assert (path, caught.value.status) == (path, status)
    assert (await stranger("GET", "/tasks"))["allocationIdToSummary"] == {}


async def test_the_key_of_a_shell_is_for_its_user_alone_and_dies_with_it(life: Life) -> None:
    launched = (await life.api("POST", "/shells", BODIES["shell"]))["shell"]
    task, key = launched["id"], launched["privateKey"]
    assert key.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert launched["agentUserGroup"]["user"]
    assert (await life.api("GET", f"/shells/{task}"))["shell"]["privateKey"] == key
    assert (await life.api("GET", "/shells"))["shells"][0]["privateKey"] == ""
    editor = await life.api.new_user("editor", "Editor", 1)
    assert (await editor("GET", f"/shells/{task}"))["shell"]["privateKey"] == ""
    env = await environment(life, task)
    assert env["DET_SHELL_AUTHORIZED_KEY"] == launched["publicKey"]
    assert key not in json.dumps(await pod_of(life, task))
    await life.api("POST", f"/shells/{task}/kill")
    await life.until_ended(task)
    assert (await life.api("GET", f"/shells/{task}"))["shell"]["privateKey"] == ""


async def test_the_token_of_a_notebook_is_for_those_who_may_use_it(life: Life) -> None:
    launched = (await life.api("POST", "/notebooks", BODIES["notebook"]))["notebook"]
    address = launched["serviceAddress"]
    assert address.startswith(f"/proxy/{launched['id']}/?token=")
    token = address.partition("token=")[2]
    secrets = life.world.machine.entries[f"{launched['id']}.1"].secrets  # type: ignore[index]
    assert secrets["DET_NOTEBOOK_TOKEN"] == token
    assert token not in json.dumps(await pod_of(life, launched["id"]))
    viewer = await life.api.new_user("viewer", "Viewer", 1)
    seen = (await viewer("GET", f"/notebooks/{launched['id']}"))["notebook"]
    assert seen["serviceAddress"] == f"/proxy/{launched['id']}/"


# Lists


async def test_lists_are_filtered_sorted_and_cut(life: Life) -> None:
    ann = await life.api.new_user("ann", "Editor", 1)
    for name in ("b", "c", "a"):
        await launch(life, config={**TRUE["config"], "description": name})
    await ann("POST", "/commands", {"config": {"entrypoint": ["true"], "description": "ann's"}})

    async def described(**query: object) -> list[str]:
        return [found["description"] for found in (await life.api("GET", "/commands", **query))["commands"]]

    assert await described() == ["b", "c", "a", "ann's"]
    assert await described(users=["ann"]) == ["ann's"]
    assert await described(users=["admin"], sortBy="SORT_BY_DESCRIPTION") == ["a", "b", "c"]
    assert await described(orderBy="ORDER_BY_DESC", limit=2) == ["ann's", "a"]
    assert await described(workspaceId=9) == []
    page = await life.api("GET", "/commands", limit=2, offset=1)
    assert page["pagination"] == {"offset": 1, "limit": 2, "startIndex": 1, "endIndex": 3, "total": 4}
    with pytest.raises(Refused, match="400"):
        await described(sortBy="SORT_BY_LUCK")


async def test_what_runs_is_listed_by_its_allocation(life: Life) -> None:
    task = await launch(life, "notebook")
    await life.until_runs(task)
    found = (await life.api("GET", "/tasks"))["allocationIdToSummary"]
    summary = found[f"{task}.1"]
    assert (summary["slotsNeeded"], summary["resourcePool"], summary["priority"]) == (1, "default", 42)
    assert list(summary["resources"][0]["agentDevices"]) == ["n1"]
    port = int((await environment(life, task))["NOTEBOOK_PORT"])
    assert 2900 <= port < 3200
    assert [each["port"] for each in summary["proxyPorts"]] == [port]
    assert await life.api("GET", "/tasks/count") == {"commands": 0, "notebooks": 1, "shells": 0, "tensorboards": 0}


async def test_a_preview_is_only_that(life: Life) -> None:
    reply = await life.api("POST", "/notebooks", {"config": {"idle_timeout": "1h"}, "preview": True})
    assert reply["config"]["idle_timeout"] == "3600s"
    assert reply["notebook"]["id"] == ""
    assert (await life.api("GET", "/notebooks"))["notebooks"] == []


# Templates, policies, settings


async def test_templates_and_policies_count(life: Life) -> None:
    await life.api(
        "POST", "/templates/tpl", {"name": "tpl", "config": {"resources": {"priority": 7}}, "workspaceId": 1}
    )
    await life.api(
        "PUT", "/config-policies/global/NTSC", {"configPolicies": "constraints: {resources: {max_slots: 1}}"}
    )
    reply = await life.api("POST", "/commands", {**TRUE, "template_name": "tpl"})
    assert reply["config"]["resources"]["priority"] == 7
    too_many = {"config": {"entrypoint": ["x"], "resources": {"slots": 2}}}
    assert "1 slots at most" in (await refusal(life, "POST", "/commands", too_many)).message


async def test_settings_of_the_cluster_count(world: World) -> None:
    settings = PlatformSettings(
        tasks=TasksSection(
            bind_mounts=["/data"], tensorboard_timeout_seconds=60, python="/opt/python", agent_user="det"
        ),
        task_container_defaults={"startup_hook": "echo", "environment_variables": ["FROM=defaults"]},
    )
    async with alive(world, settings) as life:
        mount = {"host_path": "/data/x", "container_path": "data", "read_only": True}
        task = await launch(life, config={**TRUE["config"], "bind_mounts": [mount]})
        env = await environment(life, task)
        assert (env["FROM"], env["DET_PYTHON_EXECUTABLE"], env["DET_NEEDS_MOUNTS"]) == ("defaults", "/opt/python", "1")
        (container,) = (await pod_of(life, task))["spec"]["containers"]
        shown = {"name": "bind-0", "mountPath": "/run/determined/workdir/data", "readOnly": True}
        assert shown in container["volumeMounts"]
        board = await life.api("POST", "/tensorboards", BODIES["tensorboard"])
        assert board["config"]["idle_timeout"] == "60s"
        shell = await life.api("POST", "/shells", BODIES["shell"])
        assert shell["shell"]["agentUserGroup"]["user"] == "det"


async def test_a_task_runs_as_whom_its_user_is_linked_with(life: Life) -> None:
    ann = await life.api.new_user("ann", "Editor", 1)
    user = (await life.api("GET", "/users/ann/by-username"))["user"]["id"]
    linked = {"agentUid": 1001, "agentGid": 1002, "agentUser": "annie", "agentGroup": "people"}
    await life.api("PATCH", f"/users/{user}", {"agentUserGroup": linked})
    body = {"config": {"resources": {"slots": 1}, "work_dir": "/home/$AGENT_USER"}}
    made = await ann("POST", "/shells", body)
    assert made["shell"]["agentUserGroup"] == {"user": "annie", "uid": 1001, "group": "people", "gid": 1002}
    assert made["config"]["work_dir"] == "/home/annie"
    pod = await pod_of(life, made["shell"]["id"])
    assert pod["spec"]["securityContext"] == {"runAsUser": 1001, "runAsGroup": 1002, "fsGroup": 1002}
    await life.api("PATCH", f"/users/{user}", {"agentUserGroup": {**linked, "agentUser": "other"}})
    shown = (await ann("GET", f"/shells/{made['shell']['id']}"))["shell"]
    assert shown["agentUserGroup"]["user"] == "annie", "it runs as it was begun"


# Priority


async def test_a_priority_can_be_changed_while_it_runs(life: Life) -> None:
    task = await launch(life)
    await life.until_runs(task)
    template = await pod_of(life, task)
    await write_one(
        life.world.store,
        Create(
            muster.ALLOCATION,
            {
                "metadata": {
                    "name": f"{task}.1",
                    "namespace": "default",
                    "labels": {"muster.dev/task": task, PRIORITY_CLASS_LABEL: "task-priority-42"},
                },
                "spec": {"taskId": task, "taskType": "COMMAND", "template": template},
            },
        ),
    )
    await life.api("POST", f"/commands/{task}/set_priority", {"priority": 3})
    found = await life.world.store.get(muster.ALLOCATION, Key("default", f"{task}.1"))
    assert found.read(muster.Allocation).spec.priority == 3
    assert (found.meta.labels or {})[PRIORITY_CLASS_LABEL] == "task-priority-3"
    assert (await life.api("GET", f"/commands/{task}"))["config"]["resources"]["priority"] == 3
    assert (await refusal(life, "POST", f"/commands/{task}/set_priority", {"priority": 100})).status == 400
    for policy, says in (
        ("constraints: {priority_limit: 20}", "no number below 20"),
        ("invariant_config: {resources: {priority: 30}}", "fixes it at 30"),
    ):
        await life.api("PUT", "/config-policies/global/NTSC", {"configPolicies": policy})
        assert says in (await refusal(life, "POST", f"/commands/{task}/set_priority", {"priority": 10})).message
    await life.api("DELETE", "/config-policies/global/NTSC")
    life.finish(task, DONE)
    await life.until_ended(task)
    assert (await refusal(life, "POST", f"/commands/{task}/set_priority", {"priority": 4})).status == 409


# Workspaces that are deleted


async def test_tasks_end_with_their_workspace(life: Life) -> None:
    made = (await life.api("POST", "/workspaces", {"name": "team"}))["workspace"]["id"]
    runs = await launch(life, workspaceId=made)
    project = (await life.api("POST", f"/workspaces/{made}/projects", {"name": "p", "workspaceId": made}))["project"][
        "id"
    ]
    paused = await generic(life, config='entrypoint: "x"', projectId=project)
    await life.until_runs(paused)
    await life.api("POST", f"/tasks/{paused}/pause")
    await life.until_state(paused, "PAUSED")
    elsewhere = await launch(life)
    assert await life.tasks.is_in(made, None)
    await life.tasks.vacate(made, None)
    assert not await life.tasks.is_in(made, None)
    for task in (runs, paused):
        assert (await life.tasks.get(task)).ended is not None
    assert (await life.tasks.get(elsewhere)).ended is None


# Idleness


async def test_a_service_that_nobody_uses_is_ended(world: World) -> None:
    settings = PlatformSettings(tasks=TasksSection(notebook_timeout_seconds=0.2))
    async with alive(world, settings) as life:
        task = await launch(life, "notebook")
        await life.until_runs(task)
        watch = life.tasks.idle
        itself = life.api.by(Caller(UserId(1), "admin", allocation=f"{task}.1", task=task))
        await asyncio.sleep(0.25)
        await watch.look()  # it takes longer to start than it may be idle
        await itself("POST", f"/allocations/{task}.1/ready", None)
        assert (await life.tasks.get(task)).ended is None
        await asyncio.sleep(0.15)
        await watch.look()
        assert (await life.tasks.get(task)).ended is None
        await itself("PUT", f"/notebooks/{task}/report_idle", {"idle": False})
        await asyncio.sleep(0.15)
        await watch.look()
        assert (await life.tasks.get(task)).ended is None
        await itself("PUT", f"/notebooks/{task}/report_idle", {"idle": True})
        await asyncio.sleep(0.15)
        await watch.look()
        await life.until_ended(task)
        assert "idle for more than 0.2 s" in (await life.api("GET", f"/notebooks/{task}"))["notebook"]["exitStatus"]


# Restarts


async def test_after_a_restart_all_is_as_it_was(world: World) -> None:
    async with alive(world) as life:
        task = await launch(life, "shell", files=[{"path": "a", "type": 48, "content": ""}])
        await life.until_runs(task)
        before = await life.api("GET", f"/shells/{task}")
        (world.folder / "contexts" / "left-behind.tgz").write_bytes(b"x")
    async with alive(world) as life:
        await life.until_runs(task)
        assert await life.api("GET", f"/shells/{task}") == before
        assert [path.stem for path in (world.folder / "contexts").iterdir()] == [task]
        other = await launch(life, "shell")
        assert (await environment(life, other))["SHELL_PORT"] != (await environment(life, task))["SHELL_PORT"]
        await life.api("POST", f"/shells/{task}/kill")
        await life.until_ended(task)


async def test_what_was_never_acknowledged_is_over_after_a_restart(world: World) -> None:
    async with alive(world) as life:
        task = await launch(life)
        await life.until_runs(task)
        await world.ground.database.write(lambda connection: _forget_runs(connection, task))
    world.machine.entries.clear()
    async with alive(world) as life:
        assert (await life.tasks.get(task)).ended is not None
        assert (await life.api("GET", f"/commands/{task}"))["command"]["state"] == "STATE_TERMINATED"


def _forget_runs(connection: Connection, task: str) -> None:
    connection.execute(delete(ALLOCATIONS).where(ALLOCATIONS.c.task_id == task))
