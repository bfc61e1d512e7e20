"""What a trial finds beside what every task does, and how its program is begun once all of its parts are there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

from . import azure_blobs
from .calls import Master
from .setting_up import Problem, has, write_private
from .storages import SHARED_PATH, inside_shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

_A_WEEK = 7 * 86_400.0
"""Others may wait in a queue, or fetch much before they start."""
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""An entrypoint as it was written before there were scripts: `module:Trial`."""


def write_trial(environ: MutableMapping[str, str]) -> None:
    """What Determined's library and ours look for. Raises Problem where what a trial saves would be lost."""
    config = json.loads(environ["DET_EXPERIMENT_CONFIG"])
    if environ.get("MUSTER_UNMOUNTED"):
        _without_mounts(config, environ)
        environ["DET_EXPERIMENT_CONFIG"] = json.dumps(config)
    storage = config.get("checkpoint_storage") or {}
    if storage.get("type") == "azure":
        _connect_by_string(storage)
    _check_storage(storage)
    facts: dict[str, object] = {
        "trial_id": int(environ["DET_TRIAL_ID"]),
        "experiment_id": int(environ["DET_EXPERIMENT_ID"]),
        "trial_seed": int(environ["DET_TRIAL_SEED"]),
        "hparams": json.loads(environ["DET_HPARAMS"]),
        "config": config,
        "steps_completed": int(environ["DET_STEPS_COMPLETED"]),
        "trial_run_id": int(environ["DET_TRIAL_RUN_ID"]),
        "debug": bool(config.get("debug")),
        "inter_node_network_interface": environ.get("DET_INTER_NODE_NETWORK_INTERFACE"),
    }
    _write_info(environ, "trial", facts)


def tell_devices(master: Master, environ: Mapping[str, str]) -> None:
    """To those who look at the cluster, and to the trial. Raises Refused, Unreachable."""
    uuids = _gpu_uuids(environ.get("CUDA_VISIBLE_DEVICES", ""))
    _write_info(environ, "resources", {"gpu_uuids": uuids})
    if not uuids:
        return
    allocation = environ["DET_ALLOCATION_ID"]
    data = {
        "containerId": environ.get("DET_CONTAINER_ID", ""),
        "allocationId": allocation,
        "taskId": environ["DET_TASK_ID"],
        "nodeName": environ.get("DET_AGENT_ID", ""),
        "acceleratorType": "cuda",
        "acceleratorUuids": uuids,
    }
    body = {"allocationId": allocation, "acceleratorData": data}
    master.insist("POST", f"/api/v1/allocations/{allocation}/acceleratorData", body)


def launch(environ: dict[str, str]) -> int:
    """Becomes the trial's program; the exit code where it cannot. After hooks, which may take their time: from here on
    all parts go together. Raises Problem, Refused, Unreachable."""
    allocation, resource = environ["DET_ALLOCATION_ID"], environ["DET_RESOURCES_ID"]
    path = f"/api/v1/allocations/{allocation}/resources/{resource}/rendezvous"
    met = json.loads(Master(environ).insist("GET", path, seconds=_A_WEEK))["rendezvousInfo"]
    facts = {
        "container_addrs": met["addresses"],
        "container_rank": met["rank"],
        "container_slot_counts": met["slots"],
    }
    _write_info(environ, "rendezvous", facts)
    argv = program(json.loads(environ["DET_EXPERIMENT_CONFIG"])["entrypoint"])
    try:
        os.execvpe(argv[0], argv, environ)  # noqa: S606 - what the user wants to run
    except OSError as error:
        sys.stderr.write(f"ERROR: {argv[0]!r} cannot be executed: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def program(entrypoint: str | list[str]) -> list[str]:
    """Raises Problem."""
    if isinstance(entrypoint, list):
        return entrypoint
    if not _CLASS.fullmatch(entrypoint):
        return ["/bin/sh", "-c", entrypoint]
    if not has("determined"):
        raise Problem(
            f'entrypoint "{entrypoint}" names a class of Determined\'s library, which is not installed in '
            f'{sys.executable}: run "{sys.executable} -m pip install determined", or name a Python that has it in the '
            "setting tasks.python"
        )
    return [sys.executable, "-m", "determined.launch.torch_distributed", "--", "--trial", entrypoint]


def _write_info(environ: Mapping[str, str], name: str, facts: dict[str, object]) -> None:
    write_private(os.path.join(environ["DET_RUN_DIR"], "info", f"{name}.json"), json.dumps(facts))


def _without_mounts(config: dict[str, object], environ: MutableMapping[str, str]) -> None:
    """This node cannot show a task paths of its own: the library is told others when it is loaded, and what is shared
    is found where it really is."""
    hook = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "unmounted")
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [hook, environ.get("PYTHONPATH", "")]))
    storage = config.get("checkpoint_storage")
    if isinstance(storage, dict) and storage.get("type") == "shared_fs":
        path = os.path.join(str(storage["host_path"]), inside_shared(storage))
        for name in ("host_path", "storage_path", "propagation"):
            storage.pop(name, None)
        storage.update(type="directory", container_path=path)


def _connect_by_string(storage: dict[str, object]) -> None:
    """Where Determined's library keeps event files, it looks for an `account_url` by another name, and gives up."""
    storage["connection_string"] = azure_blobs.connection_string(storage)
    for name in ("account_url", "credential"):
        storage.pop(name, None)


def _check_storage(storage: dict[str, object]) -> None:
    if storage.get("type") == "shared_fs":
        path = os.path.join(SHARED_PATH, inside_shared(storage))
    elif storage.get("type") == "directory":
        path = str(storage["container_path"])
    else:
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise Problem(f"checkpoint_storage: {path} can be neither found nor made: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise Problem(f"checkpoint_storage: {path} may not be written to by uid {os.getuid()}")


def _gpu_uuids(visible: str) -> list[str]:
    shown = [name.strip() for name in visible.split(",") if name.strip()]
    tool = shutil.which("nvidia-smi")
    if not shown or tool is None:
        return []
    command = [tool, "--query-gpu=index,uuid", "--format=csv,noheader"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.split(", ", 1) for line in answer.stdout.splitlines() if ", " in line]
    return [uuid.strip() for index, uuid in rows if index in shown or uuid.strip() in shown]
