"""What a task finds when it starts: its directories, its files, and the facts that Determined's library looks for."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from .calls import Master

_FACTS = {
    "master_url": "DET_MASTER",
    "cluster_id": "DET_CLUSTER_ID",
    "agent_id": "DET_AGENT_ID",
    "task_id": "DET_TASK_ID",
    "allocation_id": "DET_ALLOCATION_ID",
    "session_token": "DET_SESSION_TOKEN",
    "task_type": "DET_TASK_TYPE",
    "master_cert_name": "DET_MASTER_CERT_NAME",
    "master_cert_file": "DET_MASTER_CERT_FILE",
}
WITHOUT_DETERMINED = (
    "Determined's library is not installed in {python}: to use it in this task, run "
    '"{python} -m pip install determined", or name a Python that has it in the setting tasks.python'
)


class Problem(Exception):
    """Why the task cannot run, and what to do about it."""


def choose_python(environ: MutableMapping[str, str], argv: list[str]) -> None:
    """Go on with the agent's Python where that has Determined's library and this one has not; and for a trial, which
    could not report anything else, also where only that has muster's."""
    other = environ.get("MUSTER_PYTHON", "")
    if environ.get("DET_PYTHON_EXECUTABLE") or not other or has("determined"):
        return
    if os.path.dirname(other) != os.path.dirname(sys.executable):
        is_better = (argv[1] == "TRIAL" and not has("muster")) or _other_has_library(other)
        with contextlib.suppress(OSError):
            if is_better:
                os.execve(other, [other, *argv], dict(environ))  # noqa: S606 - the same again, elsewhere


def _other_has_library(python: str) -> bool:
    code = "import importlib.util, sys; s = importlib.util.find_spec('determined'); sys.exit(not (s and s.origin))"
    try:
        return subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def has(module: str) -> bool:
    """A directory that only happens to have the name is none."""
    found = importlib.util.find_spec(module)
    return found is not None and found.origin is not None


def directories(environ: MutableMapping[str, str]) -> str:
    """Makes them, and returns the one to work in."""
    run = environ["DET_RUN_DIR"]
    work = environ.get("DET_WORKDIR") or os.path.join(run, "workdir")
    for path in ("info", "pythonuserbase", "workdir", "ssh", "tmp", "train/model"):
        os.makedirs(os.path.join(run, path), exist_ok=True)
    if environ.get("MUSTER_UNMOUNTED") and environ.get("TMPDIR") == "/run/determined/tmp":
        environ["TMPDIR"] = os.path.join(run, "tmp")
    try:
        os.makedirs(work, exist_ok=True)
    except OSError as error:
        raise Problem(f"work_dir {work} can be neither found nor made: {error.strerror}") from error
    environ["DET_WORKDIR"] = work
    return work


def write_facts(environ: MutableMapping[str, str]) -> None:
    """Where Determined's library looks for them: without this file it takes itself to be outside of a cluster."""
    facts: dict[str, object] = {name: environ.get(variable) for name, variable in _FACTS.items()}
    facts["slot_ids"] = json.loads(environ.get("DET_SLOT_IDS") or "[]")
    facts["latest_checkpoint"] = environ.get("DET_LATEST_CHECKPOINT")
    # It holds the session of the task.
    write_private(os.path.join(environ["DET_RUN_DIR"], "info", "cluster.json"), json.dumps(facts))


def write_private(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def fetch_files(master: Master, task: str, *places: str) -> None:
    """The context directory. Raises Refused, Unreachable."""
    answer = json.loads(master.insist("GET", f"/api/v1/tasks/{task}/context_directory"))
    packed = base64.b64decode(answer.get("b64Tgz") or "")
    for place in places if packed else ():
        unpack(packed, place)


def unpack(packed: bytes, into: str) -> None:
    """Files and directories, and nothing outside of `into`: the server has looked, and we look again."""
    root = os.path.realpath(into)
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        for member in archive:
            place = os.path.realpath(os.path.join(root, member.name))
            if not (member.isfile() or member.isdir()) or os.path.commonpath([root, place]) != root:
                raise Problem(f"the context directory holds {member.name!r}, which is not a file inside of it")
            member.uid, member.gid = os.getuid(), os.getgid()
            member.uname = member.gname = ""
            archive.extract(member, root, set_attrs=True)


def environment(environ: MutableMapping[str, str]) -> None:
    """The same Python for all that the task starts."""
    python = sys.executable
    environ["DET_PYTHON_EXECUTABLE"] = python
    environ["PATH"] = os.path.dirname(python) + os.pathsep + environ.get("PATH", os.defpath)
    environ.setdefault("PYTHONUSERBASE", os.path.join(environ["DET_RUN_DIR"], "pythonuserbase"))
    environ.setdefault("PYTHONUNBUFFERED", "1")
