"""The unmodified kubectl against the server, command by command, as a user types them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.kubectl_runner import Kubectl, require_kubectl

from muster.api import core
from muster.api.objects import Key
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Bind, Create, Delete, Patch
from muster.testing.servers import FakeNodeLogs, serving, write_kubeconfig

pytestmark = pytest.mark.kubectl

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: host, command: [sleep, "60"]}
"""
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: gold}
spec:
  cohort: research
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: default, resources: [{name: cpu, nominalQuota: 4}]}
"""


@pytest.fixture
async def store() -> AsyncIterator[EmbeddedStore]:
    require_kubectl()
    async with EmbeddedStore.in_memory(clock=SystemClock()) as opened:
        yield opened


@pytest.fixture
async def kubectl(store: EmbeddedStore, tmp_path: Path) -> AsyncIterator[Kubectl]:
    logs = FakeNodeLogs({("web", "main"): [b"line one\n", b"line two\n"]})
    async with serving(store, node_logs=logs) as address:
        write_kubeconfig(tmp_path / "config", address)
        runner = Kubectl(tmp_path, tmp_path / "config")
        yield runner
        await runner.stop()


async def run_pod(store: EmbeddedStore, name: str = "web") -> None:
    """What the scheduler and the agent would do."""
    key = Key("default", name)
    status = {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "startTime": "2026-01-02T03:04:05Z",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "main", "ready": True, "restartCount": 0, "image": "host", "imageID": "host",
                "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
            }
        ],
    }  # fmt: skip
    await store.write([Bind(core.POD, key, "node-a"), Patch(core.POD, key, {"status": status}, subresource="status")])


async def make_node(store: EmbeddedStore) -> None:
    status = {
        "capacity": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2"},
        "allocatable": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "AgentReady"}],
        "nodeInfo": {"kubeletVersion": "v1.33.0", "osImage": "Linux"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }
    await store.write(
        [
            Create(core.NODE, {"metadata": {"name": "node-a"}}),
            Patch(core.NODE, Key("", "node-a"), {"status": status}, subresource="status"),
        ]
    )


# Finding one's way


async def test_the_server_describes_itself(kubectl):
    resources = await kubectl("api-resources")
    for line in ("pods", "po", "clusterqueues", "cq", "kueue.x-k8s.io/v1beta2", "vcjob", "pytorchjobs"):
        assert line in resources
    assert "batch/v1" in await kubectl("api-versions")
    assert "Server Version: v1." in await kubectl("version")
    assert "is running at" in await kubectl("cluster-info")
    assert await kubectl("get", "--raw", "/k8s/readyz") == "ok"


async def test_explain_reads_the_schemas(kubectl):
    assert "command\t<[]string>" in await kubectl("explain", "pod.spec.containers")
    assert "nominalQuota" in await kubectl("explain", "clusterqueue.spec", "--recursive")
    assert "parallelism" in await kubectl("explain", "jobs.batch.spec")
    assert 'field "nothing" does not exist' in await kubectl.fails("explain", "pod.spec.nothing")


async def test_who_may_do_what(kubectl):
    assert (await kubectl("auth", "can-i", "create", "pods")).strip() == "yes"
    assert (await kubectl("auth", "can-i", "delete", "nodes", "-A")).strip() == "yes"
    assert "system:masters" in await kubectl("auth", "whoami")
    assert "*.*" in await kubectl("auth", "can-i", "--list")


# Looking


async def test_pods_are_shown_in_every_form(kubectl, store):
    await kubectl("create", "-f", "-", stdin=POD)
    assert "Pending" in await kubectl("get", "pods")
    await run_pod(store)
    header, line = (await kubectl("get", "pods")).splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert line.split()[:4] == ["web", "1/1", "Running", "0"]
    assert "10.0.0.7" in await kubectl("get", "po", "web", "-o", "wide")
    assert json.loads(await kubectl("get", "pod", "web", "-o", "json"))["kind"] == "Pod"
    assert "nodeName: node-a" in await kubectl("get", "pod", "web", "-o", "yaml")
    assert await kubectl("get", "pod", "web", "-o", "jsonpath={.status.phase}") == "Running"
    assert await kubectl("get", "pods", "-o", "name") == "pod/web\n"
    assert "default" in await kubectl("get", "pods", "-A")
    assert "app=web" in await kubectl("get", "pods", "--show-labels", "-l", "app=web")
    assert await kubectl("get", "pods", "-l", "app=other", "-o", "name") == ""
    assert "web" in await kubectl("get", "pods", "--field-selector", "spec.nodeName=node-a", "--sort-by=.metadata.name")


async def test_pages_are_put_together(kubectl, store):
    await store.write(
        [Create(core.CONFIG_MAP, {"metadata": {"name": f"c{n:03}", "namespace": "default"}}) for n in range(120)]
    )
    names = (await kubectl("get", "cm", "--chunk-size=50", "-o", "name")).split()
    assert len(names) == 120


async def test_describe_gathers_the_story_of_an_object(kubectl, store):
    await make_node(store)
    await kubectl("create", "-f", "-", stdin=POD)
    await run_pod(store)
    uid = (await store.get(core.POD, Key("default", "web"))).uid
    event = {
        "metadata": {"name": "web.1", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "default", "uid": uid},
        "reason": "Started", "message": "the container is up", "type": "Normal", "count": 1,
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
        "source": {"component": "agent"},
    }  # fmt: skip
    await store.write([Create(core.EVENT, event)])
    described = await kubectl("describe", "pod", "web")
    assert "the container is up" in described
    assert "Node:" in described
    assert "nvidia.com/gpu" in await kubectl("describe", "node", "node-a")
    assert "Started" in await kubectl("events")
    assert "Started" in await kubectl("events", "--for", "pod/web")
    assert "pod/web" in await kubectl("get", "events")
    assert "Ready" in await kubectl("get", "nodes")
    assert "10.0.0.1" in await kubectl("get", "nodes", "-o", "wide")


async def test_a_watch_shows_changes_as_they_come(kubectl, store):
    await kubectl("create", "-f", "-", stdin=POD)
    watching = await kubectl.start("get", "pods", "--watch")
    assert watching.stdout is not None
    async with asyncio.timeout(20):
        assert (await watching.stdout.readline()).split()[0] == b"NAME"
        assert b"Pending" in await watching.stdout.readline()
        await run_pod(store)
        assert b"Running" in await read_until(watching.stdout, b"Running")


async def read_until(stream: asyncio.StreamReader, text: bytes) -> bytes:
    while text not in (line := await stream.readline()):
        assert line, f"the output ended without {text!r}"
    return line


async def test_logs_are_read_through_the_server(kubectl, store):
    await kubectl("create", "-f", "-", stdin=POD)
    assert "no node yet" in await kubectl.fails("logs", "web")
    await run_pod(store)
    assert await kubectl("logs", "web") == "line one\nline two\n"
    assert await kubectl("logs", "-f", "web", "-c", "main", "--tail=5", "--timestamps") == "line one\nline two\n"
    assert "container other is not valid for pod web" in await kubectl.fails("logs", "web", "-c", "other")


# Making and changing


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (("configmap", "c", "--from-literal=k=v"), "configmap/c"),
        (("secret", "generic", "s", "--from-literal=p=q"), "secret/s"),
        (("job", "j", "--image=host", "--", "true"), "job.batch/j"),
        (("priorityclass", "high", "--value=100"), "priorityclass.scheduling.k8s.io/high"),
        (("service", "clusterip", "svc", "--tcp=80"), "service/svc"),
        (("poddisruptionbudget", "b", "--selector=app=x", "--min-available=1"), "poddisruptionbudget.policy/b"),
    ],
)
async def test_create_by_command(kubectl, arguments, made):
    assert f"{made} created" in await kubectl("create", *arguments)
    assert made in await kubectl("get", made, "-o", "name")
    await kubectl("delete", made, "--wait=false")
    assert f"{made} created (server dry run)" in await kubectl("create", "--dry-run=server", *arguments)


async def test_create_a_namespace_and_work_in_it(kubectl):
    await kubectl("create", "namespace", "team")
    assert "Active" in await kubectl("get", "ns", "team")
    await kubectl("-n", "team", "create", "cm", "c")
    assert await kubectl("-n", "team", "get", "cm", "-o", "name") == "configmap/c\n"
    assert await kubectl("get", "cm", "-o", "name") == ""


async def test_run_makes_a_pod(kubectl):
    await kubectl("run", "x", "--image=host", "--restart=Never", "--", "true")
    assert "Pending" in await kubectl("get", "pod", "x")


async def test_client_side_apply(kubectl):
    assert "created" in await kubectl("apply", "-f", "-", stdin=QUEUE)
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=QUEUE)
    changed = QUEUE.replace("nominalQuota: 4", "nominalQuota: 6")
    diff = await kubectl.run("diff", "-f", "-", stdin=changed)
    assert diff.code == 1
    assert "+        nominalQuota: 6" in diff.out
    assert "configured" in await kubectl("apply", "-f", "-", stdin=changed)
    assert "nominalQuota: 6" in await kubectl("get", "cq", "gold", "-o", "yaml")
    assert "research" in await kubectl(
        "get", "clusterqueues.v1beta1.kueue.x-k8s.io", "gold", "-o", "jsonpath={.spec.cohort}"
    )
    pod = POD.replace("app: web", "app: api")
    await kubectl("apply", "-f", "-", stdin=POD)
    await kubectl("apply", "-f", "-", stdin=pod)
    assert await kubectl("get", "pod", "web", "-o", "jsonpath={.metadata.labels.app}") == "api"


async def test_server_side_apply_finds_conflicts_and_takes_over(kubectl):
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {k: '1'}\n"
    assert "serverside-applied" in await kubectl("apply", "--server-side", "-f", "-", stdin=config)
    theirs = config.replace("'1'", "'2'")
    refused = await kubectl.fails("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=theirs)
    assert 'conflict with "kubectl"' in refused
    assert ".data.k" in refused
    await kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=theirs)
    assert await kubectl("get", "cm", "shared", "-o", "jsonpath={.data.k}") == "2"


async def test_patch_label_annotate_edit(kubectl):
    await kubectl("create", "-f", "-", stdin=POD)
    await kubectl("patch", "pod", "web", "-p", '{"metadata":{"labels":{"a":"1"}}}')
    await kubectl("patch", "pod", "web", "--type=merge", "-p", '{"metadata":{"labels":{"b":"2"}}}')
    await kubectl("patch", "pod", "web", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/a"}]')
    await kubectl("label", "pod", "web", "c=3")
    assert "already has a value" in await kubectl.fails("label", "pod", "web", "c=4")
    await kubectl("label", "pod", "web", "--overwrite", "c=4", "app-")
    await kubectl("annotate", "pod", "web", "note=hello")
    found = json.loads(await kubectl("get", "pod", "web", "-o", "json"))["metadata"]
    assert found["labels"] == {"b": "2", "c": "4"}
    assert found["annotations"]["note"] == "hello"
    await kubectl("patch", "pod", "web", "--subresource=status", "-p", '{"status":{"message":"hi"}}')
    assert await kubectl("get", "pod", "web", "-o", "jsonpath={.status.message}") == "hi"


async def test_nodes_are_cordoned_tainted_and_drained(kubectl, store):
    await make_node(store)
    await kubectl("create", "-f", "-", stdin=POD)
    await run_pod(store)
    await kubectl("cordon", "node-a")
    assert "SchedulingDisabled" in await kubectl("get", "nodes")
    await kubectl("taint", "node", "node-a", "team=red:NoSchedule")
    assert "team=red:NoSchedule" in await kubectl("describe", "node", "node-a")
    await kubectl("uncordon", "node-a")
    draining = await kubectl.start("drain", "node-a", "--force", "--ignore-daemonsets", "--grace-period=5")
    key = Key("default", "web")
    async with asyncio.timeout(30):
        while not (await store.get(core.POD, key)).is_terminating:
            await asyncio.sleep(0.05)
    await store.write([Delete(core.POD, key, grace_seconds=0)])
    out, _ = await draining.communicate()
    assert b"pod/web evicted" in out


# Deleting and waiting


async def test_delete_with_and_without_waiting(kubectl, store):
    await kubectl("create", "-f", "-", stdin=POD)
    assert 'pod "web" deleted' in await kubectl("delete", "pod", "web")
    await kubectl("create", "-f", "-", stdin=POD)
    await run_pod(store)
    await kubectl("delete", "pod", "web", "--wait=false")
    assert "Terminating" in await kubectl("get", "pods")
    waiting = await kubectl.start("wait", "--for=delete", "pod/web", "--timeout=20s")
    await store.write([Delete(core.POD, Key("default", "web"), grace_seconds=0)])
    assert await waiting.wait() == 0
    await kubectl("create", "-f", "-", stdin=POD)
    await run_pod(store)
    await kubectl("delete", "pod", "web", "--grace-period=0", "--force")
    assert "NotFound" in await kubectl.fails("get", "pod", "web")


async def test_delete_in_the_foreground_waits_for_the_collector(kubectl, store):
    await kubectl("create", "cm", "owner")
    deleting = await kubectl.start("delete", "cm", "owner", "--cascade=foreground")
    key = Key("default", "owner")
    async with asyncio.timeout(20):
        while not (await store.get(core.CONFIG_MAP, key)).is_terminating:
            await asyncio.sleep(0.02)
    assert deleting.returncode is None
    await store.write([Patch(core.CONFIG_MAP, key, {"metadata": {"finalizers": None}})])
    assert await deleting.wait() == 0


async def test_delete_many(kubectl):
    for name in ("a", "b"):
        await kubectl("create", "cm", name)
    await kubectl("label", "cm", "a", "b", "x=y")
    await kubectl("delete", "cm", "-l", "x=y")
    assert await kubectl("get", "cm", "-o", "name") == ""
    await kubectl("create", "cm", "c")
    await kubectl("delete", "cm", "--all")
    assert await kubectl("get", "cm", "-o", "name") == ""


async def test_wait_for_conditions_and_fields(kubectl, store):
    await kubectl("create", "-f", "-", stdin=POD)
    assert "timed out" in await kubectl.fails("wait", "--for=condition=Ready", "pod/web", "--timeout=1s")
    waiting = await kubectl.start("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    await asyncio.sleep(0.3)
    await run_pod(store)
    out, _ = await waiting.communicate()
    assert out == b"pod/web condition met\n"
    await kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/web", "--timeout=20s")


# What goes wrong is said so that a person can act on it


async def test_errors_are_plain(kubectl, store):
    assert 'Error from server (NotFound): pods "nobody" not found' in await kubectl.fails("get", "pod", "nobody")
    assert "doesn't have a resource type" in await kubectl.fails("get", "unicorns")
    await kubectl("create", "-f", "-", stdin=POD)
    assert "AlreadyExists" in await kubectl.fails("create", "-f", "-", stdin=POD)
    assert "not supported" in await kubectl.fails("get", "pods", "--field-selector=a=b")
    unknown = POD.replace("containers:", "containerz: []\n  containers:").replace("name: web", "name: other")
    assert 'unknown field "spec.containerz"' in await kubectl.fails("apply", "-f", "-", stdin=unknown)
    wrong = POD.replace("name: web", "name: other").replace("image: host", "image: host, ports: [{containerPort: a}]")
    assert "containerPort" in await kubectl.fails("apply", "--validate=false", "-f", "-", stdin=wrong)
    nothing = POD.replace("name: web", "name: other").replace("image: host", "image: ''")
    assert "spec.containers[0].image" in await kubectl.fails("create", "-f", "-", stdin=nothing)
    assert "restartPolicy" in await kubectl.fails("patch", "pod", "web", "-p", '{"spec":{"restartPolicy":"Never"}}')
    assert 'namespaces "nowhere" not found' in await kubectl.fails("create", "-n", "nowhere", "cm", "c")


async def test_a_pod_that_fits_no_node_is_refused_with_what_to_do(kubectl, store):
    await make_node(store)
    greedy = POD.replace("image: host", 'image: host, resources: {limits: {"nvidia.com/gpu": 16}}')
    refused = await kubectl.fails("create", "-f", "-", stdin=greedy)
    for part in ("spec.containers[0].resources.limits[nvidia.com/gpu]", '"node-a", has 2', "ask for less"):
        assert part in refused
