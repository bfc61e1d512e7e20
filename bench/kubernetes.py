"""kube-scheduler and ours on one real API server, one after the other, and ours with a large cluster.

As scheduler_perf's SchedulingBasic: 1,000 nodes of 4 CPUs, 5,000 pods of 100m. Nodes have no kubelet, so the control
plane runs without the controllers that would miss their heartbeats. Three shapes:

- `backlog`: all pods wait when the scheduler starts; binds a second count from the first to the last.
- `burst`: pods are created as fast as the server takes them while the scheduler runs. Whoever leaves more of the server
  to those who create has the longer queue, so its times say little of the scheduler alone.
- `steady`: 100 and 200 pods a second are created whatever the scheduler does: the same load for both.

The times are from a watch's ADDED of a pod to its node, both as they arrive here. Beside each shape stands how many of
the `Scheduled` events were written when the last pod was bound: who writes them later has had less to do.

`large` is 5,000 nodes with 50,000 pods on them: from the start of `muster controller` to the bind of a pod that waits.
"""

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.figures import Figure, Progress
from muster.access import kubeconfig
from muster.api import core
from muster.api.objects import Key
from muster.api.raw import Document
from muster.deploying import definitions, kinds, names
from muster.runtime import collector
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Create, Delete, Patch, PatchType, Selection, Write, Written, write_one
from muster.testing.builders import a_pod

_ROOT = Path(__file__).parents[1]
_NAMESPACE = "bench"
_BATCH = 500
_ROUNDS = 2
_SCHEDULERS = {"theirs": "default-scheduler", "ours": "muster"}


def run(progress: Progress) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        control_plane = [sys.executable, str(_ROOT / "tools" / "kubernetes.py")]
        control_plane += ["--without", "kube-controller-manager", "--without", "kube-scheduler", "--"]
        subprocess.run([*control_plane, sys.executable, "-m", "bench.kubernetes", str(out)], cwd=_ROOT, check=True)
        if not out.exists():
            progress("there is no control plane to measure with")
            return []
        return [Figure(**each) for each in json.loads(out.read_text())]


async def _measure(progress: Progress) -> list[Figure]:
    async with KubernetesStore(kubeconfig.read()) as store:
        await _prepare(store)
        progress("basic: 1,000 nodes")
        await _make_nodes(store, 1_000)
        figures = [figure for shape in _SHAPES for figure in await _compare(store, progress, shape)]
        progress("large: 5,000 nodes, 50,000 pods")
        await _make_nodes(store, 5_000, already=1_000)
        await _write(store, [Create(core.POD, _pod(f"old-{i}", "none", f"n{i % 5_000}")) for i in range(50_000)])
        seconds, peak_bytes = await _cold_start(store)
    figures.append(Figure("large.cold_start", seconds, "s", 30.0, at_most=True))
    figures.append(Figure("large.memory", peak_bytes / 2**30, "GiB", 1.5, at_most=True))
    return figures


# One round


@dataclass(frozen=True)
class Shape:
    name: str
    pods: int
    rate: float = float("inf")
    """Pods created a second."""
    are_first: bool = False
    """They wait when the scheduler starts."""


_SHAPES = (
    Shape("backlog", 5_000, are_first=True),
    Shape("burst", 5_000),
    Shape("steady_100", 2_000, rate=100.0),
    Shape("steady_200", 2_000, rate=200.0),
)


@dataclass(frozen=True)
class Round:
    rate: float
    p50_ms: float
    p99_ms: float
    told: int
    """Events that were written when the last pod was bound."""


async def _compare(store: KubernetesStore, progress: Progress, shape: Shape) -> list[Figure]:
    """The better round of each: by binds a second where that is the question, else by the 99th percentile."""
    rounds: dict[str, list[Round]] = {who: [] for who in _SCHEDULERS}
    for number in range(_ROUNDS):
        for who, found in rounds.items():
            progress(f"{shape.name}: {who}, round {number + 1} of {_ROUNDS}")
            found.append(await (_backlog if shape.are_first else _stream)(store, who, shape))
            await _remove_pods(store)
    is_steady = shape.rate < float("inf")
    ours, theirs = (
        min(rounds[who], key=lambda found: found.p99_ms if is_steady else -found.rate) for who in ("ours", "theirs")
    )
    figures = _versus(f"{shape.name}.rate", "binds/s", ours.rate, theirs.rate, is_asked=not is_steady)
    if not shape.are_first:
        figures += _versus(f"{shape.name}.p50", "ms", ours.p50_ms, theirs.p50_ms, is_asked=is_steady, at_most=True)
        figures += _versus(f"{shape.name}.p99", "ms", ours.p99_ms, theirs.p99_ms, is_asked=is_steady, at_most=True)
    return [*figures, *_versus(f"{shape.name}.told", "events", ours.told, theirs.told, is_asked=False)]


def _versus(name: str, unit: str, ours: float, theirs: float, *, is_asked: bool, at_most: bool = False) -> list[Figure]:
    """Ours is asked to be at least as good."""
    return [
        Figure(f"{name}.ours", ours, unit, theirs if is_asked else None, at_most),
        Figure(f"{name}.theirs", theirs, unit),
        Figure(f"{name}.ratio", ours / theirs, "×"),
    ]


async def _backlog(store: KubernetesStore, who: str, shape: Shape) -> Round:
    async with _watching(store) as seen:
        await _create(store, who, shape)
        with _scheduler(who) as process:
            await seen.until_bound(shape.pods, process)
            told = await _told(store)
    times = seen.bound.values()
    return Round((shape.pods - 1) / (max(times) - min(times)), 0.0, 0.0, told)


async def _stream(store: KubernetesStore, who: str, shape: Shape) -> Round:
    with _scheduler(who) as process:
        async with _watching(store) as warm:
            await _create(store, who, Shape("warm", 1))
            await warm.until_bound(1, process)
        async with _watching(store) as seen:
            await _create(store, who, shape)
            await seen.until_bound(shape.pods, process)
            told = await _told(store)
    waits = [seen.bound[name] - seen.added[name] for name in seen.bound]
    hundredths = statistics.quantiles(waits, n=100)
    span = max(seen.bound.values()) - min(seen.added.values())
    return Round(shape.pods / span, 1e3 * hundredths[49], 1e3 * hundredths[98], told)


async def _create(store: KubernetesStore, who: str, shape: Shape) -> None:
    """Each at its time, however long those before it take."""
    started = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(shape.pods):
            due = started + number / shape.rate
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            pod = Create(core.POD, _pod(f"{shape.name.replace('_', '-')}-{number}", _SCHEDULERS[who]))
            tasks.create_task(write_one(store, pod), name=f"create {number}")


async def _told(store: KubernetesStore) -> int:
    found = await store.list(Selection(core.EVENT, _NAMESPACE))
    return sum(each.read(core.Event).reason == "Scheduled" for each in found.items)


async def _cold_start(store: KubernetesStore) -> tuple[float, int]:
    """Seconds to the first bind, and the most memory that the controller has had until a little later."""
    async with _watching(store) as seen:
        await _write(store, [Create(core.POD, _pod("first", _SCHEDULERS["ours"]))])
        started = time.monotonic()
        with _scheduler("ours") as process:
            await seen.until_bound(1, process)
            await asyncio.sleep(5.0)
            peak = _peak_bytes(process.pid)
    return seen.bound["first"] - started, peak


# What is seen


@dataclass
class Seen:
    """When pods appeared and were bound, by name, on this process's clock."""

    added: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, store: KubernetesStore, begun: asyncio.Event) -> None:
        selection = Selection(core.POD, _NAMESPACE)
        since = (await store.list(selection, limit=1)).revision
        begun.set()
        async for events in store.watch(selection, since=since):
            now = time.monotonic()
            for found in (event.object for event in events):
                if found is None or found.key.name.startswith("old-"):
                    continue
                self.added.setdefault(found.key.name, now)
                if b'"nodeName":' in found.raw:
                    self.bound.setdefault(found.key.name, now)
            self.changed.set()

    async def until_bound(self, count: int, scheduler: "subprocess.Popen[bytes]") -> None:
        while len(self.bound) < count:
            assert scheduler.poll() is None, "the scheduler has ended"
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.changed.wait()


@contextlib.asynccontextmanager
async def _watching(store: KubernetesStore) -> AsyncIterator[Seen]:
    seen, begun = Seen(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(seen.follow(store, begun), name="watch pods")
        await begun.wait()
        yield seen
        following.cancel()


@contextlib.contextmanager
def _scheduler(who: str) -> Iterator["subprocess.Popen[bytes]"]:
    path = os.environ["KUBECONFIG"]
    if who == "ours":
        line = [sys.executable, "-m", "muster.cli.main", "controller", "-q", "--kubeconfig", path]
        line += ["--metrics-port", "0"]
    else:
        line = [f"{os.environ['MUSTER_KUBERNETES_BIN']}/kube-scheduler", f"--kubeconfig={path}", "--leader-elect=false"]
        line += ["--secure-port=0", "--kube-api-qps=5000", "--kube-api-burst=5000"]  # as scheduler_perf sets it
    told = None if who == "ours" else subprocess.DEVNULL  # theirs tells of every step
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=told)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _peak_bytes(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


# What is there


async def _prepare(store: KubernetesStore) -> None:
    """As `muster install` leaves a cluster, but for the controllers themselves."""
    await _write(
        store, [Create(kinds.CUSTOM_RESOURCE_DEFINITION, definitions.definition(kind)) for kind in definitions.kinds()]
    )
    for name in (_NAMESPACE, names.NAMESPACE):
        await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": name}}))
    # The controller that makes it does not run, and no pod is admitted without.
    account: Document = {"metadata": {"name": "default", "namespace": _NAMESPACE}}
    await write_one(store, Create(kinds.SERVICE_ACCOUNT, account))


async def _make_nodes(store: KubernetesStore, count: int, *, already: int = 0) -> None:
    room = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status: Document = {"capacity": room, "allocatable": room, "conditions": [ready]}
    keys = [Key("", f"n{number}") for number in range(already, count)]
    await _write(store, [Create(core.NODE, _node(key.name)) for key in keys])
    # New nodes are tainted until a controller has seen them to be ready; nobody else will take that off here.
    await _write(store, [Patch(core.NODE, key, {"spec": {"taints": None}}) for key in keys])
    body = {"status": status}
    await _write(store, [Patch(core.NODE, key, body, PatchType.STRATEGIC, "status") for key in keys])


def _node(name: str) -> Document:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}


def _pod(name: str, scheduler: str, node: str = "") -> Document:
    document = a_pod(name).cpu("100m").memory("500Mi").document()
    document["metadata"]["namespace"] = _NAMESPACE
    document["spec"]["schedulerName"] = scheduler
    if node:
        document["spec"]["nodeName"] = node
    return document


async def _remove_pods(store: KubernetesStore) -> None:
    """And what was told of them."""
    found = await store.list(Selection(core.POD, _NAMESPACE))
    await _write(store, [Delete(core.POD, each.key, grace_seconds=0) for each in found.items])
    told = await store.list(Selection(core.EVENT, _NAMESPACE))
    await _write(store, [Delete(core.EVENT, each.key) for each in told.items])


async def _write(store: KubernetesStore, writes: Sequence[Write]) -> None:
    for start in range(0, len(writes), _BATCH):
        for result in await store.write(writes[start : start + _BATCH]):
            assert isinstance(result, Written), result


def main(out: Path) -> None:
    collector.calm()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(_measure(Progress("kubernetes")))
    out.write_text(json.dumps([{name: getattr(each, name) for name in each.__dataclass_fields__} for each in figures]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
