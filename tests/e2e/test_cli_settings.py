"""How a platform is started: with TLS, on a socket that was passed; real processes."""

import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
import yaml
from tests.e2e.cli_platform import MUSTER, end

AUTHORITY = trustme.CA()
PASSING = """
import os, sys
if sys.argv[1] != "3":
    os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.executable, [sys.executable, "-m", "muster.cli.main", "serve"])
"""


@dataclass(frozen=True)
class Secure:
    data: Path
    url: str
    environment: dict[str, str]

    def muster(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**self.environment, **environment}
        return subprocess.run([*MUSTER, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False)


def clean_environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    return {**kept, "XDG_CONFIG_HOME": str(folder / "config"), "MUSTER_DATA": str(folder / "data")}


@contextmanager
def serving(command: list[str], env: dict[str, str], **more) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Until it has said where it is; with what it said."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, **more)
    try:
        assert process.stdout is not None
        said: list[str] = []
        while not any(line.startswith("  det") for line in said):
            line = process.stdout.readline()
            assert line, f"it ended: {said}"
            said.append(line)
        yield process, said
    finally:
        end(process)
        if process.stdout is not None:
            process.stdout.close()


def address(said: list[str]) -> str:
    return next(line.split()[1] for line in said if line.startswith("  address"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("tls")
    certificate = AUTHORITY.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    AUTHORITY.cert_pem.write_to_path(str(folder / "ca.pem"))
    env = clean_environment(folder)
    pem = str(folder / "server.pem")
    options = ["--port", "0", "--tls-cert", pem, "--tls-key", pem, "--set", f"security.tls.ca={folder / 'ca.pem'}"]
    with serving([*MUSTER, "serve", *options], env) as (_, said):
        yield Secure(folder / "data", address(said), env)


def test_the_command_line_and_the_kubeconfig_work_over_tls(secure: Secure) -> None:
    assert secure.url.startswith("https://")
    token = (secure.data / "token").read_text().strip()
    kubeconfig = yaml.safe_load((secure.data / "kubeconfig").read_text())
    cluster = kubeconfig["clusters"][0]["cluster"]
    assert cluster["server"] == f"{secure.url}/k8s"
    assert token not in cluster["server"]
    assert "certificate-authority-data" in cluster
    listed = secure.muster("get", "namespaces")
    assert listed.returncode == 0, listed.stderr
    assert "default" in listed.stdout


def test_an_agent_joins_over_tls_and_a_stranger_is_not_believed(secure: Secure, tmp_path: Path) -> None:
    ca = str(secure.data.parent / "ca.pem")
    join = ["--server", secure.url, "--token", (secure.data / "node-token").read_text().strip(), "--name", "far"]
    env = {**secure.environment, "MUSTER_CA": ca, "MUSTER_DATA": str(tmp_path)}
    agent = subprocess.Popen([*MUSTER, "agent", *join], env=env, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while "far" not in secure.muster("nodes").stdout:
            assert time.monotonic() < deadline, "the agent did not join"
            time.sleep(0.2)
    finally:
        end(agent)
    refused = secure.muster("--server", secure.url, "--token", "x", "nodes")
    assert refused.returncode != 0
    assert "MUSTER_CA" in refused.stderr


def test_a_user_logs_in_over_tls_with_a_cookie_that_only_goes_there(secure: Secure) -> None:
    context = ssl.create_default_context(cafile=secure.data.parent / "ca.pem")
    token = (secure.data / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    made = json.dumps({"user": {"username": "ann", "active": True}, "password": "Passw0rd"}).encode()
    request = urllib.request.Request(f"{secure.url}/api/v1/users", made, headers)
    assert urllib.request.urlopen(request, context=context).status == 200
    login = json.dumps({"username": "ann", "password": "Passw0rd"}).encode()
    with urllib.request.urlopen(f"{secure.url}/api/v1/auth/login", login, context=context) as reply:
        cookie = reply.headers["set-cookie"]
    assert cookie.startswith("auth=")
    assert {"HttpOnly", "Secure", "SameSite=Lax"} <= set(cookie.split("; "))
    session = urllib.request.Request(f"{secure.url}/api/v1/me", headers={"Cookie": cookie.partition(";")[0]})
    assert json.load(urllib.request.urlopen(session, context=context))["user"]["username"] == "ann"


def test_users_reach_the_kubernetes_api_as_far_as_their_roles_go(secure: Secure) -> None:
    context = ssl.create_default_context(cafile=secure.data.parent / "ca.pem")
    login = json.dumps({"username": "ann", "password": "Passw0rd"}).encode()
    with urllib.request.urlopen(f"{secure.url}/api/v1/auth/login", login, context=context) as reply:
        token = json.load(reply)["token"]
    headers = {"Authorization": f"Bearer {token}"}
    nodes = urllib.request.Request(f"{secure.url}/k8s/api/v1/nodes", headers=headers)
    assert urllib.request.urlopen(nodes, context=context).status == 200
    pods = urllib.request.Request(f"{secure.url}/k8s/api/v1/pods", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(pods, context=context)
    assert refused.value.code == 403
    assert 'User "ann" cannot list resource "pods"' in json.load(refused.value)["message"]


def test_a_socket_that_was_passed_is_used(tmp_path: Path) -> None:
    """As systemd does it: descriptor 3, and who it is for."""
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notified.bind(str(tmp_path / "notify"))
    notified.settimeout(10)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    env = {**clean_environment(tmp_path), "NOTIFY_SOCKET": str(tmp_path / "notify")}
    with serving([sys.executable, "-c", PASSING, str(listening.fileno())], env, pass_fds=[listening.fileno()]) as (
        _,
        said,
    ):
        listening.close()
        assert address(said) == f"http://127.0.0.1:{port}"
        assert notified.recv(100) == b"READY=1"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/info") as reply:
            assert json.load(reply)["version"]
    notified.close()


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("security.initial_user_password=", "error: security.initial_user_password: must not be blank"),
        (
            "database=postgresql://muster:hush@127.0.0.1:1/m",
            "error: database: cannot open postgresql://muster:********",
        ),
    ],
)
def test_what_shows_only_when_most_is_up_is_told_in_one_line_as_well(
    tmp_path: Path, assignment: str, told: str
) -> None:
    command = [*MUSTER, "serve", "--host", "0.0.0.0", "--port", "0", "--set", assignment]
    done = subprocess.run(
        command, env=clean_environment(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1
