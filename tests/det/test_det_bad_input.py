"""What must be refused: with the right code, a word on what was wrong, nothing told that is a secret, and on record."""

import base64
import contextlib
import gzip
import hashlib
import http.client
import io
import json
import socket
import sqlite3
import tarfile
import time
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from tests.det.det_client import Det
from tests.det.det_platform import PASSWORD, Answer, DetPlatform, eventually
from tests.det.det_tasks import Watcher

OPTIONS = ("--nodes", "2", "--fake-gpus", "2", "--set", "security.session_lifespan_days=1")


def refused(answer: Answer, *codes: int) -> str:
    """The message, which tells no insides."""
    assert answer.status in codes, (answer.status, answer.text[:500])
    for word in ("Traceback", "sqlalchemy", 'File "', "site-packages", PASSWORD):
        assert word not in answer.text
    message: str = answer.json["error"]["error"]
    assert message
    return message


def file(path: str, content: bytes = b"x", kind: int = 48, **more: Any) -> dict[str, Any]:
    text = base64.b64encode(content).decode()
    return {"path": path, "type": kind, "content": text, "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0, **more}


@pytest.mark.parametrize(
    "path",
    [
        "../escape",
        "a/../../escape",
        "/etc/escape",
        "a/./../../b",
        "..",
        "",
        "a\0b",
        "x" * 5000,
        "C:\\..\\..\\x/../../y",
    ],
)
def test_files_that_lead_out_of_the_context_are_refused(watch: Watcher, path: str):
    for kind, config in (("commands", {"entrypoint": ["true"]}), ("notebooks", {}), ("shells", {})):
        body = {"config": config, "files": [file(path)]}
        assert "files[0].path" in refused(watch.http("POST", kind, body), 400)


@pytest.mark.parametrize(
    "entry",
    [
        file("link", b"/etc/passwd", 50),
        file("hard", b"/etc/passwd", 49),
        file("device", b"", 51),
        file("x", mode=0o4755),
        {"path": "x", "type": 48, "content": "not base64!"},
        file("x", mode="many"),
        {"type": 48},
    ],
    ids=["link", "hard link", "device", "setuid", "not base64", "not a mode", "no path"],
)
def test_files_that_are_no_plain_files_are_refused_or_made_plain(watch: Watcher, entry: dict[str, Any]):
    answer = watch.http("POST", "commands", {"config": {"entrypoint": ["sh", "-c", "ls -la"]}, "files": [entry]})
    if answer.status == 200 and entry.get("mode") == 0o4755:
        identity = answer.json["command"]["id"]
        watch.until_ended(identity)
        assert "rws" not in watch.logs(identity)
        return
    refused(answer, 400)


def test_a_file_given_twice_and_a_file_that_is_also_a_directory_are_refused(watch: Watcher):
    for files in ([file("a"), file("a")], [file("a"), file("a/b")]):
        answer = watch.http("POST", "commands", {"config": {"entrypoint": ["true"]}, "files": files})
        refused(answer, 400)


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return base64.b64encode(buffer.getvalue()).decode()


def test_a_task_gets_only_its_own_context(watch: Watcher, platform: DetPlatform):
    first, second = (
        watch.http("POST", "commands", {"config": {"entrypoint": ["sleep", "1000"]}, "files": [file("f", word)]})
        for word in (b"one", b"two")
    )
    mine, other = first.json["command"]["id"], second.json["command"]["id"]
    token = allocation_token(watch, mine)
    header = {"Grpc-Metadata-x-allocation-token": f"Bearer {token}"}
    own = platform.http("GET", f"/api/v1/tasks/{mine}/context_directory", headers=header)
    assert own.status == 200
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(own.json["b64Tgz"])), mode="r:gz") as archive:
        assert archive.extractfile("f").read() == b"one"  # type: ignore[union-attr]
    refused(platform.http("GET", f"/api/v1/tasks/{other}/context_directory", headers=header), 403, 404)
    refused(platform.http("GET", f"/api/v1/tasks/{mine}/context_directory"), 401)
    for identity in (mine, other):
        watch.http("POST", f"commands/{identity}/kill")


def allocation_token(watch: Watcher, task: str) -> str:
    """A task knows its own, and can be made to tell it."""
    answer = watch.http("GET", f"tasks/{task}")
    assert "sessionToken" not in answer.text
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for process in psutil.process_iter(["environ"]):
            environ = process.info["environ"] or {}
            if environ.get("DET_TASK_ID") == task and environ.get("DET_SESSION_TOKEN"):
                return str(environ["DET_SESSION_TOKEN"])
        time.sleep(0.05)
    raise AssertionError(f"task {task} has no session")


def test_a_task_acts_only_for_its_own_allocation(watch: Watcher, platform: DetPlatform):
    mine, other = watch.command("sleep 1000"), watch.command("sleep 1000")
    header = {"Grpc-Metadata-x-allocation-token": f"Bearer {allocation_token(watch, mine)}"}
    foreign = watch.task(other)["allocations"][0]["allocationId"]
    own = watch.task(mine)["allocations"][0]["allocationId"]
    log = {"task_id": other, "allocation_id": foreign, "timestamp": "2026-01-01T00:00:00+00:00", "log": "forged\n"}
    tries = [
        ("POST", f"/api/v1/allocations/{foreign}/ready", None),
        ("POST", f"/api/v1/allocations/{foreign}/waiting", None),
        ("POST", f"/api/v1/allocations/{foreign}/signals/ack_preemption", None),
        ("POST", f"/api/v1/allocations/{foreign}/proxy_address", {"proxyAddress": "10.0.0.1"}),
        ("POST", f"/api/v1/allocations/{foreign}/all_gather",
         {"allocationId": foreign, "requestUuid": "u", "numPeers": 1, "data": {}}),
        ("POST", "/api/v1/task/logs", {"logs": [log]}),
        ("GET", f"/api/v1/tasks/{other}/context_directory", None),
        ("POST", f"/api/v1/commands/{other}/kill", None),
        ("PATCH", "/api/v1/users/1", {"admin": True}),
        ("POST", "/api/v1/tokens", {"userId": 1}),
    ]  # fmt: skip
    for method, path, body in tries:
        message = refused(platform.http(method, path, headers=header, body=body), 401, 403, 404)
        assert foreign not in message or "may not" in message or "not" in message
    assert "forged" not in watch.logs(other)
    assert watch.state("command", other) == "STATE_RUNNING"
    assert platform.http("POST", f"/api/v1/allocations/{own}/ready", headers=header).status == 200
    watch.http("POST", f"commands/{mine}/kill")
    watch.until_ended(mine)
    late = {**log, "task_id": mine, "allocation_id": own}
    refused(platform.http("POST", "/api/v1/task/logs", headers=header, body={"logs": [late]}), 401, 403)
    watch.http("POST", f"commands/{other}/kill")


def test_a_task_cannot_point_the_proxy_elsewhere(watch: Watcher, platform: DetPlatform):
    """Not to another machine, and not to another address of this one."""
    identity = watch.command("sleep 1000", "--config", "environment.proxy_ports=[{proxy_port: 13999}]")
    header = {"Grpc-Metadata-x-allocation-token": f"Bearer {allocation_token(watch, identity)}"}
    allocation = watch.task(identity)["allocations"][0]["allocationId"]
    watch.until_state("command", identity, "STATE_RUNNING")
    for address in ("169.254.169.254", "example.com", "0.0.0.0", "::1", "10.1.2.3", "127.0.0.2", "127.1", ""):
        body = {"proxyAddress": address}
        answer = platform.http("POST", f"/api/v1/allocations/{allocation}/proxy_address", headers=header, body=body)
        refused(answer, 400)
        assert platform.http("GET", f"/proxy/{identity}:13999/", token=watch.token).status == 502
    watch.http("POST", f"commands/{identity}/kill")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(platform: DetPlatform, watch: Watcher):
    connection = http.client.HTTPConnection("127.0.0.1", platform.port, timeout=20)
    connection.putrequest("POST", "/api/v1/commands")
    connection.putheader("Authorization", f"Bearer {watch.token}")
    connection.putheader("Content-Length", str(10 * 2**30))
    connection.endheaders()
    connection.send(b"{")
    answer = connection.getresponse()
    assert answer.status == 413
    answer.close()
    connection.close()


def test_a_small_body_that_grows_is_refused(platform: DetPlatform, watch: Watcher):
    bomb = gzip.compress(b"[" * 300_000_000)
    answer = platform.http(
        "POST", "/api/v1/commands", token=watch.token, body=bomb, headers={"Content-Encoding": "gzip"}
    )
    assert answer.status in {400, 413, 415}


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"text"', b"\xff\xfe", b'{"config": 5}', b'{"config": {"entrypoint": {"a": 1}}}', b"[" * 100_000,
     b'{"workspaceId": 99999999999999999999999}', b'{"files": "many"}', b'{"config": {"entrypoint": ["a\\u0000b"]}}'],
)  # fmt: skip
def test_what_is_no_request_is_refused(platform: DetPlatform, watch: Watcher, body: bytes):
    refused(platform.http("POST", "/api/v1/commands", token=watch.token, body=body), 400, 404)


@pytest.mark.parametrize(
    "path",
    [
        "users?orderBy=ORDER_BY_SIDEWAYS",
        "workspaces?sortBy=SORT_BY_MOOD",
        "workspaces?limit=many",
        "resources/allocation/aggregated?startDate=2026-01-01&endDate=2026-01-02&period=HOURLY",
        "tasks/no-such-task/logs?minLevel=LOUD",
        "job-queues-v2?orderBy=1;DROP",
    ],
)
def test_unknown_values_are_refused_by_name(watch: Watcher, path: str):
    refused(watch.http("GET", path), 400, 404)


@pytest.mark.parametrize(
    "text", ["' OR '1'='1", "x'; DROP TABLE users; --", "%", "_", "\\", "a\r\nSet-Cookie: x=1", "\0"]
)
def test_injection_finds_nothing_and_breaks_nothing(platform: DetPlatform, watch: Watcher, text: str):
    quoted = quote(text, safe="")
    for path in (
        f"/api/v1/users/{quoted}/by-username",
        f"/api/v1/templates/{quoted}",
        f"/api/v1/tasks/{quoted}/logs",
        f"/api/v1/commands/{quoted}",
        f"/proxy/{quoted}/",
    ):
        answer = platform.http("GET", path, token=watch.token)
        assert answer.status in {400, 404}, (path, answer.text)
        assert "x=1" not in str(answer.headers)
    found = watch.http("GET", f"workspaces?name={quoted}")
    assert found.status in {200, 400}
    if found.status == 200:
        assert found.json["workspaces"] == []
    login = platform.http("POST", "/api/v1/auth/login", body={"username": text, "password": text})
    assert login.status in {400, 401, 429}
    assert watch.get("users")["users"]


def test_tokens_that_are_none_of_ours_are_refused(platform: DetPlatform, watch: Watcher, det: Det):
    for token in ("", "x", "Bearer", "a.b.c", "v2.public." + "A" * 200, watch.token[:-1], watch.token + "A", "\xff"):
        answer = platform.http(
            "GET", "/api/v1/me", headers={"Authorization": f"Bearer {token}".encode("latin-1").decode("latin-1")}
        )
        assert answer.status == 401, token
        if token:
            assert token not in answer.text or token in {"x"}
    made = det("token", "create", "admin", "--json").json
    assert platform.http("GET", "/api/v1/me", token=made["token"]).status == 200
    det("token", "revoke", str(made.get("tokenId", made.get("id"))))
    assert platform.http("GET", "/api/v1/me", token=made["token"]).status == 401


def test_tokens_that_have_expired_are_refused(platform: DetPlatform, det: Det):
    """Time cannot be made to pass here, so the records are told that it has."""
    made = det("token", "create", "admin", "--expiration-days", "1", "--json").json
    with contextlib.closing(sqlite3.connect(platform.data / "records.db", timeout=10)) as records, records:
        digest = hashlib.sha256(made["token"].encode()).digest()
        changed = records.execute("UPDATE sessions SET expires = 1.0 WHERE digest = ?", (digest,))
        assert changed.rowcount == 1
    refused(platform.http("GET", "/api/v1/me", token=made["token"]), 401)


def test_a_proxied_request_cannot_be_smuggled(platform: DetPlatform, watch: Watcher):
    identity = watch.command("sleep 1000")
    for lines in (
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Transfer-Encoding: chunked, identity",
        "Content-Length: +5",
    ):
        with socket.create_connection(("127.0.0.1", platform.port), timeout=10) as raw:
            raw.sendall(
                f"POST /proxy/{identity}/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {watch.token}\r\n{lines}\r\n\r\n"
                "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            )
            answer = raw.recv(65536).split(b"\r\n", 1)[0]
        assert answer.split(b" ")[1] in {b"400", b"404", b"501"}, (lines, answer)
    watch.http("POST", f"commands/{identity}/kill")


def test_what_was_refused_is_on_record(platform: DetPlatform, watch: Watcher, det: Det):
    platform.new_user("trudy")
    trudy = platform.token(platform.user("trudy", "Passw0rdX"))
    refused(platform.http("PATCH", "/api/v1/users/1", token=trudy, body={"active": False}), 403)
    platform.http("POST", "/api/v1/auth/login", body={"username": "admin", "password": "guess"})
    platform.http("GET", "/api/v1/me", token="forged-token")
    body = {"config": {"entrypoint": ["true"]}, "files": [file("../escape")]}
    platform.http("POST", "/api/v1/commands", token=trudy, body=body)

    def kinds() -> set[tuple[str, str]]:
        return {(entry["username"], entry["action"]) for entry in watch.get("audit?action=request.")["entries"]}

    platform.http("GET", f"/proxy/{watch.command('true')}:22/?token=shown", token=trudy)
    wanted = {("trudy", "request.forbidden"), ("trudy", "request.invalid"), ("", "request.unknown")}
    wanted.add(("trudy", "request.undeclared"))
    eventually(lambda: wanted <= kinds())
    everything = json.dumps(watch.get("audit"))
    assert "guess" not in everything
    assert "forged-token" not in everything
    assert "shown" not in everything
    assert trudy not in everything
    assert PASSWORD not in everything


def test_no_secret_is_in_the_servers_log(platform: DetPlatform, watch: Watcher, det: Det):
    log = platform.log.read_text() + det("master", "logs").out
    for secret in (watch.token, PASSWORD, "Passw0rdX"):
        assert secret not in log
    assert "Traceback" not in log
