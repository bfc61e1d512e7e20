"""The unmodified client over TLS, with an authority that it was told to trust, and without."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from tests.det.det_client import DET, ENVIRONMENT
from tests.det.det_experiments import MODELS, trained
from tests.e2e.cli_platform import MUSTER, end, processes_of

PASSWORD = "Mustered-1"


@dataclass(frozen=True)
class Secure:
    url: str
    ca: Path
    home: Path

    def det(self, *arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        foreign = ("DET_", "MUSTER_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # the latter count for more than its own
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            "HOME": str(self.home), "DET_MASTER": self.url, "DET_USER": "admin", "DET_PASS": PASSWORD, **more,
        }  # fmt: skip
        command = [str(DET), *arguments]
        return subprocess.run(
            command, env=environment, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("det-tls")
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    pem = str(folder / "server.pem")
    options = ["--port", "0", "--data", str(folder / "data"), "--tls-cert", pem, "--tls-key", pem]
    options += ["--set", f"security.tls.ca={folder / 'ca.pem'}"]  # what trials are to trust
    environment = {
        **{name: value for name, value in os.environ.items() if not name.endswith("_CA_BUNDLE")},
        "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}",
        "MUSTER_SECURITY_INITIAL_USER_PASSWORD": PASSWORD,
    }
    process = subprocess.Popen(
        [*MUSTER, "up", "--fake-gpus", "1", *options], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        url = next(line.split()[1] for line in process.stdout if line.startswith("  address"))
        (folder / "home").mkdir()
        yield Secure(url, folder / "ca.pem", folder / "home")
    finally:
        end(process)
        process.stdout.close()
        for left in processes_of(str(folder)):
            left.kill()


def test_the_client_talks_to_a_server_whose_authority_it_was_given(secure: Secure) -> None:
    done = secure.det("user", "whoami", DET_MASTER_CERT_FILE=str(secure.ca))
    assert (done.returncode, done.stdout) == (0, "You are logged in as user 'admin'\n"), done.stderr


def test_the_client_does_not_trust_a_stranger(secure: Secure) -> None:
    done = secure.det("user", "whoami", stdin="no\n")
    assert done.returncode != 0
    assert "logged in" not in done.stdout


def test_trials_trust_the_server_that_has_started_them(secure: Secure) -> None:
    (secure.home / "experiment.yaml").write_text(json.dumps(trained()))
    trusted = {"DET_MASTER_CERT_FILE": str(secure.ca)}
    done = secure.det(
        "experiment", "create", "-f", str(secure.home / "experiment.yaml"), str(MODELS / "core"), **trusted
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "has trained" in done.stdout
    waited = secure.det("experiment", "wait", "1", "--polling-interval", "1", **trusted)
    assert waited.returncode == 0, waited.stdout + waited.stderr
