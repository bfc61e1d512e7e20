"""Tasks and experiments on a real cluster: the unmodified client of Determined, `muster serve --kubeconfig`, and the
controllers, each a process of its own; nodes are agents of ours in the place of kubelets. The server has the rights
that an installation gives it, and no others."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.det import test_det_asha
from tests.det.det_client import ENVIRONMENT
from tests.det.det_experiments import Lab
from tests.det.det_platform import eventually
from tests.det.det_tasks import ENDED, Watcher, new_mark, processes, processes_of_task
from tests.det.test_det_restart import identities, numbers
from tests.e2e.kubectl_runner import Kubectl
from tests.kubernetes.controllers import define
from tests.kubernetes.machines import Machines
from tests.kubernetes.served import Served, as_server, require_client, serving

from muster.access.kubeconfig import Cluster
from muster.agent.logs import LogOptions
from muster.api import core
from muster.api.objects import Key
from muster.server.cluster_logs import ClusterLogs
from muster.store.connection import Connection
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Delete, Selection

pytestmark = pytest.mark.timeout(240)
LONGEST = 8
SEARCH: dict[str, Any] = {
    **test_det_asha.SEARCH,
    "searcher": {**test_det_asha.SEARCH["searcher"], "max_trials": 4, "max_time": LONGEST},
    "hyperparameters": {**test_det_asha.SEARCH["hyperparameters"], "batches": LONGEST, "every": 2, "pause": 0},
}


@pytest.fixture
async def watch(
    kubectl: Kubectl, machines: Machines, configuration: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Watcher]:
    """The administrator of a server, on a cluster with one node of two slots."""
    require_client()
    # What tasks run: JupyterLab, and Determined's library.
    monkeypatch.setenv("PATH", f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}")
    await define(kubectl)
    async with asyncio.TaskGroup() as starting:
        starting.create_task(machines.node(gpus=2))
        starting.create_task(machines.controller())
    account = await as_server(kubectl, configuration, tmp_path / "kubeconfig")
    storage = f'checkpoint_storage={{"type": "shared_fs", "host_path": "{tmp_path}"}}'
    with serving(account, "--set", storage) as served:
        found = Watcher(served, served.admin, served.token(served.admin))
        yield found
        with contextlib.suppress(AssertionError):
            await asyncio.to_thread(found.end_all)


async def test_a_command_is_a_pod_of_the_cluster(watch: Watcher, store: KubernetesStore) -> None:
    def act() -> str:
        told = watch.det("cmd", "run", "echo hello from $DET_TASK_TYPE; echo to stderr >&2; exit 3")
        assert "hello from COMMAND" in told.out
        assert "to stderr" in told.out
        assert "exited with code 3" in told.out
        running = watch.command("echo it runs; sleep 600", "--config", "resources.slots=1")
        watch.until_logged(running, "it runs")
        return running

    identity = await asyncio.to_thread(act)
    (pod,) = [found for found in (await store.list(Selection(core.POD))).items if identity in found.key.name]
    spec = pod.read(core.Pod).spec
    assert spec.scheduler_name == "muster"
    assert pod.document()["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    await asyncio.to_thread(_killed, watch, identity)
    left = [found for found in (await store.list(Selection(core.POD))).items if identity in found.key.name]
    assert left == []


def _killed(watch: Watcher, identity: str) -> None:
    watch.det("cmd", "kill", identity)
    watch.until_state("command", identity, ENDED)
    eventually(lambda: not watch.get("tasks")["allocationIdToSummary"])


async def test_who_waits_is_listed_in_the_order_of_its_turn(watch: Watcher) -> None:
    def act() -> None:
        first = watch.command("sleep 600", "--config", "resources.slots=2")
        watch.until_state("command", first, "STATE_RUNNING")
        late = watch.command("sleep 600", "--config", "resources.slots=2")
        urgent = watch.command("sleep 600", "--config", "resources.slots=2", "--config", "resources.priority=10")

        def listed() -> list[str]:
            return [job["entityId"] for job in watch.det("job", "list", "--json").json["jobs"]]

        eventually(lambda: listed() == [first, urgent, late], seconds=20, every=0.5)

    await asyncio.to_thread(act)


async def test_the_tasks_of_a_workspace_are_in_its_namespace(watch: Watcher, store: KubernetesStore) -> None:
    name = f"team-{secrets.token_hex(3)}"
    try:

        def act() -> str:
            watch.det("workspace", "create", "apart", "--namespace", name)
            identity = watch.command("sleep 600", "-w", "apart")
            watch.until_state("command", identity, "STATE_RUNNING")
            return identity

        identity = await asyncio.to_thread(act)
        (pod,) = (await store.list(Selection(core.POD, name))).items
        assert identity in pod.key.name
    finally:
        await store.write([Delete(core.NAMESPACE, Key("", name))])


async def test_the_server_is_killed_and_what_runs_goes_on(watch: Watcher) -> None:
    served, mark = watch.platform, new_mark()
    assert isinstance(served, Served)

    def act() -> None:
        counting = watch.command(f"i=0; while sleep 0.1; do i=$((i+1)); echo count $i; done # {mark}")
        notebook = watch.start("notebook", "--config", "resources.slots=0")
        watch.until_ready(notebook)
        watch.until_logged(counting, "count 3")
        assert "JupyterLab" in served.http("GET", f"/proxy/{notebook}/lab", token=watch.token).text
        before = identities(processes(mark))
        assert before

        served.kill()
        served.start()

        watch.until_state("command", counting, "STATE_RUNNING")
        watch.until_state("notebook", notebook, "STATE_RUNNING")
        assert identities(processes(mark)) == before
        seen = max(numbers(watch.logs(counting)))
        eventually(lambda: max(numbers(watch.logs(counting))) > seen + 5)
        assert "JupyterLab" in served.http("GET", f"/proxy/{notebook}/lab", token=watch.token).text
        for kind, identity in (("notebook", notebook), ("cmd", counting)):
            watch.det(kind, "kill", identity)
        watch.until_state("notebook", notebook, ENDED)
        watch.until_state("command", counting, ENDED)
        assert processes_of_task(notebook) == processes_of_task(counting) == []

    await asyncio.to_thread(act)


async def test_another_server_leaves_the_tasks_of_this_one_alone(watch: Watcher) -> None:
    def act() -> None:
        running = watch.command("sleep 600")
        watch.until_state("command", running, "STATE_RUNNING")
        with serving(Path(watch.platform.options[1])) as other:
            beside = Watcher(other, other.admin, other.token(other.admin))
            done = beside.command("echo beside")
            beside.until_state("command", done, ENDED)
            assert "beside" in beside.logs(done)
        assert watch.state("command", running) == "STATE_RUNNING"
        assert processes_of_task(running)

    await asyncio.to_thread(act)


async def test_an_adaptive_search_runs_to_its_end(watch: Watcher) -> None:
    def act() -> None:
        lab = Lab(watch)
        experiment = lab.completed(SEARCH, model="mlp", seconds=180.0)
        trained = [test_det_asha.steps(lab, int(trial["id"])) for trial in lab.trials(experiment)]
        assert len(trained) == 4
        assert max(steps[-1] for steps in trained) == LONGEST

    await asyncio.to_thread(act)


async def test_objects_are_not_served_twice(watch: Watcher) -> None:
    token = (watch.platform.data / "token").read_text().strip()
    answer = await asyncio.to_thread(lambda: watch.platform.http("GET", "/k8s/api/v1/pods", token=token))
    assert answer.status == 404
    assert "its own API server" in answer.json["message"]


async def test_logs_come_from_the_cluster(
    cluster: Cluster, kubectl: Kubectl, machines: Machines, namespace: str, store: KubernetesStore
) -> None:
    node = await machines.node()
    script = "for i in 1 2 3; do echo line $i; done"
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec}
    await kubectl("create", "-f", "-", stdin=str(document).replace("'", '"'))
    await kubectl("wait", "-n", namespace, "--for=jsonpath={.status.phase}=Succeeded", "pod/p", "--timeout=30s")
    pod = await store.get(core.POD, Key(namespace, "p"))
    async with Connection(cluster.url, cluster.credentials, server_name=cluster.server_name) as connection:
        logs = ClusterLogs(connection)
        said = b"".join([chunk async for chunk in logs.open(pod, "main", LogOptions(tail=2, timestamps=True))])
    assert [line.partition(b" ")[2] for line in said.splitlines()] == [b"line 2", b"line 3"]
