"""The Python client and a server that lets in those whom a kubeconfig names, over real connections."""

import base64
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from muster.api import errors, raw
from muster.sdk import Client, config

AUTHORITY = trustme.CA()
PLUGIN = """
import pathlib, sys
count = pathlib.Path(sys.argv[1])
asked = int(count.read_text() or 0) + 1 if count.exists() else 1
count.write_text(str(asked))
print('{"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "token-%d"}}' % asked)
"""


class Server(ThreadingHTTPServer):
    """Says who has asked, and refuses all whose token is not `wanted`, where that is set. `busy`: how many it turns
    away first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wanted = ""
        self.busy = 0
        self.asked: list[list[tuple[str, str]]] = []
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = ssl.CERT_OPTIONAL
        AUTHORITY.configure_trust(context)
        AUTHORITY.issue_cert("lab.example").configure_cert(context)
        self.socket = context.wrap_socket(self.socket, server_side=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.headers.items())
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        is_known = token == self.server.wanted or not self.server.wanted
        certificate = self.connection.getpeercert()
        names = [name for _, name in (certificate or {}).get("subjectAltName", ())]
        body = raw.encode({"gitVersion": ",".join(names) or token})
        self.send_response(429 if self.server.busy else 200 if is_known else 401)
        if self.server.busy:
            self.server.busy -= 1
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def encoded(*pems: trustme.Blob) -> str:
    return base64.b64encode(b"".join(pem.bytes() for pem in pems)).decode()


def client(server: Server, folder: Path, user: raw.Document, cluster: raw.Document | None = None) -> Client:
    known = {"certificate-authority-data": encoded(AUTHORITY.cert_pem), "tls-server-name": "lab.example"}
    document = {
        "current-context": "lab",
        "clusters": [
            {"name": "c", "cluster": {"server": f"https://127.0.0.1:{server.server_port}", **known, **(cluster or {})}}
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "config"
    path.write_text(raw.to_yaml(document))
    return Client(config.connection(env={"HOME": str(folder)}, kubeconfig=path))


def test_a_certificate_inside_of_the_file_says_who_asks(server: Server, tmp_path: Path) -> None:
    issued = AUTHORITY.issue_cert("ann@example.org")
    user = {
        "client-certificate-data": encoded(*issued.cert_chain_pems),
        "client-key-data": encoded(issued.private_key_pem),
    }
    found = client(server, tmp_path, user)
    assert found.server_version() == "ann@example.org"
    found.close()


def test_a_token_that_is_refused_is_read_again(server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    found = client(server, tmp_path, {"tokenFile": "token"})
    assert found.server_version() == "first"
    (tmp_path / "new").write_text("second")
    (tmp_path / "new").replace(token)
    server.wanted = "second"
    assert found.server_version() == "second"
    found.close()


def test_a_plugin_is_asked_once_and_again_when_its_token_ends(server: Server, tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", PLUGIN, str(tmp_path / "count")],
    }
    found = client(server, tmp_path, {"exec": plugin})
    assert [found.server_version() for _ in range(2)] == ["token-1", "token-1"]
    server.wanted = "token-2"
    assert found.server_version() == "token-2"
    server.wanted = "somebody else"
    with pytest.raises(errors.Unauthorized, match='context "lab" of '):
        found.server_version()
    found.close()


def test_a_server_that_turns_requests_away_is_asked_again_but_not_for_ever(server: Server, tmp_path: Path) -> None:
    found = client(server, tmp_path, {"token": "t"})
    server.busy = 3
    assert found.server_version() == "t"
    assert len(server.asked) == 4
    server.busy = 100
    with pytest.raises(errors.TooManyRequests):
        found.server_version()
    assert len(server.asked) == 9
    found.close()


def test_whoever_acts_for_another_says_so_with_all_groups(server: Server, tmp_path: Path) -> None:
    found = client(server, tmp_path, {"token": "t", "as": "bob", "as-groups": ["dev", "ops"]})
    found.server_version()
    said = [(name, value) for name, value in server.asked[0] if name.startswith("Impersonate")]
    assert said == [("Impersonate-User", "bob"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops")]
    found.close()


def test_a_stranger_is_not_believed_and_its_kubeconfig_is_named(server: Server, tmp_path: Path) -> None:
    other = encoded(trustme.CA().cert_pem)
    found = client(server, tmp_path, {"token": "t"}, {"certificate-authority-data": other})
    with pytest.raises(errors.Unavailable, match=r'context "lab" of .*not trusted'):
        found.server_version()
    assert server.asked == []
    found.close()


def test_nobody_there_is_told_without_talk_of_platforms(server: Server, tmp_path: Path) -> None:
    found = client(server, tmp_path, {"token": "t"}, {"server": "https://127.0.0.1:1"})
    with pytest.raises(errors.Unavailable, match=r'nobody answers at .*, the server of context "lab"'):
        found.server_version()
    found.close()
