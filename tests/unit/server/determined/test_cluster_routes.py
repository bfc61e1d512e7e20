"""Agents, slots, pools, jobs and usage as Determined's client asks for them, over a real store and real records."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert
from tests.unit.server.determined.account_api import Api, Refused, callers

from muster.accounts.callers import Caller
from muster.api import core, kueue, muster
from muster.api.objects import Key
from muster.api.raw import Document
from muster.records.tables_accounts import POOL_BINDINGS
from muster.records.tables_tasks import ALLOCATIONS, JOBS, TASKS
from muster.runtime.clock import SystemClock
from muster.server.determined import account_routes, agents, job_queue, pools, usage
from muster.server.determined.router import Router
from muster.server.determined.usage import UsagePages
from muster.server.exchange import Query, Request
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Patch, write_one
from muster.tasks.agent_control import AgentControl
from muster.tasks.cluster_views import ClusterViews
from muster.tasks.cluster_watching import ClusterWatch
from muster.tasks.job_control import JobControl
from muster.tasks.usage import Usage
from muster.testing import accounts

pytestmark = pytest.mark.postgres
GPU = "nvidia.com/gpu"


@dataclass
class Waiting:
    """Who waits for quota, as a test says it."""

    names: dict[str, list[str]] = field(default_factory=dict)

    async def in_cluster_queue(self, name: str, offset: int, limit: int) -> Iterator[Document] | None:
        return iter([{"metadata": {"namespace": "default", "name": each}} for each in self.names.get(name, [])])


@dataclass
class World:
    api: Api
    store: EmbeddedStore
    watch: ClusterWatch
    waiting: Waiting
    pages: UsagePages

    async def node(self, name: str, gpus: int = 0, cpu: str = "4", **more: Any) -> None:
        resources = {"cpu": cpu, "memory": "8Gi", "pods": "10", **({GPU: str(gpus)} if gpus else {})}
        document: Document = {"metadata": {"name": name, **more}, "spec": {}}
        await write_one(self.store, Create(core.NODE, document))
        status = {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "muster-0", "architecture": "amd64"},
        }
        await write_one(self.store, Patch(core.NODE, Key("", name), {"status": status}, subresource="status"))
        await self.settled()

    async def pod(self, name: str, node: str, *, task: str = "", devices: str = "", **requests: str) -> None:
        labels = {"muster.dev/task": task, "muster.dev/allocation": f"{task}.1"} if task else {}
        annotations = {"muster.dev/gpu-devices": devices} if devices else {}
        asked = {key.replace("gpu", GPU): value for key, value in requests.items()}
        container = {"name": "main", "image": "x", "resources": {"requests": asked, "limits": asked}}
        document: Document = {
            "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [container], "restartPolicy": "Never"},
        }
        await write_one(self.store, Create(core.POD, document))
        key = Key("default", name)
        await write_one(self.store, Patch(core.POD, key, {"status": {"phase": "Running"}}, subresource="status"))
        await self.settled()

    async def allocation(self, task: str, phase: str = "Queued", *, pool: str = "default", **more: Any) -> None:
        spec = {"taskId": task, "jobId": f"job-{task}", "name": task, "taskType": "COMMAND", "pool": pool,
                "queueName": pool, "priority": 42, "slots": 2, "pods": 1, "suspend": phase == "Queued", **more,
                "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}  # fmt: skip
        labels = {"muster.dev/task": task, "kueue.x-k8s.io/priority-class": "task-priority-42"}
        metadata = {"name": f"{task}.1", "namespace": "default", "labels": labels}
        made = await write_one(self.store, Create(muster.ALLOCATION, {"metadata": metadata, "spec": spec}))
        body = {"status": {"phase": phase}}
        await write_one(self.store, Patch(muster.ALLOCATION, made.key, body, subresource="status"))
        owner = {"apiVersion": "muster.dev/v1", "kind": "Allocation", "name": f"{task}.1", "uid": made.uid}
        pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}}
        workload = {
            "metadata": {"name": f"wl-{task}", "namespace": "default", "ownerReferences": [owner]},
            "spec": {"queueName": pool, "podSets": [pods]},
        }
        await write_one(self.store, Create(kueue.WORKLOAD, workload))
        await self.settled()

    async def task(self, task: str, workspace: int = 1) -> None:
        job = {"id": f"job-{task}", "type": "COMMAND", "user_id": 1, "created": 0.0}
        row = {"id": task, "type": "COMMAND", "user_id": 1, "workspace_id": workspace, "created": 0.0}
        row |= {"job_id": f"job-{task}", "config": {"resources": {"priority": 42}}}
        run = {"id": f"{task}.1", "task_id": task, "user_id": 1, "pool": "default", "slots": 2, "phase": "RUNNING"}
        run |= {"requested": 1000.0, "started": 1010.0, "ended": 1020.0, "is_open": False, "launch": "", "state": ""}

        def add(connection: Connection) -> None:
            for table, values in ((JOBS, job), (TASKS, row), (ALLOCATIONS, run)):
                connection.execute(insert(table).values(values))

        await self.api.ground.database.write(add)

    async def settled(self) -> None:
        """What was written is in the copies."""
        await asyncio.sleep(0.02)

    async def csv(self, caller: Caller | None, path: str, **query: str) -> tuple[int, str]:
        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request"}

        callers[:] = [caller]
        encoded = "&".join(f"{name}={value}" for name, value in query.items()).encode()
        assert self.pages.serves(path)
        answer = await self.pages.answer(Request("GET", path, Query(encoded), {}, "1", receive))
        return answer.status, answer.body.decode()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as found:
        yield found


@asynccontextmanager
async def a_world(folder: Path) -> AsyncIterator[World]:
    async def authenticate(headers: Mapping[str, str]) -> Caller | None:
        return callers[0]

    clock = SystemClock()
    async with (
        accounts.ground(folder) as ground,
        EmbeddedStore.in_memory(clock=clock) as store,
        asyncio.TaskGroup() as running,
    ):
        watch, waiting = ClusterWatch(store, clock), Waiting()
        views, books = ClusterViews(watch, waiting, ground.database), Usage(ground.database, clock)
        authorizer = ground.services.authorizer
        routes = (
            *account_routes.routes(ground.services),
            *agents.routes(views, AgentControl(store, ground.database, clock, views), authorizer),
            *pools.routes(views, authorizer),
            *job_queue.routes(views, JobControl(store, ground.database, clock, views), books, authorizer),
            *usage.routes(books),
        )
        task = running.create_task(watch.run())
        for name in ("default", "gold"):
            queue: Document = {"metadata": {"name": name}, "spec": {"namespaceSelector": {}}}
            await write_one(store, Create(kueue.CLUSTER_QUEUE, queue))
        api = Api(ground, Router(routes, authenticate, authorizer))
        await watch.ready()
        yield World(api, store, watch, waiting, UsagePages(books, authenticate, authorizer))
        task.cancel()


async def refusal(api: Api, method: str, path: str, body: object = None) -> Refused:
    with pytest.raises(Refused) as caught:
        await api(method, path, body)
    return caught.value


# Agents


async def test_an_agent_is_a_node_with_its_slots_and_what_runs_on_them(world: World) -> None:
    uuids = {"muster.dev/gpu-uuids": "U0,U1"}
    await world.node("n1", gpus=2, labels={"nvidia.com/gpu.product": "H200"}, annotations=uuids)
    await world.task("t")
    await world.pod("t.1-0", "n1", task="t", devices="1", gpu="1")
    (agent,) = (await world.api("GET", "/agents"))["agents"]
    container = {
        "id": "t.1-0", "parent": "t.1", "state": "STATE_RUNNING", "permissionDenied": False,
        "devices": [{"id": 1, "brand": "H200", "uuid": "U1", "type": "TYPE_CUDA"}],
    }  # fmt: skip
    assert agent["containers"] == {"t.1-0": container}
    assert agent["slots"] == {
        "0": {
            "id": "0", "device": {"id": 0, "brand": "H200", "uuid": "U0", "type": "TYPE_CUDA"}, "enabled": True,
            "draining": False, "container": None,
        },
        "1": {
            "id": "1", "device": {"id": 1, "brand": "H200", "uuid": "U1", "type": "TYPE_CUDA"}, "enabled": True,
            "draining": False, "container": container,
        },
    }  # fmt: skip
    stats = {"states": {"STATE_RUNNING": 1}, "draining": 0, "total": 2, "disabled": 0}
    assert agent["slotStats"] == {"typeStats": {"TYPE_CUDA": stats}, "brandStats": {"H200": stats}}
    assert (agent["addresses"], agent["resourcePools"]) == (["10.1.1.1"], ["default", "gold"])
    assert (agent["enabled"], agent["draining"], agent["version"]) == (True, False, "muster-0")


async def test_cpus_are_slots_only_where_no_node_has_a_gpu(world: World) -> None:
    await world.node("n1", cpu="3500m")
    await world.pod("big", "n1", cpu="2")
    await world.pod("small", "n1", cpu="100m")
    (agent,) = (await world.api("GET", "/agents"))["agents"]
    held = {id: (slot["container"] or {}).get("id") for id, slot in agent["slots"].items()}
    assert held == {"0": "default/big", "1": "default/big", "2": None}
    assert set(agent["containers"]) == {"default/big", "default/small"}
    assert agent["slots"]["0"]["device"]["type"] == "TYPE_CPU"
    await world.node("n2", gpus=1)
    found = {each["id"]: len(each["slots"]) for each in (await world.api("GET", "/agents"))["agents"]}
    assert found == {"n1": 0, "n2": 1}


async def test_agents_come_in_pages_and_without_what_is_not_wanted(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.node(name, gpus=1)
    found = await world.api("GET", "/agents", limit=2, orderBy="ORDER_BY_DESC", excludeSlots="true")
    assert [agent["id"] for agent in found["agents"]] == ["c", "b"]
    assert found["pagination"]["total"] == 3
    assert found["agents"][0]["slots"] == {}
    await world.pod("t.1-0", "c", task="t", devices="0", gpu="1")
    (agent,) = (await world.api("GET", "/agents", limit=1, orderBy="ORDER_BY_DESC", excludeSlots="true"))["agents"]
    assert [device["id"] for device in agent["containers"]["t.1-0"]["devices"]] == [0]
    assert agent["slotStats"]["typeStats"]["TYPE_CUDA"]["total"] == 1
    (agent,) = (
        await world.api("GET", "/agents", limit=1, orderBy="ORDER_BY_DESC", excludeContainers="true")
    )["agents"]  # fmt: skip
    assert (agent["containers"], len(agent["slots"])) == ({}, 1)
    assert (await refusal(world.api, "GET", "/agents/x")).status == 404


async def test_whose_a_container_is_and_where_nodes_are_is_not_for_everybody(world: World) -> None:
    await world.api("POST", "/workspaces", {"name": "Lab"})
    await world.node("n1", gpus=2)
    await world.task("mine", 2)
    await world.task("theirs", 1)
    await world.pod("mine.1-0", "n1", task="mine", devices="0", gpu="1")
    await world.pod("theirs.1-0", "n1", task="theirs", devices="1", gpu="1")
    ann = await world.api.new_user("ann", "Viewer", 2)
    (agent,) = (await ann("GET", "/agents"))["agents"]
    mine, theirs = agent["slots"]["0"]["container"], agent["slots"]["1"]["container"]
    assert (mine["id"], mine["permissionDenied"]) == ("mine.1-0", False)
    assert (theirs["id"], theirs["parent"], theirs["permissionDenied"]) == ("********", "", True)
    assert "theirs" not in json.dumps(agent)
    assert agent["addresses"] == []
    for path in ("/agents/n1/disable", "/agents/n1/enable", "/agents/n1/slots/0/disable", "/agents/n1/slots/0/enable"):
        assert (await refusal(ann, "POST", path)).status == 403


async def test_a_node_is_drained_emptied_and_taken_back(world: World) -> None:
    await world.node("n1", gpus=1)
    taint = {"key": "other", "effect": "NoSchedule", "value": "x"}
    await write_one(world.store, Patch(core.NODE, Key("", "n1"), {"spec": {"taints": [taint]}}))
    drained = (await world.api("POST", "/agents/n1/disable", {"drain": True}))["agent"]
    assert (drained["enabled"], drained["draining"]) == (False, True)
    assert (drained["slots"]["0"]["enabled"], drained["slots"]["0"]["draining"]) == (False, True)
    node = (await world.store.get(core.NODE, Key("", "n1"))).document()
    assert (node["spec"]["unschedulable"], node["spec"]["taints"]) == (True, [taint])
    emptied = (await world.api("POST", "/agents/n1/disable"))["agent"]
    assert (emptied["enabled"], emptied["draining"]) == (False, False)
    node = (await world.store.get(core.NODE, Key("", "n1"))).document()
    assert node["spec"]["taints"] == [taint, {"key": "muster.dev/disabled", "effect": "NoExecute"}]
    assert (await world.api("POST", "/agents/n1/enable"))["agent"]["enabled"] is True
    node = (await world.store.get(core.NODE, Key("", "n1"))).document()
    assert node["spec"].get("unschedulable") is None
    assert node["spec"]["taints"] == [taint]
    assert (await refusal(world.api, "POST", "/agents/nowhere/disable")).status == 404
    audit = [entry["action"] for entry in (await world.api("GET", "/audit", action="agent."))["entries"]]
    assert audit == ["agent.enable", "agent.disable", "agent.disable"]


async def test_a_slot_is_taken_out_with_what_runs_on_it_and_put_back(world: World) -> None:
    await world.node("n1", gpus=2)
    await world.pod("other", "n1", devices="0", gpu="1")
    await world.pod("victim", "n1", devices="1", gpu="1")
    assert (await world.api("POST", "/agents/n1/slots/0/disable", {"drain": True}))["slot"]["draining"] is True
    slot = (await world.api("POST", "/agents/n1/slots/1/disable"))["slot"]
    assert (slot["enabled"], slot["draining"]) == (False, False)
    node = (await world.store.get(core.NODE, Key("", "n1"))).document()
    assert node["metadata"]["annotations"]["muster.dev/disabled-slots"] == "0:drain,1"
    assert (node["status"]["allocatable"][GPU], node["status"]["capacity"][GPU]) == ("0", "2")
    ending = {pod.key.name: pod.is_terminating for pod in await _pods(world)}
    assert ending == {"other": False, "victim": True}
    for number in ("0", "1"):
        await world.api("POST", f"/agents/n1/slots/{number}/enable")
    assert [slot["enabled"] for slot in (await world.api("GET", "/agents/n1/slots"))["slots"]] == [True, True]
    node = (await world.store.get(core.NODE, Key("", "n1"))).document()
    assert node["status"]["allocatable"][GPU] == "2"
    assert "muster.dev/disabled-slots" not in (node["metadata"].get("annotations") or {})
    assert (await refusal(world.api, "POST", "/agents/n1/slots/7/disable")).status == 404


async def _pods(world: World) -> list[Any]:
    return [await world.store.get(core.POD, Key("default", name)) for name in ("other", "victim")]


async def test_slots_of_a_foreign_kubelet_are_its_own(world: World) -> None:
    await world.node("n1", gpus=1)
    status = {"status": {"nodeInfo": {"kubeletVersion": "v1.33.0"}}}
    await write_one(world.store, Patch(core.NODE, Key("", "n1"), status, subresource="status"))
    await world.settled()
    told = await refusal(world.api, "POST", "/agents/n1/slots/0/disable")
    assert (told.status, "disable the whole agent" in told.message) == (400, True)


# Pools


async def test_pools_are_queues_with_what_they_have_and_use(world: World) -> None:
    await world.node("n1", gpus=4, cpu="16")
    await world.allocation("t", "Running")
    await world.allocation("small", "Running", slots=0)
    await world.allocation("w")
    found = await world.api("GET", "/resource-pools")
    default, gold = found["resourcePools"]
    assert [default["name"], gold["name"], found["pagination"]["total"]] == ["default", "gold", 2]
    assert (default["defaultComputePool"], default["defaultAuxPool"], gold["defaultComputePool"]) == (True, True, False)
    assert (default["slotsAvailable"], default["slotsUsed"], default["slotsPerAgent"]) == (4, 2, 4)
    assert (default["auxContainersRunning"], default["auxContainerCapacity"]) == (1, 10)
    assert default["stats"] == {"queuedCount": 1, "scheduledCount": 2}
    assert (default["slotType"], default["schedulerType"]) == ("TYPE_CUDA", "SCHEDULER_TYPE_PRIORITY")


async def test_quota_limits_what_a_pool_is_said_to_have(world: World) -> None:
    await world.node("n1", gpus=4)
    await write_one(world.store, Create(kueue.RESOURCE_FLAVOR, {"metadata": {"name": "all"}}))
    quota: Document = {"coveredResources": [GPU], "flavors": [
        {"name": "all", "resources": [{"name": GPU, "nominalQuota": "2"}]}]}  # fmt: skip
    document: Document = {"metadata": {"name": "two"}, "spec": {"namespaceSelector": {}, "resourceGroups": [quota]}}
    await write_one(world.store, Create(kueue.CLUSTER_QUEUE, document))
    await world.settled()
    found = {pool["name"]: pool for pool in (await world.api("GET", "/resource-pools"))["resourcePools"]}
    assert (found["two"]["slotsAvailable"], found["default"]["slotsAvailable"]) == (2, 4)


async def test_what_stands_for_a_queue_of_volcano_is_no_pool(world: World) -> None:
    labels = {"muster.dev/volcano-queue": "default"}
    document: Document = {"metadata": {"name": "volcano-default", "labels": labels}, "spec": {"namespaceSelector": {}}}
    await write_one(world.store, Create(kueue.CLUSTER_QUEUE, document))
    await world.node("n1", gpus=1)
    found = (await world.api("GET", "/resource-pools"))["resourcePools"]
    assert [pool["name"] for pool in found] == ["default", "gold"]
    (agent,) = (await world.api("GET", "/agents"))["agents"]
    assert agent["resourcePools"] == ["default", "gold"]
    with pytest.raises(Refused, match="not found"):
        await world.api("GET", "/job-queues-v2", resourcePool="volcano-default")


async def test_pools_for_others_are_not_shown(world: World) -> None:
    row = {"pool": "gold", "workspace_id": 1}
    await world.api.ground.database.write(lambda connection: connection.execute(insert(POOL_BINDINGS).values(row)))
    await world.api("POST", "/workspaces", {"name": "Lab"})
    ann = await world.api.new_user("ann", "Viewer", 2)
    assert [pool["name"] for pool in (await ann("GET", "/resource-pools"))["resourcePools"]] == ["default"]
    unbound = await world.api("GET", "/resource-pools", unbound="true")
    assert [pool["name"] for pool in unbound["resourcePools"]] == ["default"]
    assert len((await world.api("GET", "/resource-pools"))["resourcePools"]) == 2


# Jobs


async def test_jobs_are_listed_in_their_order(world: World) -> None:
    for task in ("runs", "first", "second"):
        await world.task(task)
    await world.allocation("second")
    await world.allocation("first")
    await world.allocation("runs", "Running")
    await world.allocation("elsewhere", pool="gold")
    world.waiting.names["default"] = ["wl-first", "wl-second"]
    found = await world.api("GET", "/job-queues-v2", orderBy="ORDER_BY_ASC", limit=100)
    jobs = [job["full"] for job in found["jobs"]]
    places = [(job["entityId"], job["summary"]["jobsAhead"]) for job in jobs]
    assert places == [("runs", -1), ("first", 0), ("second", 1)]
    assert jobs[0]["summary"]["state"] == "STATE_SCHEDULED"
    assert (jobs[1]["requestedSlots"], jobs[1]["allocatedSlots"], jobs[1]["type"]) == (2, 0, "TYPE_COMMAND")
    assert (jobs[1]["username"], jobs[1]["userId"], jobs[1]["workspaceId"], jobs[1]["priority"]) == ("admin", 1, 1, 42)
    assert found["pagination"]["total"] == found["pagination"]["endIndex"] == 3
    queued = await world.api("GET", "/job-queues", states=["STATE_QUEUED"], orderBy="ORDER_BY_DESC")
    assert [job["jobId"] for job in queued["jobs"]] == ["job-second", "job-first"]
    stats = (await world.api("GET", "/job-queues/stats", resourcePools=["gold"]))["results"]
    assert stats == [{"resourcePool": "gold", "stats": {"queuedCount": 1, "scheduledCount": 0}, "aggregates": []}]
    with pytest.raises(Refused, match="nowhere"):
        await world.api("GET", "/job-queues-v2", resourcePool="nowhere")


async def test_of_jobs_elsewhere_only_the_place_is_told(world: World) -> None:
    await world.api("POST", "/workspaces", {"name": "Lab"})
    await world.task("secret", 1)
    await world.allocation("secret")
    ann = await world.api.new_user("ann", "Viewer", 2)
    (job,) = (await ann("GET", "/job-queues-v2"))["jobs"]
    assert job["full"] is None
    assert (job["limited"]["jobId"], job["limited"]["summary"]["state"]) == ("job-secret", "STATE_QUEUED")
    assert "name" not in job["limited"]
    assert (await ann("GET", "/job-queues"))["jobs"] == []
    assert (await refusal(ann, "POST", "/job-queues", {"updates": []})).status == 403


async def test_a_job_is_made_more_urgent_everywhere(world: World) -> None:
    await world.task("t")
    await world.allocation("t")
    assert await world.api("POST", "/job-queues", {"updates": [{"jobId": "job-t", "priority": 7}]}) == {}
    found = (await world.store.get(muster.ALLOCATION, Key("default", "t.1"))).document()
    assert found["spec"]["priority"] == 7
    assert found["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "task-priority-7"
    query = TASKS.select().where(TASKS.c.id == "t")
    row = await world.api.ground.database.read(lambda connection: connection.execute(query).one())
    assert row.config == {"resources": {"priority": 7}}


async def test_a_waiting_job_is_moved_to_another_pool(world: World) -> None:
    await world.node("n1", gpus=2)
    await world.task("t")
    await world.allocation("t")
    await world.api("POST", "/job-queues", {"updates": [{"jobId": "job-t", "resourcePool": "gold"}]})
    found = (await world.store.get(muster.ALLOCATION, Key("default", "t.1"))).document()
    assert (found["spec"]["pool"], found["spec"]["queueName"]) == ("gold", "gold")
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gold"
    assert (await world.store.get(kueue.LOCAL_QUEUE, Key("default", "gold"))).key.name == "gold"
    query = ALLOCATIONS.select().where(ALLOCATIONS.c.id == "t.1")
    row = await world.api.ground.database.read(lambda connection: connection.execute(query).one())
    assert row.pool == "gold"


async def test_a_job_is_moved_within_its_queue(world: World) -> None:
    for task in ("a", "b", "c"):
        await world.allocation(task)
    world.waiting.names["default"] = ["wl-a", "wl-b", "wl-c"]
    await world.api("POST", "/job-queues", {"updates": [{"jobId": "job-c", "aheadOf": "job-a"}]})
    times = [await _queued_since(world, task) for task in ("c", "a", "b")]
    assert times[0] < times[1] <= times[2]  # the others came in the same second, and stand as they did


async def _queued_since(world: World, task: str) -> str:
    meta = (await world.store.get(kueue.WORKLOAD, Key("default", f"wl-{task}"))).meta
    said = (meta.annotations or {}).get("muster.dev/queued-since")
    return said or f"{(meta.creation_timestamp or '').rstrip('Z')}.000000Z"


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"jobId": "job-t"}, "updates[0]: must set one of"),
        ({"jobId": "job-t", "priority": 1, "weight": 2}, "updates[0]: must set one of"),
        ({"priority": 1}, "updates[0].jobId: required"),
        ({"jobId": "job-t", "weight": 2}, "updates[0].weight: jobs have no weight here"),
        ({"jobId": "job-t", "priority": 0}, "priority: must be from 1 to 99, found 0"),
        ({"jobId": "job-t", "priority": 100}, "priority: must be from 1 to 99"),
        ({"jobId": "nobody", "priority": 5}, "job 'nobody' not found"),
        ({"jobId": "job-t", "resourcePool": "nowhere"}, 'there is no pool "nowhere"'),
        ({"jobId": "job-t", "resourcePool": "gold"}, "resourcePool: pool 'gold' is for other workspaces only"),
        ({"jobId": "job-runs", "resourcePool": "gold"}, "has quota of pool 'default'; only what waits for quota"),
        ({"jobId": "job-t", "aheadOf": "job-t"}, "aheadOf: a job cannot be moved relative to itself"),
        ({"jobId": "job-t", "behindOf": "job-runs"}, "behindOf: job job-runs does not wait for quota any more"),
        ({"jobId": "job-t", "aheadOf": "job-far"}, "aheadOf: job job-far waits in pool 'gold', not in 'default'"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_the_reason(
    world: World, update: dict[str, Any], message: str
) -> None:
    row = {"pool": "gold", "workspace_id": 2}
    await world.api("POST", "/workspaces", {"name": "Lab"})
    await world.api.ground.database.write(lambda connection: connection.execute(insert(POOL_BINDINGS).values(row)))
    await world.node("n1", gpus=2)
    await world.task("t")
    await world.allocation("t")
    await world.allocation("runs", "Running")
    await world.allocation("far", pool="gold")
    world.waiting.names = {"default": ["wl-t"], "gold": ["wl-far"]}
    told = await refusal(world.api, "POST", "/job-queues", {"updates": [update]})
    assert told.status in (400, 404)
    assert message in told.message


# Usage


async def test_usage_is_told_as_json_and_as_tables(world: World) -> None:
    await world.task("t")
    first, last = "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"
    raw = await world.api("GET", "/resources/allocation/raw", timestampAfter=first, timestampBefore=last)
    assert raw["resourceEntries"] == [
        {
            "kind": "command", "startTime": "1970-01-01T00:16:50.000000Z", "endTime": "1970-01-01T00:17:00.000000Z",
            "experimentId": 0, "username": "admin", "userId": 1, "labels": [], "seconds": 10.0, "slots": 2,
        }
    ]  # fmt: skip
    period = "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_DAILY"
    days = {"startDate": "1970-01-01", "endDate": "1970-01-01", "period": period}
    totals = await world.api("GET", "/resources/allocation/aggregated", **days)
    assert totals["resourceEntries"] == [
        {
            "periodStart": "1970-01-01", "period": period, "seconds": 20.0, "byUsername": {"admin": 20.0},
            "byExperimentLabel": {}, "byResourcePool": {"default": 20.0},
        }
    ]  # fmt: skip
    admin = world.api.caller
    times = {"timestamp_after": first, "timestamp_before": last}
    assert await world.csv(admin, "/resources/allocation/raw", **times) == (
        200,
        "experiment_id,kind,username,labels,slots,start_time,end_time,seconds\n"
        "0,command,admin,,2,1970-01-01T00:16:50.000000Z,1970-01-01T00:17:00.000000Z,10.000000\n",
    )
    days = {"start_date": "1970-01-01", "end_date": "1970-01-01", "period": period}
    assert await world.csv(admin, "/resources/allocation/aggregated", **days) == (
        200,
        "aggregation_type,aggregation_key,date,seconds\nusername,admin,1970-01-01,20.000000\n"
        "resource_pool,default,1970-01-01,20.000000\ntotal,total,1970-01-01,20.000000\n",
    )
    status, text = await world.csv(admin, "/resources/allocation/allocations-csv", **times)
    assert (status, text.splitlines()[1].split(",")[:4]) == (200, ["t.1", "COMMAND", "admin", "Uncategorized"])


async def test_usage_is_for_those_who_may_see_the_cluster(world: World) -> None:
    await world.api("POST", "/workspaces", {"name": "Lab"})
    ann = await world.api.new_user("ann", "Viewer", 2)
    assert (await refusal(ann, "GET", "/resources/allocation/raw")).status == 403
    assert (await world.csv(ann.caller, "/resources/allocation/raw"))[0] == 403
    assert (await world.csv(None, "/resources/allocation/raw"))[0] == 401
    status, text = await world.csv(world.api.caller, "/resources/allocation/aggregated", period="x")
    assert status == 400
    assert "period: must be" in text
