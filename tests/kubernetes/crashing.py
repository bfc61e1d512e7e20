"""Kills the controller at random moments while many jobs run: each must finish, and each of its workers run once.

python tools/kubernetes.py -- python -m tests.kubernetes.crashing --jobs 500 --kills 50
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.kubectl_runner import KUBECTL
from tests.e2e.processes import ROOT
from tests.kubernetes.machines import Machines

from muster.access import kubeconfig
from muster.api import core, kueue, volcano
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Create, Selection, Written, write_one

GPU = "nvidia.com/gpu"
_NODES = 2
_GPUS = 8
_LONGEST_LIFE_SECONDS = 8.0
_PATIENCE_SECONDS = 120.0
"""Without a job that ends, once the controller is left alone."""


@dataclass(frozen=True)
class Report:
    """`problems`: empty where every job has finished once."""

    jobs: int
    workers: int
    kills: int
    seconds: float
    problems: list[str]


@dataclass(frozen=True)
class _Plan:
    """`sizes`: how many workers each job has."""

    namespace: str
    runs: Path
    sizes: list[int]

    def documents(self) -> Iterator[Document]:
        for number, size in enumerate(self.sizes):
            yield _job(f"j{number}", self.namespace, size, f'echo "$HOSTNAME" >> {self.runs}; sleep 0.2')

    def expected(self) -> Counter[str]:
        return Counter(f"j{job}-worker-{index}" for job, size in enumerate(self.sizes) for index in range(size))


async def crash(machines: Machines, namespace: str, *, jobs: int, kills: int, seed: int) -> Report:
    """With a cluster that has our kinds."""
    chance = random.Random(seed)
    plan = _Plan(namespace, machines.home / "runs", [chance.randint(1, 4) for _ in range(jobs)])
    for _ in range(_NODES):
        await machines.node(gpus=_GPUS)
    controller = await machines.controller(is_mortal=True)
    started = time.monotonic()
    store = machines.store
    for kind, document in _queues(namespace):
        await write_one(store, Create(kind, document))
    for result in await store.write([Create(volcano.JOB, document) for document in plan.documents()]):
        assert isinstance(result, Written), result
    killed = 0
    while killed < kills and len(await _finished(store, namespace)) < jobs:
        await asyncio.sleep(chance.uniform(0.0, _LONGEST_LIFE_SECONDS))
        machines.kill(controller)
        killed += 1
        await machines.start(controller)
    problems = await _until_finished(store, plan) + _misrun(plan)
    return Report(jobs, sum(plan.sizes), killed, time.monotonic() - started, problems)


async def _until_finished(store: KubernetesStore, plan: _Plan) -> list[str]:
    """The jobs that do not finish."""
    done: set[str] = set()
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while len(done) < len(plan.sizes) and time.monotonic() < give_up_at:
        latest = await _finished(store, plan.namespace)
        if latest != done:
            give_up_at = time.monotonic() + _PATIENCE_SECONDS
        done = latest
        await asyncio.sleep(0.5)
    return [f"job j{number} has not finished" for number in range(len(plan.sizes)) if f"j{number}" not in done]


async def _finished(store: KubernetesStore, namespace: str) -> set[str]:
    found = (await store.list(Selection(volcano.JOB, namespace))).items
    return {each.key.name for each in found if each.read(volcano.Job).status.state.phase == "Completed"}


def _misrun(plan: _Plan) -> list[str]:
    ran, expected = Counter(plan.runs.read_text().split()), plan.expected()
    wrong = {name for name in ran | expected if ran[name] != expected[name]}
    return [f"worker {name} ran {ran[name]} times" for name in sorted(wrong)]


def _job(name: str, namespace: str, size: int, script: str) -> Document:
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script], "resources": {"limits": {GPU: "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "all"}},
        "spec": {"minAvailable": size, "tasks": [{"name": "worker", "replicas": size, "template": template}]},
    }


def _queues(namespace: str) -> Iterator[tuple[Kind, Document]]:
    amount = {"name": GPU, "nominalQuota": str(_NODES * _GPUS)}
    group = {"coveredResources": [GPU], "flavors": [{"name": namespace, "resources": [amount]}]}
    yield kueue.RESOURCE_FLAVOR, {"metadata": {"name": namespace}, "spec": {}}
    spec: Document = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield kueue.CLUSTER_QUEUE, {"metadata": {"name": namespace}, "spec": spec}
    queue: Document = {"metadata": {"name": "all", "namespace": namespace}, "spec": {"clusterQueue": namespace}}
    yield kueue.LOCAL_QUEUE, queue


async def _main(jobs: int, kills: int, seed: int) -> Report:
    configuration = Path(os.environ["KUBECONFIG"])
    namespace = "crashes"
    subprocess.run([str(KUBECTL), "create", "-f", str(ROOT / "deploy" / "helm" / "muster" / "crds")], check=True)
    with tempfile.TemporaryDirectory(prefix="muster-k8s-", ignore_cleanup_errors=True) as home:
        async with KubernetesStore(kubeconfig.read(configuration)) as store:
            await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": namespace}}))
            machines = Machines(store, configuration, Path(home))
            try:
                return await crash(machines, namespace, jobs=jobs, kills=kills, seed=seed)
            finally:
                await machines.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill the controller while jobs run.")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    report = asyncio.run(_main(asked.jobs, asked.kills, asked.seed))
    print(f"{report.jobs} jobs, {report.workers} workers, {report.kills} kills in {report.seconds:.0f} s")
    print("\n".join(report.problems) or "every job finished once")
    sys.exit(1 if report.problems else 0)
