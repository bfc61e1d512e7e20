"""A control plane that a test module has for itself: it may install and remove what others would miss."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.kubectl_runner import KUBECTL
from tests.e2e.processes import MUSTER, ROOT

_HOLD = 'echo "$KUBECONFIG"; cat'  # until its input ends


@dataclass(frozen=True)
class Plane:
    """`audit`: every request, one a line, where that was asked for."""

    configuration: Path
    audit: Path | None = None

    def muster(self, *arguments: str, configuration: Path | None = None, stdin: str = "") -> "Done":
        chosen = {"KUBECONFIG": str(configuration or self.configuration)}
        return _run([*MUSTER, *arguments], chosen, stdin)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        assert KUBECTL is not None
        done = _run([KUBECTL, *arguments], {"KUBECONFIG": str(self.configuration)}, stdin)
        assert done.code == 0, f"kubectl {' '.join(arguments)}: {done.err}"
        return done.out

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *documents: dict[str, Any]) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def as_account(self, namespace: str, name: str, path: Path) -> Path:
        """A configuration for a service account, written to `path`."""
        token = self.kubectl("create", "token", "-n", namespace, name).strip()
        return write_account(self.configuration, token, path)

    def requests_of(self, user: str) -> list[dict[str, Any]]:
        assert self.audit is not None
        lines = map(json.loads, self.audit.read_text().splitlines())
        return [line for line in lines if line["user"]["username"] == user and "objectRef" in line]


def write_account(configuration: Path, token: str, path: Path) -> Path:
    """The same cluster, for whoever has the token."""
    document = yaml.safe_load(configuration.read_text())
    document["users"] = [{"name": "account", "user": {"token": token}}]
    cluster = document["clusters"][0]["name"]
    document["contexts"] = [{"name": "account", "context": {"cluster": cluster, "user": "account"}}]
    document["current-context"] = "account"
    path.write_text(yaml.safe_dump(document))
    return path


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def _run(line: list[str], environment: dict[str, str], stdin: str) -> Done:
    done = subprocess.run(
        line, env={**os.environ, **environment}, input=stdin, capture_output=True, text=True, timeout=120, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def own_plane(audit: Path | None = None, *, by_endpoints: bool = False) -> Iterator[Plane]:
    """`by_endpoints`: the API server finds the pods behind Services itself, as kube-proxy would."""
    options = ["--audit", str(audit)] if audit else []
    options += ["--by-endpoints"] if by_endpoints else []
    command = [sys.executable, str(ROOT / "tools" / "kubernetes.py"), *options, "--", "sh", "-c", _HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        configuration = process.stdout.readline().strip()
        if not configuration:
            pytest.skip("there are no programs of a control plane, and no Go to build them")
        yield Plane(Path(configuration), audit)
        assert process.stdin is not None
        process.stdin.close()
