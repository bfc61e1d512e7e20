"""Pods that run as somebody else than their agent."""

import asyncio
import contextlib
import json
import os
import random
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from muster.agent import commands
from muster.agent.devices import Grant
from muster.agent.environment import ConfigMissing, Sources
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.peers import Resolver
from muster.agent.ports import Ports
from muster.agent.preparing import Preparation, Supplies, Wanted
from muster.agent.runtime import Attempt, Exit, Launch, Running
from muster.api import core, raw
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import SystemClock

SOMEBODY, GROUP, SHARED = 54_321, 54_322, 54_323
"""Nobody whom the machine knows."""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
async def runtime() -> AsyncIterator[HostProcessRuntime]:
    found = HostProcessRuntime(SystemClock())
    yield found
    await found.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """As it is below a data directory that is the agent's alone."""
    private = tmp_path / "private"
    (private / "others").mkdir(parents=True)
    (private / "others" / "secret").write_text("not for you")
    private.chmod(0o700)
    made = private / "pods" / "uid"
    made.mkdir(parents=True)
    return made


async def _nothing(_kind: Kind, _key: Key) -> Object | None:
    return None


async def _sources(_pod: core.Pod) -> Sources:
    return Sources(secrets={"keys": {"private": b"hush"}})


async def _no_claims(_pod: core.Pod) -> dict[str, Path]:
    return {}


async def _announce(_pod: Object, _condition: Document) -> None:
    return


async def prepared(runtime: HostProcessRuntime, home: Path, script: str, **security: object) -> Launch:
    document = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {
            "securityContext": security,
            "containers": [
                {
                    "name": "main",
                    "command": ["sh", "-c", script],
                    "volumeMounts": [
                        {"name": "run", "mountPath": "/run/muster-users-test"},
                        {"name": "keys", "mountPath": "keys"},
                    ],
                }
            ],
            "volumes": [
                {"name": "run", "emptyDir": {}},
                {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
            ],
        },
    }
    pod = Object(core.POD, raw.encode(document))
    supplies = Supplies(
        host_ip="10.0.0.1",
        base={"PATH": os.environ["PATH"], "HOME": "/root", "USER": "root"},
        allocatable={},
        fetch=_sources,
        find_claims=_no_claims,
        resolver=Resolver(_nothing, SystemClock()),
        ports=Ports(random.Random(1)),
        announce=_announce,
        can_mount=runtime.can_mount,
        record=lambda *_: None,
    )
    container = pod.read(core.Pod).spec.containers[0]
    attempt = Attempt(home / "containers" / "main", 0)
    wanted = Wanted(container, attempt, attempt.directory / "0.message", Grant({}))
    return await Preparation(home, supplies).launch(pod, wanted)


async def run(runtime: HostProcessRuntime, launch: Launch) -> tuple[Exit, str]:
    await runtime.start(launch)
    end = await runtime.wait(launch.attempt)
    output = b"".join([chunk async for chunk in runtime.logs(launch.attempt, LogOptions())])
    return end, output.decode()


async def test_it_runs_as_whom_it_asks_for_with_all_that_it_needs(runtime: HostProcessRuntime, home: Path) -> None:
    script = """
    id -u; id -g; id -G; echo "$HOME $USER"
    echo a > "$TMPDIR/a" && echo b > b && echo c > "$MUSTER_VOLUME_RUN/c" && echo bye > "$MUSTER_TERMINATION_LOG"
    echo loud > /dev/stderr
    cat "$MUSTER_VOLUME_KEYS/private"; cat keys/private
    echo x >> "$MUSTER_VOLUME_KEYS/private"; ls -l "$TMPDIR/../../../others/secret"
    """
    wanted = {"runAsUser": SOMEBODY, "runAsGroup": GROUP, "fsGroup": SHARED, "supplementalGroups": [20]}
    launch = await prepared(runtime, home, script, **wanted)
    end, output = await run(runtime, launch)
    lines = output.splitlines()
    assert lines[:4] == [str(SOMEBODY), str(GROUP), f"{GROUP} 20 {SHARED}", f"{home / 'work'} {SOMEBODY}"]
    assert "loud" in output
    assert output.count("hush") == 2
    assert end.exit_code != 0, "what is not its own is neither written nor seen"
    assert (home / "volumes/keys/private").read_text() == "hush"
    assert (home / "containers/main/0.message").read_text() == "bye\n"
    made = (home / "volumes/run/c").stat()
    assert (made.st_uid, made.st_gid) == (SOMEBODY, SHARED)
    key = (home / "volumes/keys/private").stat()
    assert (key.st_uid, key.st_gid, stat.S_IMODE(key.st_mode)) == (0, SHARED, 0o440)


async def test_a_user_alone_owns_its_volumes(runtime: HostProcessRuntime, home: Path) -> None:
    script = 'echo c > "$MUSTER_VOLUME_RUN/c" && id -g; cat "$MUSTER_VOLUME_KEYS/private"'
    end, output = await run(runtime, await prepared(runtime, home, script, runAsUser=SOMEBODY))
    assert output.splitlines()[0] == str(SOMEBODY), "not root's group, which has rights on the machine"
    assert end.exit_code == 1, "a secret that is for its owner alone stays so without fsGroup"


async def test_probes_run_as_the_same_user(runtime: HostProcessRuntime, home: Path) -> None:
    script = "while ! test -e end; do sleep 0.02; done"
    launch = await prepared(runtime, home, script, runAsUser=SOMEBODY, runAsGroup=GROUP)
    await runtime.start(launch)
    executed = await runtime.execute(launch, ["sh", "-c", "id -u; id -G; pwd; touch end"], 10)
    assert executed.output.split() == [str(SOMEBODY), str(GROUP), str(home / "work")]
    assert (await runtime.wait(launch.attempt)).exit_code == 0


async def test_it_does_not_outlive_its_keeper(runtime: HostProcessRuntime, home: Path) -> None:
    launch = await prepared(runtime, home, "exec sleep 1000", runAsUser=SOMEBODY)
    assert isinstance(await runtime.start(launch), Running)
    state = json.loads((launch.attempt.directory / "0.state.json").read_text())
    os.kill(state["keeper"], signal.SIGKILL)
    async with asyncio.timeout(5):
        while psutil.pid_exists(state["pid"]):
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(state["pid"]).status() == psutil.STATUS_ZOMBIE:
                    break
            await asyncio.sleep(0.01)


async def test_root_is_refused_to_who_does_not_want_it(runtime: HostProcessRuntime, home: Path) -> None:
    with pytest.raises(ConfigMissing, match="runAsNonRoot"):
        await prepared(runtime, home, "true", runAsNonRoot=True)
    end, _ = await run(runtime, await prepared(runtime, home, "true", runAsNonRoot=True, runAsUser=SOMEBODY))
    assert end.exit_code == 0


async def test_who_asks_for_nothing_runs_as_the_agent(runtime: HostProcessRuntime, home: Path) -> None:
    launch = await prepared(runtime, home, 'id -u; echo "$HOME"')
    assert launch.identity is None
    _, output = await run(runtime, launch)
    assert output.split() == ["0", "/root"]


def test_an_agent_without_rights_says_so() -> None:
    request = {"user": {"uid": SOMEBODY, "gid": GROUP, "groups": [GROUP]}, "argv": ["true"], "cwd": "/"}
    code, reason, message = commands.explain(request, {"stage": "user", "errno": 1})  # type: ignore[arg-type]
    assert (code, reason) == (128, "StartError")
    assert f"may not become user {SOMEBODY} and group {GROUP}: run it as root" in message
