"""Jobs that are placed by topology, on virtual time: every pod goes exactly where quota said."""

from pathlib import Path

from tests.simulation.quota_platform import Platform, a_flavor, a_platform, a_queue

from muster.api import kueue
from muster.api.raw import JSON, Document
from muster.quota.topology import from_view
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time

RACK = "example.com/rack"
HOST = "kubernetes.io/hostname"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
NODES = {f"r{rack}-n{number}": {RACK: f"r{rack}", "pool": "train"} for rack in (1, 2) for number in (1, 2)}
INDEX = "batch.kubernetes.io/job-completion-index"


async def set_up(platform: Platform, cpu: int = 100) -> None:
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]},
    }
    flavor = a_flavor("train", nodeLabels={"pool": "train"}, topologyName="racks")
    await platform.make(topology, flavor, *a_queue("team", cpu, ["train"]))
    await platform.clock.sleep(1)


async def submit(platform: Platform, name: str, pods: int, level: str = RACK, **spec: JSON) -> None:
    metadata: Document = {"annotations": {REQUIRED: level}}
    await platform.submit(
        name, "sleep", "300", queue="team", cpu=2, pod_metadata=metadata,
        parallelism=pods, completions=pods, completionMode="Indexed", **spec,
    )  # fmt: skip


async def nodes_by_rank(platform: Platform, job: str) -> dict[int, str | None]:
    return {
        int((pod.metadata.labels or {})[INDEX]): pod.spec.node_name
        for pod in await platform.pods(job)
        if pod.status.phase not in ("Failed", "Succeeded")
    }


async def assigned(platform: Platform, job: str) -> list[str]:
    """By rank, the host that the workload was given."""
    admission = (await platform.workload(job)).status.admission
    assert admission is not None
    (given,) = admission.pod_set_assignments
    assert given.topology_assignment is not None
    return [domain.values[-1] for domain in from_view(given.topology_assignment).domains for _ in range(domain.pods)]


@on_virtual_time
async def test_each_pod_goes_where_its_rank_says(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path, NODES, cpus=4) as platform:
        await set_up(platform)
        await submit(platform, "first", 4)
        await clock.sleep(3)
        hosts = await assigned(platform, "first")
        assert await nodes_by_rank(platform, "first") == dict(enumerate(hosts))
        assert {host[:2] for host in hosts} == {"r1"}, "all in one rack"
        await submit(platform, "second", 4)
        await clock.sleep(3)
        assert {str(host)[:2] for host in (await nodes_by_rank(platform, "second")).values()} == {"r2"}
        await submit(platform, "third", 1)
        await clock.sleep(5)
        assert not await platform.pods("third"), "no room left in any rack"
        third = await platform.workload("third")
        (reserved,) = [found for found in third.status.conditions if found.type == "QuotaReserved"]
        assert reserved.status == "False"


@on_virtual_time
async def test_a_failed_node_is_replaced_and_only_its_pods_move(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path, NODES, cpus=4) as platform:
        await set_up(platform)
        await submit(platform, "job", 2)  # one host holds both
        await clock.sleep(3)
        before = await nodes_by_rank(platform, "job")
        (lost,) = set(before.values())
        assert lost is not None
        platform.crash(lost)
        await clock.sleep(130)
        after = await nodes_by_rank(platform, "job")
        assert after.keys() == before.keys()
        assert lost not in after.values()
        assert sorted(map(str, after.values())) == sorted(await assigned(platform, "job"))
        workload = await platform.workload("job")
        assert not workload.status.unhealthy_nodes
        assert "Evicted" not in await platform.true("job")


@on_virtual_time
async def test_two_failed_nodes_are_too_many(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path, NODES, cpus=4) as platform:
        await set_up(platform)
        await submit(platform, "job", 4)
        await clock.sleep(3)
        before = set((await nodes_by_rank(platform, "job")).values())
        assert len(before) == 2
        for node in before:
            assert node is not None
            platform.crash(node)
        await clock.sleep(200)
        after = set((await nodes_by_rank(platform, "job")).values())
        assert after.isdisjoint(before)
        assert len(after) == 2
        evictions = (await platform.workload("job")).status.scheduling_stats
        assert evictions is not None
        assert [found.reason for found in evictions.evictions] == ["NodeFailures"]


@on_virtual_time
async def test_what_cannot_be_placed_gives_back_its_quota_and_rests(clock: VirtualClock, tmp_path: Path) -> None:
    """Two pods that need the same port of their host: quota knows nothing of ports, and the scheduler does."""
    async with a_platform(clock, tmp_path, NODES, cpus=4) as platform:
        await set_up(platform)
        container = {
            "name": "main",
            "image": "host",
            "command": ["sleep", "300"],
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}},
            "ports": [{"containerPort": 80, "hostPort": 80}],
        }
        template = {
            "metadata": {"annotations": {REQUIRED: HOST}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        await platform.submit("job", queue="team", parallelism=2, completions=2, template=template)
        await clock.sleep(20)
        assert await platform.phases("job") == {"Running": 1, "Pending": 1}
        await clock.sleep(20)
        workload = await platform.workload("job")
        state = {found.type: found for found in workload.status.conditions}
        assert (state["Evicted"].status, state["Evicted"].reason) == ("True", "PodsReadyTimeout")
        assert "could not be placed" in (state["Evicted"].message or "")
        assert state["QuotaReserved"].status == "False"
        assert workload.status.requeue_state is not None
        assert workload.status.requeue_state.count == 1
        assert not await platform.pods("job")
        assert (await platform.job("job")).spec.suspend is True
        await clock.sleep(60)
        assert await platform.phases("job") == {"Running": 1, "Pending": 1}, "it is tried again"


@on_virtual_time
async def test_a_queue_of_topologies_places_what_does_not_ask_for_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path, NODES, cpus=4) as platform:
        await set_up(platform)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "team"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "host",
                        "command": ["sleep", "9"],
                        "resources": {"requests": {"cpu": "1"}},
                    }
                ],
            },
        }
        await platform.make(pod)
        await clock.sleep(3)
        (found,) = await platform.pods()
        (workload,) = [item.read(kueue.Workload) for item in (await platform.workloads()).values()]
        assert workload.status.admission is not None
        assert workload.status.admission.pod_set_assignments[0].topology_assignment is not None
        assert found.spec.node_name == (found.spec.node_selector or {})[HOST]
        assert (found.metadata.annotations or {})["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"
