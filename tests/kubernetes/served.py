"""`muster serve --kubeconfig` as a process, with the client of Determined."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3
from tests.det.det_client import DET, Forks
from tests.det.det_platform import PASSWORD, DetPlatform, eventually, free_port
from tests.e2e.kubectl_runner import Kubectl
from tests.e2e.processes import MUSTER, end
from tests.kubernetes.own_planes import write_account

from muster.api import raw
from muster.deploying import names, permissions
from muster.deploying.server_manifests import SERVER
from muster.deploying.slots import Chosen
from muster.deploying.values import Values

_READY_SECONDS = 60.0


def require_client() -> None:
    """Skips the test where it is not installed; but in CI it is."""
    if not DET.exists():
        message = "no client of Determined: `make test-det` installs it"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message)
        pytest.skip(message)


async def as_server(kubectl: Kubectl, configuration: Path, path: Path) -> Path:
    """A configuration, written to `path`, with the rights that an installation gives a server, and no others."""
    slots = Chosen(Values(), names.NAMESPACE)
    documents = [SERVER.service_account(slots), *SERVER.rights(slots, permissions.SERVER)]
    await kubectl("apply", "--server-side", "-f", "-", stdin="---\n".join(map(raw.to_yaml, documents)))
    token = (await kubectl("create", "token", "-n", names.NAMESPACE, names.SERVER)).strip()
    return write_account(configuration, token, path)


@dataclass
class Served(DetPlatform):
    """Over the objects of a cluster."""

    def start(self) -> None:
        self.process = _started(self.directory, self.port, self.options)
        self.until_up()

    def until_up(self) -> None:
        eventually(self._answers, seconds=_READY_SECONDS)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return self.http("GET", "/api/v1/master").status == 200
        return False


@contextlib.contextmanager
def serving(configuration: Path, *options: str, port: int = 0) -> Iterator[Served]:
    """`port`: any that is free, where none is named."""
    with tempfile.TemporaryDirectory(prefix="muster-det-", ignore_cleanup_errors=True) as name:
        directory, told = Path(name), ("--kubeconfig", str(configuration), *options)
        port = port or free_port()
        forks = Forks(directory)
        served = Served(directory, port, told, forks, _started(directory, port, told))
        try:
            served.until_up()
            yield served
        finally:
            end(served.process)
            forks.stop()


def _started(directory: Path, port: int, options: Sequence[str]) -> subprocess.Popen[bytes]:
    with (directory / "up.log").open("ab") as output:
        return subprocess.Popen(
            [*MUSTER, "serve", "--port", str(port), "--data", str(directory / "data"), *options],
            stdout=output,
            stderr=output,
            env={**os.environ, "MUSTER_SECURITY_INITIAL_USER_PASSWORD": PASSWORD},
        )
