"""Volumes at absolute paths that only one pod sees."""

import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from muster.agent import mounting
from muster.agent.devices import Grant
from muster.agent.environment import Sources
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.peers import Resolver
from muster.agent.ports import Ports
from muster.agent.preparing import Preparation, Supplies, Wanted
from muster.agent.runtime import Attempt, Exit, Launch, Mount
from muster.api import core, raw
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import SystemClock

SCRIPT = str(Path(mounting.__file__))
NOBODY = 65534
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mount namespaces are Linux's")

# What a keeper does, by somebody who may read neither our files nor even run our interpreter.
_SHOW = """
import __future__, contextlib, ctypes, errno, json, os, stat, sys, warnings
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec")
user, mounts, argv = int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:]
if user >= 0:
    os.setgroups([]), os.setresgid(user, user, user), os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # else the kernel keeps what is ours in /proc from us
names = {"__name__": "mounting"}
exec(code, names)
try:
    names["enter"]()
    names["show"](mounts)
except names["Refused"] as error:
    sys.exit(str(error))
os.execvp(argv[0], argv)
"""


def _run(
    mounts: Sequence[Mapping[str, object]], argv: Sequence[str], user: int | None
) -> "subprocess.CompletedProcess[str]":
    who = "-1" if user is None else str(user)
    command = [sys.executable, "-I", "-S", "-c", _SHOW, SCRIPT, who, json.dumps(mounts), *argv]
    path = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, env=path)


@pytest.fixture(params=["as who runs the agent", "without rights"])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> int | None:
    found = None if request.param.startswith("as") else NOBODY
    if found is not None and os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    for directory in (tmp_path, *list(tmp_path.parents)[:3]):
        directory.chmod(0o755)
    if "a mount namespace" in _run([], ["true"], found).stderr:
        pytest.skip("mount namespaces are not permitted here")
    return found


@pytest.fixture(params=["/run", "/etc", "/"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where nothing is, nor ever will be."""
    return os.path.join(request.param, f"muster-test-{os.getpid()}-{tmp_path.name[-30:]}")


def _mount(source: Path | str, target: str, *, is_read_only: bool = False, size: int = 0) -> dict[str, object]:
    return {"source": str(source), "target": target, "is_read_only": is_read_only, "bytes": size}


def test_it_is_seen_by_the_command_alone(tmp_path: Path, place: str, user: int | None) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    (volume / "file").write_text("inside\n")
    script = f"cd {place}/deep; cat file; id -u; echo new > made; ls {place}"
    done = _run([_mount(volume, f"{place}/deep")], ["sh", "-c", script], user)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["inside", str(os.geteuid() if user is None else user), "deep"]
    assert (volume / "made").read_text() == "new\n"
    assert not os.path.lexists(place), "nothing is made on the machine"


def test_what_was_beside_a_covered_directory_is_still_there(tmp_path: Path, place: str, user: int | None) -> None:
    above, own = os.path.split(place)
    look = f"cd {above} && ls -A && stat -c '%a %n' * && test -d /proc/self && test -c /dev/null"
    before = subprocess.run(["sh", "-c", look], capture_output=True, text=True, check=True, timeout=20).stdout
    done = _run([_mount(tmp_path, f"{place}/deep")], ["sh", "-c", look], user)
    assert {line for line in done.stdout.splitlines() if own not in line} == set(before.splitlines())


def test_read_only_nested_and_in_memory(tmp_path: Path, place: str, user: int | None) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    for directory in (outer, inner):
        directory.mkdir()
        directory.chmod(0o777)
    (inner / "tool").write_text("x")
    mounts = [
        _mount(outer, place),
        _mount("", f"{place}/memory", size=65536),
        _mount(inner, f"{place}/glue", is_read_only=True),
        _mount(inner, f"{place}/glue/more"),
    ]
    script = "cat glue/tool glue/more/tool; head -c 70000 /dev/zero > memory/x; echo y > glue/y"
    done = _run(mounts, ["sh", "-c", f"cd {place}; {script}"], user)
    assert done.stdout == "xx"
    assert "No space left on device" in done.stderr
    assert not (inner / "y").exists()


def test_a_mount_may_hide_where_another_comes_from(tmp_path: Path, user: int | None) -> None:
    hiding, volume = tmp_path / "hiding", tmp_path / "volume"
    for directory in (hiding, volume):
        directory.mkdir()
        directory.chmod(0o777)
    (volume / "file").write_text("there")
    mounts = [_mount(hiding, str(tmp_path)), _mount(volume, f"{tmp_path}/again")]
    done = _run(mounts, ["sh", "-c", f"ls {tmp_path}; cat {tmp_path}/again/file"], user)
    assert done.stdout == "again\nthere"


def test_what_cannot_be_mounted_is_said(place: str, user: int | None) -> None:
    done = _run([_mount("/nowhere/at/all", place)], ["true"], user)
    assert done.returncode == 1
    assert f'/nowhere/at/all could not be mounted at "{place}": No such file or directory' in done.stderr


@pytest.fixture
async def runtime() -> AsyncIterator[HostProcessRuntime]:
    found = HostProcessRuntime(SystemClock())
    if not await found.can_mount():
        pytest.skip("mount namespaces are not permitted here")
    yield found
    await found.close()


async def test_an_attempt_has_its_mounts_and_whatever_runs_beside_it_too(
    runtime: HostProcessRuntime, tmp_path: Path, place: str
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    attempt = Attempt(tmp_path / "main", 0)
    script = f"pwd; echo here > seen; echo own > {place}.memory/x; while ! test -e end; do sleep 0.02; done; exit 3"
    mounts = [Mount(volume, place), Mount(None, f"{place}.memory")]
    argv, env = ["/bin/sh", "-c", script], {"PATH": os.environ["PATH"]}
    launch = Launch(attempt, "mounts", argv, env, Path(place), mounts=mounts)
    await runtime.start(launch)
    assert (await runtime.execute(launch, ["no-such-program"], 10)).exit_code == 127
    beside = f"while ! test -e {place}.memory/x; do sleep 0.02; done; cat {place}.memory/x; pwd; touch end"
    executed = await runtime.execute(launch, ["sh", "-c", beside], 10)
    assert (executed.exit_code, executed.output.split()) == (0, ["own", place])
    assert (await runtime.wait(attempt)).exit_code == 3
    assert (volume / "seen").read_text() == "here\n"
    output = b"".join([chunk async for chunk in runtime.logs(attempt, LogOptions())])
    assert output.decode().strip() == place
    assert not os.path.lexists(place)


@pytest.mark.parametrize(
    ("source", "argv", "code", "says"),
    [
        ("/nowhere/at/all", ["true"], 128, "/nowhere/at/all could not be mounted at"),
        ("", ["/view/script"], 127, "the interpreter it names was not found"),
        ("", ["/view/none"], 127, "no such file or directory"),
    ],
)
async def test_an_attempt_that_cannot_start_says_why(
    runtime: HostProcessRuntime, tmp_path: Path, source: str, argv: list[str], code: int, says: str
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "script").write_text("#!/no/such/interpreter\n")
    (volume / "script").chmod(0o755)
    mounts = [Mount(Path(source or volume), "/view")]
    found = await runtime.start(Launch(Attempt(tmp_path / "main", 0), "bad", argv, {}, tmp_path, mounts=mounts))
    assert isinstance(found, Exit)
    assert found.exit_code == code
    assert says in found.message


async def _denied() -> bool:
    return False


async def _allowed() -> bool:
    return True


async def _no_pod(_kind: Kind, _key: Key) -> Object | None:
    return None


async def test_where_it_is_not_permitted_the_pod_is_told(tmp_path: Path) -> None:
    document = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {
            "containers": [
                {"name": "main", "command": ["true"], "volumeMounts": [{"name": "run", "mountPath": "/run/determined"}]}
            ],
            "volumes": [{"name": "run", "emptyDir": {}}],
        },
    }
    pod = Object(core.POD, raw.encode(document))

    async def nothing(_pod: core.Pod) -> Sources:
        return Sources()

    async def no_claims(_pod: core.Pod) -> dict[str, Path]:
        return {}

    async def announce(_pod: Object, _condition: Document) -> None:
        return

    told: list[str] = []
    for can_mount, mounts in ((_denied, 0), (_allowed, 1)):
        supplies = Supplies(
            host_ip="10.0.0.1",
            base={},
            allocatable={},
            fetch=nothing,
            find_claims=no_claims,
            resolver=Resolver(_no_pod, SystemClock()),
            ports=Ports(random.Random(1)),
            announce=announce,
            can_mount=can_mount,
            record=lambda _pod, _type, reason, _message: told.append(reason),
        )
        wanted = Wanted(pod.read(core.Pod).spec.containers[0], Attempt(tmp_path, 0), tmp_path / "message", Grant({}))
        launch = await Preparation(tmp_path, supplies).launch(pod, wanted)
        assert len(launch.mounts) == mounts
        assert ("MUSTER_UNMOUNTED" in launch.env) is (mounts == 0)
        assert Path(launch.env["MUSTER_VOLUME_RUN"]).is_dir()
    assert told == ["Unmounted"], "the pod is told where it is not permitted, and only there"
