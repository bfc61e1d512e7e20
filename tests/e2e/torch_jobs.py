"""The examples of distributed training on a platform of their own, with a real PyTorch."""

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.e2e.cli_platform import ROOT, Platform, platform

from muster.api import errors, raw
from muster.api.raw import Document

EXAMPLES = ROOT / "examples" / "ddp"
VOLCANO_JOBS, PYTORCH_JOBS = "jobs.batch.volcano.sh", "pytorchjobs.kubeflow.org"
PYTHON = os.environ.get("TORCH_PYTHON", "")
"""An interpreter that has PyTorch: `make test-torch` names it."""
EPOCH = re.compile(r"epoch (\d+)/\d+ loss (\S+) world (\d+)")


def require_torch() -> None:
    """Under CI=true a PyTorch that should be there and is not is a failure."""
    if not PYTHON:
        pytest.skip("make test-torch runs these", allow_module_level=True)
    found = shutil.which(PYTHON)
    if found is None or subprocess.run([found, "-c", "import torch"], capture_output=True, check=False).returncode:
        message = f"{PYTHON} has no PyTorch: install Debian's python3-torch, or name another in TORCH_PYTHON"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message, allow_module_level=True)


@contextlib.contextmanager
def training_platform(*options: str) -> Iterator[Platform]:
    """With four nodes, on which `python3` has PyTorch, and the program that all train with."""
    found = shutil.which(PYTHON)
    assert found is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(found).absolute().parent}:{os.environ['PATH']}")
        with platform("--nodes", "4", *options) as up:
            code = {"train.py": (EXAMPLES / "train.py").read_text()}
            up.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ddp-code"}, "data": code})
            yield up


def example(name: str, checkpoints: Path, epochs: int) -> Document:
    """With room for three of them at once on two cores."""
    text = (EXAMPLES / name).read_text().replace("/tmp/ddp-checkpoints", str(checkpoints)).replace("200m", "100m")
    return raw.decode_yaml(re.sub(r"--epochs \d+", f"--epochs {epochs}", text))[0]


def submit(up: Platform, document: Document, name: str = "") -> str:
    document["metadata"]["name"] = name or document["metadata"]["name"]
    up.client.create(document)
    return str(document["metadata"]["name"])


def until(up: Platform, job: str, holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Where it does not become true, everything that the job's members have said is told."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, everything(up, job)
        time.sleep(0.1)


def logs(up: Platform, pod: str) -> str:
    """Empty where there are none yet."""
    with contextlib.suppress(errors.ApiError):
        return "\n".join(up.client.logs(pod))
    return ""


def epochs(text: str) -> list[tuple[int, float, int]]:
    """Of each epoch that a log tells of: its number, its loss, and how many took part."""
    return [(int(found[1]), float(found[2]), int(found[3])) for found in EPOCH.finditer(text)]


def pods_of(up: Platform, job: str) -> dict[str, Document]:
    return {
        pod["metadata"]["name"]: pod for pod in up.client.list("pods") if pod["metadata"]["name"].startswith(f"{job}-")
    }


def phases(up: Platform, job: str) -> dict[str, str]:
    return {name: str((pod.get("status") or {}).get("phase")) for name, pod in pods_of(up, job).items()}


def state(up: Platform, job: str) -> str:
    """Of a Volcano Job."""
    status: Document = up.client.get(VOLCANO_JOBS, job).get("status") or {}
    return str((status.get("state") or {}).get("phase"))


def conditions(up: Platform, job: str) -> dict[str, str]:
    """Of a PyTorchJob."""
    status: Document = up.client.get(PYTORCH_JOBS, job).get("status") or {}
    return {found["type"]: found["status"] for found in status.get("conditions") or []}


def everything(up: Platform, job: str) -> str:
    """What to look at when a job did not do as it should."""
    said = [f"--- {pod}\n{logs(up, pod)}" for pod in pods_of(up, job)]
    return "\n".join([str(phases(up, job)), *said, f"--- platform\n{up.log.read_text()[-3000:]}"])


def kill_trainer(up: Platform, pod: str) -> None:
    """As a machine that runs out of memory would: without a word, and only the process that trains."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            is_trainer = any(word.endswith("train.py") for word in words) and "torch.distributed.run" not in words
            env = process.environ()
            if is_trainer and env.get("HOSTNAME") == pod and env.get("TMPDIR", "").startswith(str(up.data)):
                process.kill()
                return
    raise AssertionError(f"{pod} does not train")
