"""What Volcano measures of its queues and jobs; and that the page lists all that is measured."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.unit.tasks.service_worlds import Lines, Sessions

from muster.api import core, kueue, raw, volcano
from muster.api.kinds import Kind
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.controllers.jobs.metrics import JobMetrics
from muster.controllers.quota.controller import QuotaController
from muster.quota.settings import AdmissionFairSharing, FairSharing, PodsReady, Settings
from muster.runtime.clock import VirtualClock
from muster.runtime.metrics import Registry
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, write_one
from muster.tasks import allocation_metrics
from muster.tasks.allocating import AllocationService
from muster.testing.engines import PretendEngine
from muster.testing.inline_database import InlineDatabase
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

_ROOT = Path(__file__).parents[3]
PAGE = _ROOT / "docs" / "reference" / "metrics.md"
GUIDE = _ROOT / "docs" / "guide" / "monitoring.md"
DASHBOARD = _ROOT / "deploy" / "grafana" / "queues.json"
_SERIES = re.compile(r"volcano_(\w+?)(?:\{(.*)\})? (\S+)")


@dataclass
class World:
    store: EmbeddedStore
    registry: Registry

    async def make(self, kind: Kind, name: str, spec: Document, **metadata: JSON) -> str:
        document: Document = {"metadata": {"name": name, **metadata}, "spec": spec}
        if kind.namespaced:
            document["metadata"]["namespace"] = "default"
        return (await write_one(self.store, Create(kind, document))).uid

    async def tell(self, kind: Kind, name: str, status: Document) -> None:
        body = {"status": status}
        await write_one(self.store, Patch(kind, _key(kind, name), body, subresource="status"))

    async def delete(self, kind: Kind, name: str) -> None:
        await write_one(self.store, Delete(kind, _key(kind, name)))

    def measured(self, metric: str, /) -> dict[tuple[str, ...], float]:
        found = {}
        for line in self.registry.text().splitlines():
            match = _SERIES.fullmatch(line)
            if match is not None and match[1] == metric:
                found[tuple(re.findall(r'"([^"]*)"', match[2] or ""))] = float(match[3])
        return found


def _key(kind: Kind, name: str) -> Key:
    return Key("default" if kind.namespaced else "", name)


@asynccontextmanager
async def a_world(clock: VirtualClock) -> AsyncIterator[World]:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        registry = Registry()
        quota = QuotaController(store, clock, metrics=registry)
        metrics = JobMetrics(store, clock, registry, lambda: quota.engine)
        async with running(quota.run, metrics.run):
            await clock.sleep(1)
            yield World(store, registry)


def a_pod_spec(cpu: str = "500m", node: str = "") -> Document:
    gpu = {"nvidia.com/gpu": "1"}
    resources = {"requests": {"cpu": cpu, "memory": "1Gi", **gpu}, "limits": gpu}
    spec: Document = {"containers": [{"name": "main", "image": "host", "resources": resources}]}
    return spec | ({"nodeName": node} if node else {})


TASKS = [{"name": "t", "replicas": 1, "template": {"spec": a_pod_spec()}}]
IN_GROUP = {"scheduling.k8s.io/group-name": "g"}


@on_virtual_time
async def test_groups_and_what_their_pods_hold(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(volcano.QUEUE, "team", {"weight": 3, "capability": {"cpu": "4"}, "deserved": {"cpu": "1"}})
        await world.make(volcano.QUEUE, "below", {"parent": "team"})
        await world.make(volcano.POD_GROUP, "g", {"queue": "below", "minResources": {"cpu": "2", "memory": "2Gi"}})
        await world.make(volcano.POD_GROUP, "h", {"queue": "team"})
        await clock.sleep(1)
        assert world.measured("queue_pod_group_pending_count") == {("team",): 1, ("below",): 1}
        await world.tell(volcano.POD_GROUP, "g", {"phase": "Inqueue"})
        for number in range(3):
            spec = a_pod_spec(node="n" if number else "")
            await world.make(core.POD, f"p{number}", spec, annotations=IN_GROUP)
        await world.make(core.POD, "stranger", a_pod_spec(node="n"))
        await clock.sleep(1)
        assert world.measured("queue_pod_group_inqueue_count") == {("team",): 0, ("below",): 1}
        assert world.measured("queue_inqueue_milli_cpu") == {("team",): 2000, ("below",): 2000}
        assert world.measured("queue_request_milli_cpu") == {("team",): 1500, ("below",): 1500}
        assert world.measured("queue_allocated_milli_cpu") == {("team",): 1000, ("below",): 1000}
        assert world.measured("queue_allocated_memory_bytes")[("below",)] == 2 * 2**30
        assert world.measured("queue_allocated_scalar_resources")[("below", "nvidia.com/gpu")] == 2
        assert world.measured("queue_deserved_milli_cpu") == {("team",): 1000}
        assert world.measured("queue_capacity_milli_cpu") == {("team",): 4000}
        assert world.measured("queue_weight") == {("team",): 3, ("below",): 1}
        assert world.measured("queue_share")[("team",)] == 1.0
        assert world.measured("queue_overused")[("team",)] == 0
        await world.tell(core.POD, "p1", {"phase": "Succeeded"})
        await world.delete(core.POD, "p0")
        await clock.sleep(1)
        assert world.measured("queue_request_milli_cpu")[("below",)] == 500
        await world.delete(volcano.POD_GROUP, "g")
        await world.delete(volcano.QUEUE, "below")
        await clock.sleep(1)
        assert '"below"' not in world.registry.text()
        assert world.measured("queue_allocated_milli_cpu") == {("team",): 0}


@on_virtual_time
async def test_what_a_queue_deserves_quota_says(clock: VirtualClock) -> None:
    async with a_world(clock) as world:

        def quota(cpu: str, **limits: str) -> Document:
            resources = [{"name": "cpu", "nominalQuota": cpu, **limits}]
            return {"coveredResources": ["cpu"], "flavors": [{"name": "volcano", "resources": resources}]}

        await world.make(kueue.RESOURCE_FLAVOR, "volcano", {})
        await world.make(kueue.COHORT, "volcano-root", {"resourceGroups": [quota("1")]})
        for name, cpu in (("a", "2"), ("b", "3")):
            limits = {"borrowingLimit": "1", "lendingLimit": "1"}
            groups = {"resourceGroups": [quota(cpu, **limits)]}
            await world.make(
                kueue.CLUSTER_QUEUE,
                f"volcano-{name}",
                {"cohortName": "volcano-root", **groups, "namespaceSelector": {}},
            )
            await world.make(volcano.QUEUE, name, {"parent": "root"})
        await world.make(volcano.QUEUE, "root", {})
        await world.make(volcano.POD_GROUP, "g", {"queue": "a"})
        await world.make(core.POD, "p", a_pod_spec("3", node="n"), annotations=IN_GROUP)
        await clock.sleep(1)
        assert world.measured("queue_deserved_milli_cpu") == {("a",): 2000, ("b",): 3000, ("root",): 6000}
        assert world.measured("queue_real_capacity_milli_cpu")[("a",)] == 3000
        assert world.measured("queue_share")[("a",)] == 1.5
        assert world.measured("queue_overused") == {("a",): 1, ("b",): 0, ("root",): 0}


@on_virtual_time
async def test_jobs_that_end_and_their_first_pods(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        uid = await world.make(volcano.JOB, "j", {"queue": "team", "tasks": TASKS})
        await clock.sleep(0.02)
        owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": uid, "controller": True}
        await world.make(core.POD, "p", a_pod_spec(), ownerReferences=[owner])
        await clock.sleep(1)
        assert world.measured("controller_job_to_pod_creation_latency_milliseconds_count") == {(): 1}
        assert 20 <= world.measured("controller_job_to_pod_creation_latency_milliseconds_sum")[()] <= 30
        for phase in ("Running", "Failed", "Failed", "Restarting", "Completed"):
            await world.tell(volcano.JOB, "j", {"state": {"phase": phase}})
            await clock.sleep(1)
        assert world.measured("job_completed_phase_count") == {("default/j", "team"): 1}
        assert world.measured("job_failed_phase_count") == {("default/j", "team"): 1}
        await world.make(volcano.JOB_FLOW, "f", {"flows": []})
        await world.tell(volcano.JOB_FLOW, "f", {"state": {"phase": "Succeed"}})
        await clock.sleep(1)
        assert world.measured("jobflow_succeed_phase_count") == {("default",): 1}
        await world.delete(volcano.JOB, "j")
        await clock.sleep(1)
        assert world.measured("job_completed_phase_count") == {}


@on_virtual_time
async def test_what_ended_before_is_not_counted(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        registry = Registry()
        world = World(store, registry)
        await world.make(volcano.JOB, "j", {"tasks": TASKS})
        await world.tell(volcano.JOB, "j", {"state": {"phase": "Completed"}})
        quota = QuotaController(store, clock, metrics=registry)
        async with running(JobMetrics(store, clock, registry, lambda: quota.engine).run):
            await clock.sleep(1)
            await world.tell(volcano.JOB, "j", {"running": 0})
            await clock.sleep(1)
            assert world.measured("job_completed_phase_count") == {}


@on_virtual_time
async def test_the_page_names_what_there_is(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        registry = Registry()
        settings = Settings(
            fair_sharing=FairSharing(), admission_fair_sharing=AdmissionFairSharing(), pods_ready=PodsReady()
        )
        quota = QuotaController(store, clock, settings, registry)
        JobMetrics(store, clock, registry, lambda: quota.engine)
        tasks = AllocationService(InlineDatabase(), clock, PretendEngine(), Sessions(), Lines())
        registry.collect(lambda: allocation_metrics.families(tasks))
        served = dict(re.findall(r"# TYPE (\w+) (\w+)", registry.text()))
        assert _told() == served


def _told() -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))


def test_the_dashboard_and_the_guide_use_what_there_is() -> None:
    known = _told()
    names = {*known, *(f"{name}_{part}" for name in known for part in ("bucket", "sum", "count"))}
    for text in (DASHBOARD.read_text(), GUIDE.read_text()):
        used = set(re.findall(r"\b(?:kueue|volcano)_\w+", text))
        assert used
        assert used <= names
    panels = raw.decode_object(DASHBOARD.read_bytes())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
