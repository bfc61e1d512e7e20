"""One pod on its node: the shell around `lifecycle.step`. Carries out effects and turns what happens into events.

Everything it knows beyond its memory lies in the pod's directory (see `agent.directories`).
"""

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp

from muster.agent import (
    directories,
    lifecycle,
    logs,
    messages,
    preparing,
    probes,
    status,
    telling,
    volumes,
)
from muster.agent.devices import Grant
from muster.agent.environment import ConfigMissing
from muster.agent.messages import Effect, Event
from muster.agent.preparing import Preparation, Supplies, Wanted
from muster.agent.reporting import Reporter
from muster.agent.runtime import Attempt, Executes, Exit, Launch, Running, Runtime, Unlaunchable
from muster.agent.states import ContainerPlan, Plan, Role, State
from muster.api import core, timestamps
from muster.api.errors import ApiError
from muster.api.meta import Instant
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import Clock
from muster.runtime.recording import EventType

_log = logging.getLogger(__name__)

_SIGNALS = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL}
_STORY = 100
_RETRY_SECONDS = 10.0
_MESSAGE_LINES = 80
_MESSAGE_LOG_BYTES = 2048
_HOOK_SECONDS = 86_400.0  # Kubernetes has no limit either; one that hangs ends with its container
_NO_COMMAND = (
    "the host-process runtime ignores images and has no entrypoint to fall back on: set `command` in the container"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a pod needs of its node."""

    runtime: Runtime
    clock: Clock
    reporter: Reporter
    record: Callable[[Object, EventType, str, str], None]  # an Event about the pod
    supplies: Supplies
    spawn: Callable[[Coroutine[None, None, None], str], asyncio.Task[None]]
    ended: Callable[["PodWorker"], None]  # it holds nothing any more
    forgotten: Callable[["PodWorker"], None]  # it is over and its object is not ours to report on


class PodWorker:
    def __init__(self, found: Object, home: Path, around: Surroundings) -> None:
        self.home = home
        self.object = found
        self.pod = found.read(core.Pod)
        self.grant = Grant({})
        self.state: State = lifecycle.begin(plan_of(self.pod))
        self._around = around
        self._preparation = Preparation(home, around.supplies)
        self._timer: asyncio.Task[None] | None = None
        self._timer_at: Instant | None = None
        self._sidework: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._launches: dict[str, Launch] = {}  # of each container, the latest: hooks and probes run in the same place
        self._rendered: Document = found.document().get("status") or {}
        self._story: deque[tuple[Event, tuple[Effect, ...]]] = deque(maxlen=_STORY)

    @property
    def key(self) -> Key:
        return self.object.key

    @property
    def uid(self) -> str:
        return self.object.uid

    @property
    def is_followed(self) -> bool:
        """Whether what it was given may have changed."""
        return preparing.is_followed(self.pod.spec) and any(c.is_alive for c in self.state.containers)

    @property
    def is_stopping(self) -> bool:
        return self.state.stop is not None and not self.state.is_over

    def attempts(self) -> list[Attempt]:
        """That run, one of each container."""
        return [self._attempt(found.name, found.attempt) for found in self.state.containers if found.is_alive]

    def story(self) -> list[tuple[Event, tuple[Effect, ...]]]:
        """The latest events and what was done about each."""
        return list(self._story)

    # What comes in.

    def save(self) -> None:
        """Write down whom this directory belongs to and what it holds."""
        self.home.mkdir(parents=True, exist_ok=True)
        directories.write_whole(self.home / "pod.json", self.object.raw)
        directories.save_grant(self.home, self.grant)

    def admit(self) -> None:
        now = self._around.clock.now()
        known = self.pod.status.start_time
        self.handle(messages.Admitted(now, timestamps.parse(known) if known else now))
        self.changed(self.object)

    def changed(self, found: Object) -> None:
        """The object was read anew."""
        self.object = found
        now = self._around.clock.now()
        grace = _grace_of(found)
        if is_finished(found) and not self.state.is_over:
            # Somebody else ended it (the node was taken for lost): what still runs must not be.
            self.handle(messages.Abandoned(now, grace))
        elif found.is_terminating:
            self.handle(messages.StopRequested(now, grace))

    def disowned(self) -> None:
        self.handle(messages.Abandoned(self._around.clock.now(), _grace_of(self.object)))

    async def adopt(self) -> None:
        """Find what an earlier agent process left. Ends with the pod's life going on."""
        for plan in self.state.plan.containers:
            directory = self.home / "containers" / plan.name
            numbers = directories.started_attempts(directory)
            if not numbers:
                continue
            found = await self._around.runtime.adopt(Attempt(directory, numbers[-1]))
            if found is None:
                continue
            before = await self._around.runtime.adopt(Attempt(directory, numbers[-2])) if len(numbers) > 1 else None
            end = self._with_message(plan.name, numbers[-1], found) if isinstance(found, Exit) else None
            last = self._with_message(plan.name, numbers[-2], before) if isinstance(before, Exit) else None
            now = self._around.clock.now()
            self.handle(messages.Adopted(now, plan.name, numbers[-1], found.started_at, end, last))

    async def refresh(self) -> None:
        """Show the pod what has changed of what it was given. Raises ApiError or OSError."""
        await self._preparation.refresh(self.object)

    # The machine.

    def handle(self, event: Event) -> None:
        """Take one step. Events come in order because this is never called from two places at once."""
        before = self.state
        self.state, effects = lifecycle.step(before, event)
        self._story.append((event, tuple(effects)))
        for told in telling.tell(before, event, self.state):
            self._around.record(self.object, *told)
        for effect in effects:
            self._perform(effect)
        if self.state.is_over and not before.is_over:
            self._finish()
        self._set_timer()

    def _perform(self, effect: Effect) -> None:
        around = self._around
        match effect:
            case messages.Report():
                around.reporter.report(self)
            case messages.Remove():
                around.reporter.remove(self)
            case messages.Forget():
                around.forgotten(self)
            case messages.Launch(container, attempt):
                self._spawn(self._launch(container, attempt), f"launch {container}/{attempt}")
            case messages.Watch(container, attempt):
                self._spawn(self._await_exit(container, attempt), f"watch {container}/{attempt}")
            case messages.Signal(container, attempt, number):
                self._spawn(
                    around.runtime.signal(self._attempt(container, attempt), _SIGNALS[number]), f"signal {number}"
                )
            case messages.RunPreStop(container, attempt, until):
                self._spawn(self._pre_stop(container, attempt, until), f"preStop {container}")
            case messages.BeginProbes(container, attempt, is_new):
                task = self._spawn(self._probe(container, attempt, is_new), f"probes {container}")
                self._sidework[container, attempt] = task

    def _finish(self) -> None:
        for task in self._sidework.values():
            task.cancel()
        self._sidework.clear()
        self._launches.clear()
        self._around.ended(self)

    def _spawn(self, work: Coroutine[None, None, None], what: str) -> asyncio.Task[None]:
        return self._around.spawn(work, f"pod {self.key}: {what}")

    def _set_timer(self) -> None:
        due = lifecycle.next_wake(self.state)
        if due == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None:
            self._timer = self._spawn(self._tick(due), "timer")

    async def _tick(self, due: Instant) -> None:
        await self._around.clock.sleep(max(0.0, due - self._around.clock.now()))
        self._timer, self._timer_at = None, None
        # Never before its time, even where the wall clock was set back meanwhile.
        self.handle(messages.Tick(Instant(max(due, self._around.clock.now()))))

    # Effects that take time.

    async def _launch(self, name: str, number: int) -> None:
        clock, runtime = self._around.clock, self._around.runtime
        try:
            launch = self._launches[name] = await self._prepare(name, number)
            if not launch.argv:
                now = clock.now()
                self._exited(name, number, Exit(128, 0, "StartError", _NO_COMMAND, now, now))
                return
            if number > 1:
                directories.prune(launch.attempt.directory, number - 1)
            found = await runtime.start(launch)
        except ConfigMissing as error:
            told = "FailedMount" if isinstance(error, volumes.NotMounted) else "Failed"
            self._unprepared(name, number, "CreateContainerConfigError", str(error), told)
            return
        except (Unlaunchable, ApiError, OSError) as error:
            self._unprepared(name, number, "RunContainerError", str(error) or type(error).__name__)
            return
        except Exception as error:  # a runtime is a plugin: whatever it does, the effect ends in an event
            _log.exception("pod %s: container %s could not be launched", self.key, name)
            self._unprepared(name, number, "RunContainerError", f"{type(error).__name__}: {error}")
            return
        if isinstance(found, Running):
            self.handle(messages.Started(clock.now(), name, number, found.started_at))
            await self._await_exit(name, number)
        else:
            self._exited(name, number, found)

    async def _await_exit(self, name: str, number: int) -> None:
        try:
            end = await self._around.runtime.wait(self._attempt(name, number))
        except Exception as error:  # as above
            _log.exception("pod %s: how container %s ended is not known", self.key, name)
            now = self._around.clock.now()
            end = Exit(137, 0, "ContainerStatusUnknown", f"{type(error).__name__}: {error}", now, now)
        self._exited(name, number, end)

    def _exited(self, name: str, number: int, end: Exit) -> None:
        task = self._sidework.pop((name, number), None)
        if task is not None:
            task.cancel()
        self.handle(messages.Exited(self._around.clock.now(), name, number, self._with_message(name, number, end)))

    def _with_message(self, name: str, number: int, end: Exit) -> Exit:
        """What the container said of its end: in the file meant for it or, where it asks for that, in its log."""
        message = directories.read_message(self._message_path(name, number)) or end.message
        policy = self._container(name).termination_message_policy
        if end.exit_code and not message and policy == "FallbackToLogsOnError":
            directory = self.home / "containers" / name
            lines = logs.last_lines(directory, number, lines=_MESSAGE_LINES, limit_bytes=_MESSAGE_LOG_BYTES)
            message = b"".join(lines).decode(errors="replace")
        return replace(end, message=message)

    def _message_path(self, name: str, number: int) -> Path:
        return self.home / "containers" / name / f"{number}.message"

    def _unprepared(self, name: str, number: int, reason: str, message: str, told: str = "Failed") -> None:
        _log.info("pod %s: container %s waits: %s: %s", self.key, name, reason, message)
        self.handle(messages.Unprepared(self._around.clock.now(), name, number, reason, message, told))

    async def _prepare(self, name: str, number: int) -> Launch:
        wanted = Wanted(
            self._container(name), self._attempt(name, number), self._message_path(name, number), self.grant
        )
        return await self._preparation.launch(self.object, wanted)

    async def _pre_stop(self, name: str, number: int, until: Instant) -> None:
        clock = self._around.clock
        container = self._container(name)
        handler = container.lifecycle.pre_stop if container.lifecycle is not None else None
        if handler is not None:
            await self._run_hook(name, number, handler, max(0.0, until - clock.now()))
        self.handle(messages.PreStopEnded(clock.now(), name, number))

    async def _run_hook(self, name: str, number: int, handler: core.LifecycleHandler, seconds: float) -> bool:
        container = self._container(name)
        try:
            async with asyncio.timeout(seconds):
                if handler.exec is not None:
                    return await self._run_beside(name, number, handler.exec.command, seconds)
                if handler.sleep is not None:
                    await self._around.clock.sleep(float(handler.sleep.seconds or 0))
                if handler.http_get is not None:
                    return await probes.answers(handler.http_get, container, self._around.supplies.host_ip)
        except (TimeoutError, ConfigMissing, ApiError, OSError, ValueError, aiohttp.ClientError):
            return False
        return True

    async def _run_beside(self, name: str, number: int, argv: tuple[str, ...], seconds: float) -> bool:
        runtime = self._around.runtime
        if not isinstance(runtime, Executes) or not argv:
            return True
        launch = self._launches.get(name) or await self._prepare(name, number)
        return (await runtime.execute(launch, argv, seconds)).exit_code == 0

    async def _prepare_adopted(self, name: str, number: int) -> None:
        """Where an earlier agent process launched it: find out where its probes are to run, which may take some tries.
        What cannot be asked must not be taken for ill."""
        while name not in self._launches:
            try:
                self._launches[name] = await self._prepare(name, number)
            except (ConfigMissing, ApiError, OSError) as error:
                _log.warning("pod %s: probes of container %s wait: %s", self.key, name, error)
                await self._around.clock.sleep(_RETRY_SECONDS)

    async def _probe(self, name: str, number: int, is_new: bool) -> None:
        container = self._container(name)
        found = probes.of(container)
        await self._prepare_adopted(name, number)
        hook = container.lifecycle.post_start if is_new and container.lifecycle is not None else None
        if hook is not None:
            has_passed = await self._run_hook(name, number, hook, _HOOK_SECONDS)
            now = self._around.clock.now()
            if not has_passed:
                self.handle(messages.Probed(now, name, number, "postStart", is_good=False))
                return
            if "startup" not in found:
                self.handle(messages.Probed(now, name, number, "startup", is_good=True))

        async def ask(probe: core.Probe) -> bool:
            async def run(argv: tuple[str, ...], seconds: float) -> bool:
                return await self._run_beside(name, number, argv, seconds)

            return await probes.ask(probe, container, self._around.supplies.host_ip, run)

        async def follow(which: str, probe: core.Probe) -> None:
            async for verdict in probes.watch(which, probe, ask, self._around.clock):
                now = self._around.clock.now()
                self.handle(messages.Probed(now, name, number, verdict.probe, verdict.is_good))

        if (startup := found.pop("startup", None)) is not None:
            await follow("startup", startup)
        async with asyncio.TaskGroup() as group:
            for which, probe in found.items():
                group.create_task(follow(which, probe), name=f"{which} probe of {self.key}/{name}")

    # What goes out.

    def render(self) -> Document:
        place = status.Place(self._around.supplies.host_ip, self.uid)
        self._rendered = status.render(self.pod, self.state, place, self._rendered, self._around.clock.now())
        return self._rendered

    def _attempt(self, name: str, number: int) -> Attempt:
        return Attempt(self.home / "containers" / name, number)

    def _container(self, name: str) -> core.Container:
        spec = self.pod.spec
        return next(c for c in (*spec.init_containers, *spec.containers) if c.name == name)


def is_finished(found: Object) -> bool:
    return found.read(core.Pod).status.phase in ("Succeeded", "Failed")


def plan_of(pod: core.Pod) -> Plan:
    spec = pod.spec
    inits = [
        _container_plan(c, Role.SIDECAR if c.restart_policy == "Always" else Role.INIT) for c in spec.init_containers
    ]
    mains = [_container_plan(c, Role.MAIN) for c in spec.containers]
    grace = spec.termination_grace_period_seconds
    return Plan(
        containers=(*inits, *mains),
        restart_policy=spec.restart_policy or "Always",
        deadline_seconds=spec.active_deadline_seconds,
        grace_seconds=30.0 if grace is None else float(grace),
    )


def _container_plan(container: core.Container, role: Role) -> ContainerPlan:
    return ContainerPlan(
        name=container.name,
        role=role,
        has_startup=container.startup_probe is not None,
        has_readiness=container.readiness_probe is not None,
        has_liveness=container.liveness_probe is not None,
        has_pre_stop=container.lifecycle is not None and container.lifecycle.pre_stop is not None,
        has_post_start=container.lifecycle is not None and container.lifecycle.post_start is not None,
    )


def _grace_of(found: Object) -> float:
    asked = found.meta.deletion_grace_period_seconds
    if asked is not None:
        return float(asked)
    grace = found.read(core.Pod).spec.termination_grace_period_seconds
    return 30.0 if grace is None else float(grace)
