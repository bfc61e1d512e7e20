"""An agent with a real store and real processes."""

import asyncio
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from muster.agent import cgroups
from muster.agent.devices import Gpu, Machine
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.node import Agent, NodeConfig
from muster.api import core, errors
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Selection, write_one

PYTHON = sys.executable
MACHINE = Machine(400_000, 2**36, 1000, tuple(Gpu(i, "fake", 2**34) for i in range(4)))
can_limit_memory = pytest.mark.skipif(cgroups.find() is None, reason="no control groups may be made here")


def a_pod(
    name: str, *argv: str, policy: str = "Never", container: dict[str, Any] | None = None, **spec: Any
) -> Document:
    main = {"name": "main", "image": "host", "command": list(argv), **(container or {})}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "n1",
            "restartPolicy": policy,
            "containers": [main],
            "terminationGracePeriodSeconds": 5,
            **spec,
        },
    }


def shell(name: str, script: str, **options: Any) -> Document:
    return a_pod(name, "sh", "-c", script, **options)


@dataclass
class House:
    store: EmbeddedStore
    agent: Agent
    directory: Path

    async def create(self, document: Document) -> Object:
        return await write_one(self.store, Create(core.POD, document))

    async def until(self, name: str, is_so: Callable[[core.Pod], bool], seconds: float = 20) -> core.Pod:
        key = Key("default", name)
        async with asyncio.timeout(seconds):
            page = await self.store.list(Selection(core.POD))
            for found in page.items:
                if found.key == key and is_so(found.read(core.Pod)):
                    return found.read(core.Pod)
            async for events in self.store.watch(Selection(core.POD), since=page.revision):
                for event in events:
                    if event.object is not None and event.object.key == key and is_so(event.object.read(core.Pod)):
                        return event.object.read(core.Pod)
        raise AssertionError("unreachable")

    async def run(self, document: Document) -> core.Pod:
        """Create a pod and wait for its end."""
        made = await self.create(document)
        return await self.until(made.key.name, is_over)

    async def logs(self, pod: core.Pod | Object, container: str = "main", **options: Any) -> str:
        meta = pod.metadata if isinstance(pod, core.Pod) else pod.meta
        lines = self.agent.open_logs(meta.namespace, meta.name, meta.uid, container, LogOptions(**options))
        return b"".join([piece async for piece in lines]).decode()

    async def until_logged(self, pod: Object, word: str) -> str:
        async with asyncio.timeout(10):
            while True:
                try:
                    text = await self.logs(pod)
                except errors.ApiError:
                    text = ""
                if word in text:
                    return text
                await asyncio.sleep(0.01)


def is_over(pod: core.Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def ended(pod: core.Pod, name: str = "main") -> core.ContainerStateTerminated:
    (found,) = [s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses) if s.name == name]
    assert found.state is not None
    assert found.state.terminated is not None, found
    return found.state.terminated


async def gone(pid: int) -> None:
    async with asyncio.timeout(5):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    clock = SystemClock()
    runtime = HostProcessRuntime(clock, groups=cgroups.find(), drain_seconds=0.3, log_bytes=20_000, log_files=4)
    async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as tasks:
        config = NodeConfig("n1", tmp_path / "node", MACHINE, address="127.0.0.1")
        agent = Agent(store, runtime=runtime, clock=clock, entropy=random.Random(1), config=config)
        running = tasks.create_task(agent.run())
        yield House(store, agent, tmp_path / "node")
        for pod in (await store.list(Selection(core.POD))).items:
            if not is_over(pod.read(core.Pod)):
                await store.write([Delete(core.POD, pod.key, grace_seconds=0)])
        await asyncio.wait_for(agent.drain(), 20)
        running.cancel()
    await runtime.close()


@pytest.mark.parametrize(("script", "phase", "code"), [("exit 0", "Succeeded", 0), ("exit 17", "Failed", 17)])
async def test_exit_codes(home: House, script: str, phase: str, code: int) -> None:
    found = await home.run(shell("a", script))
    assert found.status.phase == phase
    assert (ended(found).exit_code, ended(found).reason) == (code, "Completed" if code == 0 else "Error")
    assert ended(found).started_at is not None
    assert ended(found).finished_at is not None


async def test_death_by_signal(home: House) -> None:
    found = await home.run(shell("a", "kill -SEGV $$$$"))  # as in Kubernetes, $$ stands for one dollar sign
    assert (ended(found).exit_code, ended(found).signal, ended(found).reason) == (139, 11, "Error")


async def test_both_streams_are_logged(home: House) -> None:
    found = await home.run(shell("a", "echo out; echo err >&2; printf end"))
    text = await home.logs(found)
    assert sorted(text.replace("end", "").split()) == ["err", "out"]
    assert text.endswith("end")


async def test_the_environment_is_the_pods_own(home: House) -> None:
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "GREETING", "value": "hello $(NAME)"},
    ]
    os.environ["AGENT_SECRET"] = "must not leak"
    try:
        found = await home.run(
            a_pod("a", "sh", "-c", 'env; echo "arg $1"; pwd', "sh", "$(GREETING)", container={"env": env})
        )
    finally:
        del os.environ["AGENT_SECRET"]
    text = await home.logs(found)
    assert "GREETING=hello a\n" in text
    assert "arg hello a\n" in text
    assert "AGENT_SECRET" not in text
    assert "CUDA_VISIBLE_DEVICES=\n" in text
    home_directory = home.directory / "pods" / found.metadata.uid
    assert f"{home_directory}/work\n" in text
    assert f"TMPDIR={home_directory}/tmp\n" in text


async def test_no_descriptors_leak_into_the_command(home: House) -> None:
    found = await home.run(a_pod("a", PYTHON, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"))
    assert await home.logs(found) == "['0', '1', '2', '3']\n", "3 is the listing itself"


async def test_gpus_are_shown(home: House) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    found = await home.run(shell("a", "echo $CUDA_VISIBLE_DEVICES", container=limits))
    assert await home.logs(found) == "0,1\n"


async def test_volumes_are_named_and_linked(home: House) -> None:
    settings = {"metadata": {"name": "settings", "namespace": "default"}, "data": {"lr": "0.1"}}
    await write_one(home.store, Create(core.CONFIG_MAP, settings))
    document = shell(
        "a",
        "cat $MUSTER_VOLUME_CONF/lr conf/lr; echo x > $MUSTER_VOLUME_SCRATCH/f; ls $MUSTER_VOLUME_SCRATCH",
        container={"volumeMounts": [{"name": "conf", "mountPath": "conf"}]},
        volumes=[{"name": "conf", "configMap": {"name": "settings"}}, {"name": "scratch", "emptyDir": {}}],
    )
    assert await home.logs(await home.run(document)) == "0.10.1f\n"


@pytest.mark.parametrize(
    ("document", "code", "reason", "message"),
    [
        (a_pod("a", "no-such-command"), 127, "ContainerCannotRun", "executable file not found in $PATH"),
        (a_pod("a", "/no/such/file"), 127, "ContainerCannotRun", "no such file"),
        (a_pod("a", "/etc"), 126, "ContainerCannotRun", "permission denied"),
        (a_pod("a", "true", container={"workingDir": "/no/such/dir"}), 128, "StartError", 'directory "/no/such/dir"'),
        (a_pod("a"), 128, "StartError", "`command`"),
    ],
)  # fmt: skip
async def test_what_cannot_be_started_says_why(
    home: House, document: Document, code: int, reason: str, message: str
) -> None:
    found = await home.run(document)
    assert found.status.phase == "Failed"
    assert (ended(found).exit_code, ended(found).reason) == (code, reason)
    assert message in (ended(found).message or "")


async def test_term_reaches_the_whole_group_and_kill_what_ignores_it(home: House) -> None:
    # The child handles TERM and is slow, its child ignores it, and one has left the group.
    script = """
        trap 'echo got TERM' TERM
        setsid sleep 300 &
        sh -c 'trap "echo child got TERM" TERM; sh -c "trap \\"\\" TERM; echo deep; sleep 300" & wait; sleep 300' &
        wait; wait; sleep 300
    """
    made = await home.create(shell("a", script, terminationGracePeriodSeconds=1))
    await home.until_logged(made, "deep")
    group = [process for process in psutil.process_iter() if _belongs_to(process, made.uid)]
    assert len(group) >= 4
    began = time.monotonic()
    await write_one(home.store, Delete(core.POD, made.key))
    text = await home.until_logged(made, "child got TERM")
    assert "got TERM" in text
    async with asyncio.timeout(10):
        while not isinstance(await _get(home, "a"), errors.NotFound):
            await asyncio.sleep(0.02)
    assert 0.9 < time.monotonic() - began < 5
    for process in group:
        await gone(process.pid)


def _belongs_to(process: psutil.Process, uid: str) -> bool:
    try:
        return uid in process.environ().get("TMPDIR", "")
    except psutil.Error:
        return False


async def _get(home: House, name: str) -> Object | errors.NotFound:
    try:
        return await home.store.get(core.POD, Key("default", name))
    except errors.NotFound as error:
        return error


async def test_children_left_behind_end_with_the_command(home: House) -> None:
    made = await home.create(shell("a", "setsid sleep 300 & echo pid $!; (sleep 300; echo late) & exit 6"))
    found = await home.until("a", is_over)
    assert ended(found).exit_code == 6
    (pid,) = [int(line.split()[1]) for line in (await home.logs(made)).splitlines()]
    await gone(pid)
    assert not [p for p in psutil.process_iter() if _belongs_to(p, made.uid)]


async def test_a_pod_that_ends_on_term_goes_at_once(home: House) -> None:
    made = await home.create(
        shell("a", "trap 'exit 0' TERM; echo up; sleep 300 & wait", terminationGracePeriodSeconds=60)
    )
    await home.until_logged(made, "up")
    began = time.monotonic()
    await write_one(home.store, Delete(core.POD, made.key))
    async with asyncio.timeout(10):
        while not isinstance(await _get(home, "a"), errors.NotFound):
            await asyncio.sleep(0.01)
    assert time.monotonic() - began < 5
    async with asyncio.timeout(5):
        while (home.directory / "pods" / made.uid).exists():
            await asyncio.sleep(0.01)


@can_limit_memory
async def test_memory_limits_are_enforced(home: House) -> None:
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    hog = a_pod("hog", PYTHON, "-c", "x = bytearray(300 << 20); print('got away')", container=limits)
    found = await home.run(hog)
    assert (ended(found).exit_code, ended(found).signal, ended(found).reason) == (137, 9, "OOMKilled")
    assert await home.logs(found) == ""
    modest = a_pod("modest", PYTHON, "-c", "x = bytearray(20 << 20); print('fine')", container=limits)
    assert (await home.run(modest)).status.phase == "Succeeded"


@can_limit_memory
async def test_memory_of_a_child_counts_too(home: House) -> None:
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    found = await home.run(shell("a", f"{PYTHON} -c 'x = bytearray(300 << 20)'; exit $?", container=limits))
    assert (ended(found).exit_code, ended(found).reason) == (137, "OOMKilled")


@can_limit_memory
async def test_cpu_limits_are_enforced_and_groups_are_removed(home: House) -> None:
    script = "import time\nwhile time.process_time() < 0.3: pass"
    limits = {"resources": {"limits": {"cpu": "100m"}}}
    began = time.monotonic()
    assert (await home.run(a_pod("a", PYTHON, "-S", "-c", script, container=limits))).status.phase == "Succeeded"
    assert time.monotonic() - began > 1.5, "a tenth of a CPU takes ten times as long"
    own = Path("/proc/self/cgroup").read_text()
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        assert not list(Path(f"/sys/fs/cgroup/{controllers}{path}").glob("muster/*-main-*"))


async def test_without_control_groups_memory_is_limited_by_rlimit(tmp_path: Path) -> None:
    from muster.agent.runtime import Attempt, Launch, Limits  # noqa: PLC0415 - used here alone

    runtime = HostProcessRuntime(SystemClock(), groups=None)
    attempt = Attempt(tmp_path / "main", 0)
    argv = [PYTHON, "-c", "bytearray(300 << 20)"]
    await runtime.start(Launch(attempt, "x", argv, {}, tmp_path, Limits(memory_bytes=128 << 20)))
    assert (await runtime.wait(attempt)).exit_code == 1
    text = b"".join([piece async for piece in runtime.logs(attempt, LogOptions())])
    assert b"MemoryError" in text
    await runtime.close()


async def test_the_deadline(home: House) -> None:
    began = time.monotonic()
    found = await home.run(shell("a", "sleep 300", activeDeadlineSeconds=1))
    assert (found.status.phase, found.status.reason) == ("Failed", "DeadlineExceeded")
    assert 0.9 < time.monotonic() - began < 10
    assert ended(found).signal == signal.SIGTERM


async def test_init_containers_in_order_with_a_sidecar(home: House) -> None:
    script = "echo $0 >> $MUSTER_VOLUME_V/order"

    def step(name: str, body: str, **more: str) -> dict[str, Any]:
        return {"name": name, "image": "host", "command": ["sh", "-c", body, name], **more}

    document = shell(
        "a",
        "echo main >> $MUSTER_VOLUME_V/order; cat $MUSTER_VOLUME_V/order",
        initContainers=[
            step("one", f"sleep 0.1; {script}"),
            step("side", f"{script}; exec sleep 300", restartPolicy="Always"),
            step("two", f"sleep 0.1; {script}"),
        ],
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    found = await home.run(document)
    assert found.status.phase == "Succeeded"
    assert (await home.logs(found)).split() == ["one", "side", "two", "main"]
    assert ended(found, "one").exit_code == 0
    assert ended(found, "side").signal == signal.SIGTERM


async def test_restarts_count_and_remember(home: House) -> None:
    script = 'n=$(cat count 2>/dev/null || echo 0); echo $((n+1)) > count; echo "try $n"; [ $n -ge 1 ]'
    found = await home.run(shell("a", script, policy="OnFailure"))
    assert found.status.phase == "Succeeded"
    status = found.status.container_statuses[0]
    assert status.restart_count == 1
    assert status.last_state is not None
    assert status.last_state.terminated is not None
    assert status.last_state.terminated.exit_code == 1
    assert await home.logs(found) == "try 1\n"
    assert await home.logs(found, previous=True) == "try 0\n"


async def test_a_termination_message_from_the_logs(home: House) -> None:
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    found = await home.run(shell("a", "echo the reason; exit 1", container=container))
    assert ended(found).message == "the reason\n"


async def test_a_termination_message_from_its_file(home: House) -> None:
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    script = 'echo log; echo "the reason" > "$MUSTER_TERMINATION_LOG"; exit 3'
    found = await home.run(shell("a", script, container=container))
    assert (ended(found).exit_code, ended(found).message) == (3, "the reason\n")
    fine = await home.run(shell("b", 'echo "accuracy 0.9" > "$MUSTER_TERMINATION_LOG"'))
    assert (ended(fine).exit_code, ended(fine).message) == (0, "accuracy 0.9\n")


@pytest.mark.parametrize(
    ("script", "length"),
    [
        ("head -c 100000 /dev/zero | tr '\\0' x > \"$MUSTER_TERMINATION_LOG\"", 4096),
        ('mkfifo "$MUSTER_TERMINATION_LOG"', 0),
        ('mkdir "$MUSTER_TERMINATION_LOG"', 0),
        ('ln -s /etc/passwd "$MUSTER_TERMINATION_LOG"', 0),
    ],
)
async def test_a_termination_message_may_be_anything(home: House, script: str, length: int) -> None:
    found = await home.run(shell("a", script))
    assert found.status.phase == "Succeeded"
    assert len(ended(found).message or "") == length


async def test_a_post_start_hook_runs_beside_and_comes_before_readiness(home: House) -> None:
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "echo hooked > hooked; sleep 0.3"]}}}
    made = await home.create(shell("a", "sleep 300", container={"lifecycle": hook}))
    await home.until("a", lambda pod: pod.status.phase == "Running" and not pod.status.container_statuses[0].ready)
    await home.until("a", lambda pod: pod.status.container_statuses[0].ready)
    assert (home.directory / "pods" / made.uid / "work" / "hooked").read_text() == "hooked\n"


async def test_a_post_start_hook_that_fails_ends_the_container(home: House) -> None:
    hook = {"postStart": {"exec": {"command": ["false"]}}}
    found = await home.run(shell("a", "sleep 300", container={"lifecycle": hook}))
    assert (found.status.phase, ended(found).signal) == ("Failed", signal.SIGTERM)


async def test_logs_rotate_and_are_read_across(home: House) -> None:
    script = "import time\nfor i in range(3000): print('line', i)"
    found = await home.run(a_pod("a", PYTHON, "-c", script))
    files = sorted(
        path.name for path in (home.directory / "pods" / found.metadata.uid / "containers/main").glob("*.log*")
    )
    assert files == ["0.log", "0.log.1", "0.log.2", "0.log.3"]
    lines = (await home.logs(found)).splitlines()
    assert lines == [f"line {i}" for i in range(3000 - len(lines), 3000)]
    assert 1000 < len(lines) < 3000, "what is older than four files is let go"
    assert (await home.logs(found, tail=2)).splitlines() == ["line 2998", "line 2999"]


async def test_following_is_prompt_and_complete(home: House) -> None:
    made = await home.create(shell("a", "for i in 1 2 3; do echo $i; sleep 0.2; done"))
    await home.until_logged(made, "1")
    seen: list[tuple[float, str]] = []
    lines = home.agent.open_logs("default", "a", made.uid, "main", LogOptions(follow=True, timestamps=True))
    async for piece in lines:
        for line in piece.decode().splitlines():
            stamp, _, word = line.partition(" ")
            delay = time.time() - time.mktime(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone
            seen.append((delay - float(f"0.{stamp[20:29]}"), word))
    assert [word for _, word in seen] == ["1", "2", "3"]
    assert max(delay for delay, _ in seen[1:]) < 0.5
    assert ended(await home.until("a", is_over)).exit_code == 0


async def test_logs_of_what_is_not_there(home: House) -> None:
    found = await home.run(shell("a", "true"))
    uid = found.metadata.uid
    with pytest.raises(errors.NotFound):
        home.agent.open_logs("default", "b", uid, "main", LogOptions())
    with pytest.raises(errors.NotFound):
        home.agent.open_logs("default", "a", f"../pods/{uid}", "main", LogOptions())
    with pytest.raises(errors.BadRequest, match="not valid for pod a"):
        home.agent.open_logs("default", "a", uid, "other", LogOptions())
    with pytest.raises(errors.BadRequest, match="previous"):
        home.agent.open_logs("default", "a", uid, "main", LogOptions(previous=True))


async def test_probes_of_all_kinds(home: House) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    container = {
        "ports": [{"name": "web", "containerPort": port}],
        "startupProbe": {"tcpSocket": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 20},
        "readinessProbe": {"httpGet": {"port": port, "path": "/"}, "periodSeconds": 1},
        "livenessProbe": {"exec": {"command": ["test", "!", "-e", "sick"]}, "periodSeconds": 1, "failureThreshold": 1},
    }
    server = [PYTHON, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    made = await home.create(a_pod("a", *server, policy="Always", container=container))
    await home.until("a", lambda pod: bool(pod.status.container_statuses and pod.status.container_statuses[0].ready))
    (home.directory / "pods" / made.uid / "work" / "sick").touch()
    found = await home.until("a", lambda pod: pod.status.container_statuses[0].restart_count == 1)
    assert found.status.phase == "Running"


async def test_a_hook_runs_before_the_end(home: House) -> None:
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo hooked > hook"]}}}}
    made = await home.create(shell("a", "trap 'cat hook; exit 0' TERM; echo up; sleep 300 & wait", container=hook))
    await home.until_logged(made, "up")
    await write_one(home.store, Delete(core.POD, made.key))
    found = await home.until("a", is_over)
    assert ended(found).exit_code == 0


async def test_two_hundred_short_pods(home: House) -> None:
    count = 200
    await home.store.write([Create(core.POD, a_pod(f"p{i}", "sh", "-c", f"exit {i % 3}")) for i in range(count)])
    codes = {}
    for i in range(count):
        codes[i] = ended(await home.until(f"p{i}", is_over, seconds=60)).exit_code
    assert codes == {i: i % 3 for i in range(count)}


async def test_a_keeper_that_is_killed_takes_its_process_along_and_is_reported(home: House) -> None:
    made = await home.create(shell("a", "setsid sleep 300 & sleep 300 & echo up; sleep 300"))
    await home.until_logged(made, "up")
    await asyncio.sleep(0.1)
    group = [process for process in psutil.process_iter() if _belongs_to(process, made.uid)]
    assert len(group) == 4
    keeper = group[0].parent()
    assert keeper is not None
    keeper.kill()
    found = await home.until("a", is_over)
    assert (ended(found).exit_code, ended(found).reason) == (137, "Error")
    assert "kept this container" in (ended(found).message or "")
    for process in group:
        await gone(process.pid)
