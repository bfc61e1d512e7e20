"""Volumes at absolute paths that only one pod sees."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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
from muster.agent.runtime import Attempt, Launch, Mount
from muster.api import core, raw
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import SystemClock

SCRIPT = str(Path(mounting.__file__))
NOBODY = 65534
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mount namespaces are Linux's")


_AS_SOMEBODY = """
import __future__, ctypes, errno, json, os, stat, sys, warnings
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec")
user = int(sys.argv[2])
os.setgroups([]), os.setresgid(user, user, user), os.setresuid(user, user, user)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # else the kernel keeps what is ours in /proc from us
del sys.argv[1:3]
exec(code, {"__name__": "__main__"})
"""


def _call(arguments: Sequence[str], user: int | None) -> "subprocess.CompletedProcess[str]":
    """The script, which nobody else may read, or even run its interpreter."""
    who = [SCRIPT] if user is None else ["-c", _AS_SOMEBODY, SCRIPT, str(user)]
    command = [sys.executable, "-I", "-S", *who, *arguments]
    path = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, env=path)


@pytest.fixture(params=["as who runs the agent", "without rights"])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> int | None:
    found = None if request.param.startswith("as") else NOBODY
    if found is not None and os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    for directory in (tmp_path, *list(tmp_path.parents)[:3]):
        directory.chmod(0o755)
    if _call(["probe", str(tmp_path)], found).returncode != 0:
        pytest.skip("mount namespaces are not permitted here")
    return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """Where nothing is. Root makes it, and leaves it; others cover what is above."""
    found = f"/run/muster-test-{os.getpid()}-{tmp_path.name[-30:]}"
    yield found
    shutil.rmtree(found, ignore_errors=True)


def _run(spec: Mapping[str, object], argv: Sequence[str], user: int | None) -> "subprocess.CompletedProcess[str]":
    return _call([json.dumps(spec), *argv], user)


def _mount(source: Path | str, target: str, *, is_read_only: bool = False, size: int = 0) -> dict[str, object]:
    return {"source": str(source), "target": target, "is_read_only": is_read_only, "bytes": size}


def test_it_is_seen_by_the_command_alone(tmp_path: Path, place: str, user: int | None) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o777)
    volume.chmod(0o777)
    (volume / "file").write_text("inside\n")
    spec = {"mounts": [_mount(volume, f"{place}/deep")], "cwd": f"{place}/deep"}
    done = _run(spec, ["sh", "-c", f"cat file; id -u; echo new > made; ls {place}"], user)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["inside", str(os.geteuid() if user is None else user), "deep"]
    assert (volume / "made").read_text() == "new\n"
    assert not os.path.exists(f"{place}/deep/file")


def test_what_was_beside_a_covered_directory_is_still_there(tmp_path: Path, place: str, user: int | None) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    before = sorted(os.listdir("/run"))
    spec = {"mounts": [_mount(volume, f"{place}/deep")], "cwd": "/"}
    done = _run(spec, ["ls", "-A", "/run"], user)
    assert set(done.stdout.split()) - {os.path.basename(place)} == set(before) - {os.path.basename(place)}


def test_read_only_nested_and_in_memory(tmp_path: Path, place: str, user: int | None) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    for directory in (outer, inner):
        directory.mkdir()
        directory.chmod(0o777)
    (outer / "glue").mkdir()
    (inner / "tool").write_text("x")
    spec = {
        "mounts": [
            _mount(outer, place),
            _mount("", f"{place}/memory", size=65536) if user is None else _mount(inner, place),
            _mount(inner, f"{place}/glue", is_read_only=True),
        ],
        "cwd": "/",
    }
    if user is not None:
        (inner / "glue").mkdir()
    done = _run(spec, ["sh", "-c", f"cat {place}/glue/tool; touch {place}/glue/y"], user)
    assert done.stdout == "x"
    assert "Read-only file system" in done.stderr


@pytest.mark.parametrize(
    ("mount", "argv", "code", "says"),
    [
        ("/nowhere/at/all", ["true"], 126, 'could not be mounted at "'),
        ("", ["no-such-program"], 127, 'exec: "no-such-program": No such file or directory'),
    ],
)
def test_what_cannot_be_done_is_said(
    mount: str, argv: list[str], code: int, says: str, tmp_path: Path, place: str, user: int | None
) -> None:
    done = _run({"mounts": [_mount(mount or tmp_path, place)], "cwd": "/"}, argv, user)
    assert done.returncode == code
    assert says in done.stderr


async def test_the_runtime_gives_an_attempt_its_mounts(tmp_path: Path, place: str) -> None:
    runtime = HostProcessRuntime(SystemClock())
    if not await runtime.can_mount():
        pytest.skip("mount namespaces are not permitted here")
    volume = tmp_path / "volume"
    volume.mkdir()
    attempt = Attempt(tmp_path / "main", 0)
    argv = ["/bin/sh", "-c", f"pwd; echo here > {place}/seen; exit 3"]
    launch = Launch(attempt, "mounts", argv, {"PATH": os.environ["PATH"]}, tmp_path, mounts=[Mount(volume, place)])
    await runtime.start(launch)
    assert (await runtime.wait(attempt)).exit_code == 3
    assert (volume / "seen").read_text() == "here\n"
    output = b"".join([chunk async for chunk in runtime.logs(attempt, LogOptions())])
    assert output.decode().strip() == str(tmp_path)
    await runtime.close()


async def _denied() -> bool:
    return False


async def _allowed() -> bool:
    return True


async def _no_pod(_kind: Kind, _key: Key) -> Object | None:
    return None


async def test_where_it_is_not_permitted_the_pod_is_told(tmp_path: Path) -> None:
    document = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "annotations": {"muster.dev/mounts": "private"}},
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

    async def announce(_pod: Object, _condition: Document) -> None:
        return

    for can_mount, mounts in ((_denied, 0), (_allowed, 1)):
        supplies = Supplies(
            host_ip="10.0.0.1",
            base={},
            allocatable={},
            fetch=nothing,
            resolver=Resolver(_no_pod, SystemClock()),
            ports=Ports(random.Random(1)),
            announce=announce,
            can_mount=can_mount,
        )
        wanted = Wanted(pod.read(core.Pod).spec.containers[0], Attempt(tmp_path, 0), tmp_path / "message", Grant({}))
        launch = await Preparation(tmp_path, supplies).launch(pod, wanted)
        assert len(launch.mounts) == mounts
        assert ("MUSTER_UNMOUNTED" in launch.env) is (mounts == 0)
        assert Path(launch.env["MUSTER_VOLUME_RUN"]).is_dir()
