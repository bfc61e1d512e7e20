"""The agent: joins a machine (or a share of one) as a Node and runs the pods that are bound to it.

It meets the rest of the platform only through the store. Being stopped leaves its pods running, and the next agent with
the same directory takes them up again; `drain` ends them.
"""

import asyncio
import contextlib
import logging
import os
import random
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.agent import devices, directories, environment, logs, messages, pods, ports, registration
from muster.agent.claims import ClaimDirectories
from muster.agent.devices import Grant, Ledger, Machine
from muster.agent.logs import LogOptions
from muster.agent.peers import Resolver
from muster.agent.pods import PodWorker, Surroundings
from muster.agent.ports import Ports
from muster.agent.preparing import Supplies
from muster.agent.registration import Identity, Registration
from muster.agent.reporting import Reporter
from muster.agent.runtime import Leads, Mounts, Runtime
from muster.agent.sampling import Occupant, Sampler, Samples
from muster.agent.sourcing import Issuer, SourceReader
from muster.api import core, errors
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.muster.names import TASK_LABEL
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.selectors import FieldSelector, parse_fields
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Event, Patch, PatchType, Selection, Store, write_one

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """`directory` holds everything of this node. `machine` is what it offers: see `devices.discover` and `share`."""

    name: str
    directory: Path
    machine: Machine
    labels: Mapping[str, str] = field(default_factory=dict)  # topology and whatever else
    address: str | None = None  # None: the one this machine speaks from
    port: int = 0  # where `agent.endpoint` serves logs; 0 where they are read in process
    fingerprint: str = ""  # of the certificate that it is served with
    base: Mapping[str, str] | None = None  # environment for all pods; None: a few variables of the agent's own
    fresh_seconds: float = 1.0  # between two looks whether ConfigMaps, Secrets and the addresses of peers have changed


class Agent:
    """`issuer`: of tokens for the service accounts of pods; None where they have none."""

    def __init__(
        self,
        store: Store,
        *,
        runtime: Runtime,
        clock: Clock,
        entropy: random.Random,
        config: NodeConfig,
        issuer: Issuer | None = None,
    ) -> None:
        self._store = store
        self._issuer = issuer
        self._runtime = runtime
        self._clock = clock
        self._entropy = entropy
        self._config = config
        self._home = config.directory / "pods"
        self._trash = config.directory / "trash"
        self._address = config.address or registration.own_address()
        self._is_draining = False
        self._sampler = Sampler(clock.monotonic)
        self._sampling = asyncio.Lock()
        self._reset()

    def _reset(self) -> None:
        """Know nothing: what runs is found again on disk. A supervisor may call `run` anew after it failed."""
        store, clock, config = self._store, self._clock, self._config
        self._workers: dict[str, PodWorker] = {}
        self._starting: set[str] = set()
        self._waiting: dict[str, PodWorker] = {}  # admitted once pods that are ending have let go, in order of arrival
        self._is_settled = False  # it is known what runs here and holds devices: only then is anything given out
        self._ledger = Ledger(config.machine)
        self._ports = Ports(self._entropy)
        self._reporter = Reporter(store, clock)
        self._events = EventRecorder(store, clock, "muster-agent")
        self._tasks: asyncio.TaskGroup | None = None
        self._changed = asyncio.Event()
        identity = Identity(
            config.name,
            self._address,
            config.machine,
            config.directory,
            config.labels,
            config.port,
            config.fingerprint,
        )
        self._registration = Registration(store, identity, clock=clock, entropy=self._entropy)
        self._informer = Informer(store, Selection(core.POD, fields=_on_node(config.name)), clock=clock)
        self._informer.on_event(self._heard)
        claimed = config.directory / "claims"
        self._claims = ClaimDirectories(config.name, claimed, store, clock, self._get, self._claims_in_use)
        self._sources = SourceReader(self._get, clock, self._issuer)
        self._around = Surroundings(
            runtime=self._runtime,
            clock=clock,
            reporter=self._reporter,
            record=self._events.record,
            supplies=Supplies(
                host_ip=self._address,
                base=own_environment() if config.base is None else config.base,
                allocatable=config.machine.amounts(),
                fetch=self._sources.fetch,
                find_claims=self._claims.find,
                resolver=Resolver(self._get, clock),
                ports=self._ports,
                announce=self._announce,
                can_mount=self._can_mount,
                record=self._events.record,
            ),
            spawn=self._spawn,
            ended=self._ended,
            forgotten=self._forgotten,
        )

    async def run(self) -> None:
        """Until cancelled. Pods run on."""
        self._reset()
        self._home.mkdir(parents=True, exist_ok=True)
        self._trash.mkdir(exist_ok=True)
        with contextlib.closing(self._ports):
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._stay_registered(), name="node registration")
            tasks.create_task(self._reporter.run(), name="pod statuses")
            tasks.create_task(self._events.run(), name="events about pods")
            tasks.create_task(self._informer.run(), name="pods of this node")
            tasks.create_task(self._sweep(), name="directories of pods that are gone")
            tasks.create_task(self._keep_fresh(), name="what pods were given")
            tasks.create_task(self._claims.tidy(), name="directories of claims")

    async def drain(self) -> None:
        """End all pods of this node and refuse new ones. Returns when nothing runs and the store knows. Needs `run`."""
        self._is_draining = True
        for worker in list(self._workers.values()):
            self._evict(worker)
        while self._starting or any(not worker.state.is_over for worker in self._workers.values()):
            self._changed.clear()
            await self._changed.wait()
        await self._reporter.flushed()

    def _evict(self, worker: PodWorker) -> None:
        grace = worker.state.plan.grace_seconds
        worker.handle(messages.Evicted(self._clock.now(), grace, "Terminated", _SHUTDOWN))

    def open_logs(
        self, namespace: str, name: str, uid: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        """A container's output. Raises NotFound or BadRequest."""
        home = self._home / uid
        found = directories.saved_object(home) if _is_plain(uid) else None
        if found is None or found.key != Key(namespace, name) or found.uid != uid:
            raise self._not_here(name)
        spec = found.read(core.Pod).spec
        if container not in {c.name for c in (*spec.init_containers, *spec.containers)}:
            raise errors.BadRequest(f"container {container} is not valid for pod {name}")
        try:
            return logs.read(home, container, options, self._clock)
        except errors.BadRequest as error:
            raise errors.BadRequest(f'pod "{name}": {error.message}') from error

    def uid_of(self, namespace: str, name: str) -> str:
        """Of the pod of that name here. Raises NotFound."""
        found = self._informer.get(Key(namespace, name))
        if found is None:
            raise self._not_here(name)
        return found.uid

    def _not_here(self, name: str) -> errors.NotFound:
        return errors.NotFound(f'pods "{name}" not found on node {self._config.name}', kind="pods", name=name)

    async def samples(self) -> Samples:
        """What the pods of tasks use, by uid and group; rates since this was asked last."""
        if not isinstance(self._runtime, Leads):
            return {}
        async with self._sampling:
            return await asyncio.to_thread(self._sampler.sample, self._occupants(self._runtime))

    def _occupants(self, runtime: Leads) -> list[Occupant]:
        uuids = {gpu.index: gpu.uuid for gpu in self._config.machine.gpus}
        found = []
        for worker in self._workers.values():
            if TASK_LABEL not in (worker.object.meta.labels or {}):
                continue
            leaders = [pid for attempt in worker.attempts() if (pid := runtime.leader(attempt)) is not None]
            if leaders:
                held = {index for indexes in worker.grant.gpus.values() for index in indexes}
                found.append(Occupant(worker.uid, leaders, [uuids[index] for index in sorted(held & uuids.keys())]))
        return found

    def story(self, uid: str) -> str:
        """The latest events of a pod and what was done about each, for a person to read."""
        worker = self._workers.get(uid)
        return "\n".join(f"{event} -> {list(effects)}" for event, effects in worker.story()) if worker else ""

    # The node.

    async def _stay_registered(self) -> None:
        while True:
            try:
                await self._registration.keep()
                self._ledger.disabled = frozenset(self._registration.disabled)
            except (ApiError, OSError) as error:
                _log.warning("node %s could not be kept registered: %s", self._config.name, error)
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            await self._clock.sleep(self._registration.pause())

    # Pods that come, change and go.

    def _heard(self, event: Event) -> None:
        try:
            self._take(event)
        except Exception:
            # One pod's trouble must not deafen the agent to all others.
            _log.exception("%s of %s was not taken", event.change, event.object)

    def _take(self, event: Event) -> None:
        found = event.object
        if found is None:
            return
        worker = self._workers.get(found.uid)
        if event.change is Change.DELETED:
            if worker is not None:
                worker.object = found
                worker.disowned()
            elif found.uid not in self._starting:
                self._erase(found.uid)
        elif worker is not None:
            worker.changed(found)
        elif found.uid not in self._starting:
            self._welcome(found)

    def _welcome(self, found: Object) -> None:
        """A pod that this agent process has not seen before."""
        home = self._home / found.uid
        if home.exists():
            self._starting.add(found.uid)
            self._spawn(self._take_up(found, home), f"adoption of pod {found.key}")
        elif not pods.is_finished(found):
            worker = PodWorker(found, home, self._around)
            self._workers[found.uid] = worker
            self._admit(worker)

    async def _take_up(self, found: Object, home: Path) -> None:
        """Go on with a pod that an earlier agent process had, or end what is left of it."""
        try:
            worker = PodWorker(found, home, self._around)
            await worker.adopt()
        finally:
            self._starting.discard(found.uid)
            self._changed.set()
        # It may have changed, or gone, while we looked.
        latest = self._informer.get(found.key)
        is_gone = latest is None or latest.uid != found.uid
        worker.object = found if latest is None or is_gone else latest
        if pods.is_finished(found) and not any(c.is_alive for c in worker.state.containers):
            if is_gone:
                self._erase(found.uid)
            return
        self._workers[found.uid] = worker
        has_begun = any(c.attempt >= 0 for c in worker.state.containers)
        if has_begun:
            held = directories.saved_grant(home) or Grant(devices.claim(worker.pod).needs)
            worker.grant = self._ledger.restore(found.uid, held)
            self._ports.restore(found.uid, ports.read(worker.pod.status.conditions) or {})
        if is_gone:
            worker.disowned()
        elif has_begun:
            worker.admit()
            if self._is_draining:
                self._evict(worker)
        else:
            self._admit(worker)

    def _admit(self, worker: PodWorker) -> None:
        """Let the pod begin if there is room; refuse it if there will not be; else wait for pods that are ending."""
        now = self._clock.now()
        if worker.object.is_terminating:
            worker.changed(worker.object)
            return
        if self._is_draining:
            worker.handle(messages.Refused(now, "NodeShutdown", "Pod was rejected as the node is shutting down."))
            return
        if not self._is_settled:
            self._waiting[worker.uid] = worker
            return
        claimed = devices.claim(worker.pod)
        if self._ledger.shortage(claimed) is None:
            worker.grant = self._ledger.grant(worker.uid, claimed)
            try:
                worker.save()
            except OSError as error:
                worker.handle(messages.Refused(now, "UnexpectedAdmissionError", f"its directory: {error}"))
            else:
                worker.admit()
            return
        ending = [uid for uid, other in self._workers.items() if other.is_stopping]
        shortage = self._ledger.shortage(claimed, besides=ending)
        if shortage is not None:
            worker.handle(messages.Refused(now, shortage.reason, shortage.message))
        else:
            self._waiting[worker.uid] = worker

    def _ended(self, worker: PodWorker) -> None:
        """Nothing of the pod runs: what it held is free before the store hears of it."""
        self._waiting.pop(worker.uid, None)
        self._ports.release(worker.uid)
        self._changed.set()
        if self._ledger.release(worker.uid):
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for worker in waiting.values():
            self._admit(worker)

    def _forgotten(self, worker: PodWorker) -> None:
        self._reporter.forget(worker.uid)
        self._sources.forget(worker.uid)
        current = self._informer.get(worker.key)
        if current is None or current.uid != worker.uid:
            self._workers.pop(worker.uid, None)
            self._erase(worker.uid)

    def _erase(self, uid: str) -> None:
        """Out of the way at once, so that nothing finds it half removed; deleting a large directory takes its time."""
        home, discarded = self._home / uid, self._trash / uid
        if _is_plain(uid) and home.exists():
            home.rename(discarded)
            self._spawn(asyncio.to_thread(directories.erase, discarded), f"removal of {home.name}")

    async def _sweep(self) -> None:
        """Once, when the first list is in: directories whose pods are gone. What still runs there is ended first."""
        discarded = list(self._trash.iterdir())
        await self._informer.synced()
        known = {found.uid for found in self._informer.items()}
        for home in sorted(self._home.iterdir()):
            if home.name in known or home.name in self._starting or home.name in self._workers:
                continue
            found = directories.saved_object(home)
            if found is None or found.uid != home.name:
                self._erase(home.name)
                continue
            self._starting.add(found.uid)
            await self._take_up(found, home)
        while self._starting:
            self._changed.clear()
            await self._changed.wait()
        self._is_settled = True
        self._admit_waiting()
        await asyncio.to_thread(directories.erase_all, discarded)

    async def _announce(self, pod: Object, condition: Document) -> None:
        """The uid is a precondition: it must never land on a later pod of that name."""
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        patch = Patch(core.POD, pod.key, body, type=PatchType.STRATEGIC, subresource="status")
        await write_one(self._store, patch)

    def _claims_in_use(self) -> set[Key]:
        live = [worker for worker in self._workers.values() if not worker.state.is_over]
        return {Key(worker.key.namespace, name) for worker in live for name in core.claims_of(worker.pod.spec)}

    async def _can_mount(self) -> bool:
        return isinstance(self._runtime, Mounts) and await self._runtime.can_mount()

    async def _keep_fresh(self) -> None:
        while True:
            await self._clock.sleep(self._config.fresh_seconds)
            for worker in [worker for worker in self._workers.values() if worker.is_followed]:
                try:
                    await worker.refresh()
                except (ApiError, OSError) as error:
                    _log.info("pod %s: what it was given may be out of date: %s", worker.key, error)

    async def _get(self, kind: Kind, key: Key) -> Object | None:
        try:
            return await self._store.get(kind, key)
        except errors.NotFound:
            return None

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        assert self._tasks is not None, "the agent is not running"
        return self._tasks.create_task(_guarded(work, name), name=name)


async def _guarded(work: Coroutine[None, None, None], name: str) -> None:
    """One pod's trouble must not end the agent, which would leave all others without one."""
    try:
        await work
    except Exception:
        _log.exception("%s failed", name)


def _on_node(name: str) -> FieldSelector:
    return parse_fields(f"spec.nodeName={name}", core.POD)


def own_environment() -> dict[str, str]:
    """What all pods start from."""
    own = {name: os.environ[name] for name in environment.INHERITED if name in os.environ}
    return {**own, "MUSTER_PYTHON": sys.executable}


def _is_plain(uid: str) -> bool:
    """Whether this is the name of a directory and nothing else: it may come from a request."""
    return bool(uid) and uid not in (".", "..") and "/" not in uid and "\0" not in uid
