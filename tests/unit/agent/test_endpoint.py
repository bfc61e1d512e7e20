"""Logs of an agent on another machine, as its HTTP service answers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.agent import endpoint, logs
from muster.agent.logs import LogOptions
from muster.agent.sampling import Samples
from muster.api import errors
from muster.runtime.clock import SystemClock
from muster.testing.asgi import AsgiClient


class Logs:
    """Answers as an agent does for one pod."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def samples(self) -> Samples:
        return {"u-1": {"memory": {"memory_free": 1.0}}}

    def open_logs(
        self, namespace: str, name: str, uid: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        if (namespace, name, uid) != ("default", "a", "u-1"):
            raise errors.NotFound(f'pods "{name}" not found', kind="pods", name=name)
        return logs.read(self.directory, container, options, SystemClock())


@pytest.fixture
def client(tmp_path: Path) -> AsgiClient:
    home = tmp_path / "containers" / "main"
    home.mkdir(parents=True)
    (home / "0.log").write_text("".join(f"2026-01-02T03:04:0{i}.123456789Z stdout F line {i}\n" for i in range(5)))
    (home / "0.exit.json").write_text("{}")
    return AsgiClient(endpoint.application(Logs(tmp_path), token="s3cret", clock=SystemClock()), "s3cret")


async def test_lines_come_as_text(client: AsgiClient) -> None:
    answer = await client.request("GET", "/logs/default/a/u-1/main", query={"tailLines": "2", "follow": "true"})
    assert answer.status == 200
    assert answer.header("content-type").startswith("text/plain")
    assert answer.body == b"line 3\nline 4\n"


async def test_what_pods_use_is_told_by_pod_and_group(client: AsgiClient) -> None:
    answer = await client.request("GET", "/samples")
    assert (answer.status, answer.json) == (200, {"u-1": {"memory": {"memory_free": 1.0}}})


@pytest.mark.parametrize("word", ["", "Bearer wrong", "s3cret", "bearer s3cret"])
@pytest.mark.parametrize("path", ["/logs/default/a/u-1/main", "/samples"])
async def test_strangers_are_turned_away(client: AsgiClient, path: str, word: str) -> None:
    answer = await client.request("GET", path, headers={"authorization": word})
    assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("path", "query", "code", "reason"),
    [
        ("/logs/default/other/u-1/main", {}, 404, "NotFound"),
        ("/logs/default/a/u-1/other", {}, 400, "BadRequest"),
        ("/logs/default/a/u-1/main", {"tailLines": "x"}, 422, "Invalid"),
        ("/logs/default/a/u-1/main", {"previous": "true"}, 400, "BadRequest"),
    ],
)
async def test_errors_are_status_documents(
    client: AsgiClient, path: str, query: dict[str, str], code: int, reason: str
) -> None:
    answer = await client.request("GET", path, query=query)
    assert (answer.status, answer.json["kind"], answer.json["reason"]) == (code, "Status", reason)


async def test_anyone_may_ask_for_health(client: AsgiClient) -> None:
    answer = await client.request("GET", "/healthz", headers={"authorization": ""})
    assert answer.body == b"ok"
