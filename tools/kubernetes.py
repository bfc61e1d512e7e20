"""Runs a command with a Kubernetes control plane of its own: `python tools/kubernetes.py -- kubectl get nodes`.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler are built from Go's module proxy at the version that
`tools/kubernetes/go.mod` pins, once: the binary is kept in the user's cache. They listen on loopback, write into a
temporary directory and are gone afterwards, also where this process is killed. The command finds an administrator's
configuration in KUBECONFIG (its context `token` is the same user with a bearer token) and the programs in
MUSTER_KUBERNETES_BIN; kubelet and kube-proxy are among them, but not started: a node needs a container runtime. Several
may run at a time.

Pods in containers have a loopback of their own. For these, `--address` says at which other address of this machine the
API server is to be reached, which should be one of a network of its own: see tools/isolated.
"""

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import http.client
import os
import random
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import trustme
import yaml

_SOURCE = Path(__file__).parent / "kubernetes"
_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
_OPTIONAL = ("kube-controller-manager", "kube-scheduler")
_MISSING = "no Go: install it to have a Kubernetes control plane built, or set KUBECONFIG to one that is there"
_STAMPED = "k8s.io/component-base/version"
_PORTS = range(20_000, 32_000)
"""Below those that a system gives to outgoing connections, which could take one between our look and its use."""
_PATIENCE_SECONDS = 60
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}
_PROXY = "front-proxy-client"
"""Who the API server is to those that it passes requests on to."""
_LOOPBACK = "127.0.0.1"
_SERVICES = "10.96.0.0/16"
_API_SERVICE = "10.96.0.1"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def main(arguments: Sequence[str]) -> int:
    asked = _parsed(arguments)
    binaries = _built()
    if binaries is None:
        sys.stderr.write(f"{_MISSING}\n")
        return 1 if os.environ.get("CI") == "true" else 0
    if asked.build:
        sys.stdout.write(f"{binaries}\n")
        return 0
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="muster-kubernetes-", ignore_cleanup_errors=True) as folder:
        plane = _Plane(binaries, Path(folder), asked)
        try:
            with plane.running(without=asked.without):
                return _run(asked.command, plane)
        except _NotReady as error:
            sys.stderr.write(f"{error}\n")
            return 1
        finally:
            if asked.logs is not None:
                shutil.copytree(plane.logs, asked.logs, dirs_exist_ok=True)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a command with a Kubernetes control plane of its own.")
    parser.add_argument("--build", action="store_true", help="only build; print where the programs are")
    parser.add_argument(
        "--without", action="append", default=[], choices=_OPTIONAL, help="a program that is not to run"
    )
    parser.add_argument("--address", default=_LOOPBACK, help="of this machine, for nodes and pods to reach the server")
    parser.add_argument("--logs", type=Path, help="a folder to keep the programs' logs in")
    parser.add_argument("--audit", type=Path, help="a file to write down every request in, by whom and how it ended")
    parser.add_argument(
        "--by-endpoints",
        action="store_true",
        help="the API server asks the pods of an aggregated API itself: there is no kube-proxy between",
    )
    parser.add_argument("command", nargs="*", help="the command and its arguments, after --")
    asked = parser.parse_args(arguments)
    if not asked.build and not asked.command:
        parser.error("what is to be run is missing: give a command after --")
    return asked


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _run(command: Sequence[str], plane: "_Plane") -> int:
    environment = {
        **os.environ,
        "KUBECONFIG": str(plane.kubeconfig),
        "MUSTER_KUBERNETES_BIN": str(plane.binaries),
        "MUSTER_KUBERNETES_ADDRESS": plane.address,
    }
    process = _spawned(command, env=environment)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


# Building.


def _built() -> Path | None:
    """The folder of the programs; None where they are not there and there is no Go to build them."""
    source = b"".join((_SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    version = _version()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster" / "kubernetes"
    folder = home / f"{version}-{hashlib.sha256(source).hexdigest()[:8]}"
    if not _is_complete(folder):
        if shutil.which("go") is None:
            return None
        home.mkdir(parents=True, exist_ok=True)
        with (home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_complete(folder):
                _build(version, folder)
    return folder


def _version() -> str:
    found = re.search(r"^\s+k8s\.io/kubernetes (v\S+)", (_SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, "tools/kubernetes/go.mod names no version of k8s.io/kubernetes"
    return found[1]


def _is_complete(folder: Path) -> bool:
    return all((folder / name).exists() for name in _PROGRAMS)


def _build(version: str, folder: Path) -> None:
    started = time.monotonic()
    sys.stderr.write(f"building Kubernetes {version}; the first time this takes minutes\n")
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linking = " ".join(["-s", "-w", *(f"-X {_STAMPED}.{name}={value}" for name, value in stamps.items())])
    folder.mkdir(exist_ok=True)
    made = folder / "control-plane"
    subprocess.run(["go", "build", "-C", _SOURCE, "-trimpath", "-ldflags", linking, "-o", made, "."], check=True)
    for name in _PROGRAMS:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(made.name)
    sys.stderr.write(f"built in {time.monotonic() - started:.0f} s\n")


# Running.


class _NotReady(Exception):
    """A program ended, or did not answer in time; the message holds the end of what it wrote."""


@dataclass(frozen=True)
class _Ports:
    etcd: int
    peers: int
    api: int
    controllers: int
    scheduler: int


class _Plane:
    """One control plane in `base`, which it has for itself, as it was asked for."""

    def __init__(self, binaries: Path, base: Path, asked: argparse.Namespace) -> None:
        self.binaries = binaries
        self.kubeconfig = base / "kubeconfig"
        self.logs = base / "logs"
        self._base = base
        self.address: str = asked.address
        self._audit: Path | None = asked.audit
        self._by_endpoints: bool = asked.by_endpoints
        self._keys = base / "keys"
        self._ports = _Ports(*_free_ports(5))
        self._token = secrets.token_hex(16)
        self.logs.mkdir()
        self._keys.mkdir()

    @contextlib.contextmanager
    def running(self, *, without: Sequence[str]) -> Iterator[None]:
        self._make_keys()
        self.kubeconfig.write_text(yaml.safe_dump(self._configuration()))
        with contextlib.ExitStack() as stack:
            etcd = stack.enter_context(self._started("etcd", self._etcd()))
            _until_answered(etcd, self._ports.etcd, "/health", tls=None)
            api = stack.enter_context(self._started("kube-apiserver", self._api_server()))
            _until_answered(api, self._ports.api, "/readyz", tls=self._trust())
            others = {"kube-controller-manager": self._controllers(), "kube-scheduler": self._scheduler()}
            begun = {
                name: stack.enter_context(self._started(name, flags))
                for name, flags in others.items()
                if name not in without
            }
            manager = begun.get("kube-controller-manager")
            if manager is not None:
                # What makes accounts in namespaces works: until then no pod is admitted.
                account = "/api/v1/namespaces/default/serviceaccounts/default"
                _until_answered(manager, self._ports.api, account, tls=self._trust(), token=self._token)
            yield

    @contextlib.contextmanager
    def _started(self, name: str, flags: Mapping[str, object]) -> Iterator["_Program"]:
        path = self.logs / f"{name}.log"
        command = [str(self.binaries / name), *(f"--{flag}={value}" for flag, value in flags.items())]
        with path.open("wb") as log:
            process = _spawned(command, stdout=log, stderr=log, cwd=self._base)
        try:
            yield _Program(name, process, path)
        finally:
            process.kill()  # nothing here outlives the run, so nothing needs to be put down in order
            process.wait()

    def _etcd(self) -> dict[str, object]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in (self._ports.etcd, self._ports.peers))
        return {
            "data-dir": self._base / "etcd",
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "unsafe-no-fsync": "true",  # nobody needs this after a power cut
            "quota-backend-bytes": 8 * 2**30,
            "log-level": "warn",
        }

    def _api_server(self) -> dict[str, object]:
        return {
            **self._auditing(),
            **self._reached(),
            "etcd-servers": f"http://127.0.0.1:{self._ports.etcd}",
            "secure-port": self._ports.api,
            "service-cluster-ip-range": _SERVICES,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "tls-cert-file": self._keys / "server.crt",
            "tls-private-key-file": self._keys / "server.key",
            "client-ca-file": self._keys / "ca.crt",
            "kubelet-client-certificate": self._keys / "admin.crt",
            "kubelet-client-key": self._keys / "admin.key",
            "kubelet-preferred-address-types": "InternalIP",
            "token-auth-file": self._keys / "tokens.csv",
            "requestheader-client-ca-file": self._keys / "proxies.crt",
            "requestheader-allowed-names": _PROXY,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": self._keys / "proxy.crt",
            "proxy-client-key-file": self._keys / "proxy.key",
            "enable-aggregator-routing": str(self._by_endpoints).lower(),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self._keys / "accounts.key",
            "service-account-signing-key-file": self._keys / "accounts.key",
        }

    def _reached(self) -> dict[str, object]:
        if self.address == _LOOPBACK:  # which it must not advertise
            return {"bind-address": _LOOPBACK, "endpoint-reconciler-type": "none"}
        return {"bind-address": "0.0.0.0", "advertise-address": self.address}  # noqa: S104  nobody else is there

    def _auditing(self) -> dict[str, object]:
        if self._audit is None:
            return {}
        policy = self._base / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT))
        return {"audit-policy-file": policy, "audit-log-path": self._audit.absolute(), "audit-log-mode": "blocking"}

    def _controllers(self) -> dict[str, object]:
        return {
            **self._client(self._ports.controllers),
            "service-account-private-key-file": self._keys / "accounts.key",
            "root-ca-file": self._keys / "ca.crt",
            "cluster-signing-cert-file": self._keys / "ca.crt",
            "cluster-signing-key-file": self._keys / "ca.key",
        }

    def _scheduler(self) -> dict[str, object]:
        return self._client(self._ports.scheduler)

    def _client(self, port: int) -> dict[str, object]:
        return {
            "kubeconfig": self.kubeconfig,
            "authentication-kubeconfig": self.kubeconfig,
            "authorization-kubeconfig": self.kubeconfig,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "cert-dir": self._base / "certificates",
            "leader-elect": "false",  # there is one of each, and taking a lease would only delay it
            "kube-api-qps": 1000,  # the defaults protect a server from a cluster's many; tests wait for these two
            "kube-api-burst": 2000,
        }

    def _make_keys(self) -> None:
        authority = trustme.CA(organization_name="muster-test", organization_unit_name="control plane")
        (self._keys / "ca.crt").write_bytes(authority.cert_pem.bytes())
        (self._keys / "ca.key").write_bytes(authority.private_key_pem.bytes())
        server = authority.issue_cert(*{_LOOPBACK, self.address}, "localhost", _API_SERVICE, "kubernetes.default.svc")
        admin = authority.issue_cert("admin.invalid", common_name="admin", organization_name="system:masters")
        proxies = trustme.CA(organization_name="muster-test", organization_unit_name="front proxies")
        (self._keys / "proxies.crt").write_bytes(proxies.cert_pem.bytes())
        proxy = proxies.issue_cert("proxy.invalid", common_name=_PROXY)
        for name, issued in (("server", server), ("admin", admin), ("proxy", proxy)):
            (self._keys / f"{name}.crt").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
            (self._keys / f"{name}.key").write_bytes(issued.private_key_pem.bytes())
        (self._keys / "accounts.key").write_bytes(trustme.CA().private_key_pem.bytes())
        (self._keys / "tokens.csv").write_text(f"{self._token},admin,admin,system:masters\n")

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._keys / "ca.crt"))

    def _configuration(self) -> dict[str, object]:
        server = f"https://127.0.0.1:{self._ports.api}"
        certificate = {"client-certificate": str(self._keys / "admin.crt"), "client-key": str(self._keys / "admin.key")}
        users = {"admin": certificate, "token": {"token": self._token}}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": server, "certificate-authority": str(self._keys / "ca.crt")}}
            ],
            "users": [{"name": name, "user": user} for name, user in users.items()],
            "contexts": [{"name": name, "context": {"cluster": "test", "user": name}} for name in users],
            "current-context": "admin",
        }


@dataclass(frozen=True)
class _Program:
    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def ending(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])


def _until_answered(program: _Program, port: int, path: str, *, tls: ssl.SSLContext | None, token: str = "") -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if program.process.poll() is not None:
            raise _NotReady(f"{program.name} ended with {program.process.returncode}:\n{program.ending()}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            if _status(port, path, tls, token) == http.client.OK:
                return
        time.sleep(0.1)
    raise _NotReady(f"{program.name} was not ready within {_PATIENCE_SECONDS} s:\n{program.ending()}")


def _status(port: int, path: str, tls: ssl.SSLContext | None, token: str) -> int:
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=tls)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise SystemExit("there are not enough free ports on loopback")


def _spawned(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, preexec_fn=_die_with_parent, **options)  # noqa: PLW1509  there is one thread


def _die_with_parent() -> None:
    """In a child before it runs: it gets SIGKILL when its parent ends, however that happens."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
