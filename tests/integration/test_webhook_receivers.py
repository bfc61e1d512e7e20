"""Webhooks to real receivers: what arrives, how it is signed, and what is never called."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from muster.accounts.audit import SYSTEM
from muster.accounts.callers import WorkspaceId
from muster.accounts.service import UNCATEGORIZED
from muster.api import errors
from muster.api.meta import Instant
from muster.runtime.clock import SystemClock
from muster.tasks.webhook_payloads import ExperimentFacts
from muster.tasks.webhook_records import Delivery
from muster.tasks.webhook_rules import Format, Mode, NewTrigger, NewWebhook, Subject, TriggerType, Webhook, WebhookId
from muster.tasks.webhook_sending import Never, NotNow, Sender, Taken, is_allowed, networks
from muster.tasks.webhook_shipping import Shipper
from muster.tasks.webhooks import Experiment, Webhooks, to_tell_of_end
from muster.testing import accounts

KEY = "a-key"
LOOPBACK = networks(["127.0.0.0/8", "::1/128"], "webhooks.allowed_networks")
DONE = Experiment(Subject(WorkspaceId(UNCATEGORIZED)), ExperimentFacts(7, "zahlen – <b>", "COMPLETED", seconds=3700))


@dataclass
class Receiver:
    """A plain HTTP server that says what it is told to."""

    replies: list[bytes] = field(default_factory=list)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((headers, body))
        reply = self.replies.pop(0) if self.replies else b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        self.came.set()
        if reply:
            writer.write(reply)
            await writer.drain()
        else:
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    async with await asyncio.start_server(found.answer, "127.0.0.1", 0) as server:
        found.port = server.sockets[0].getsockname()[1]
        yield found


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    async with Sender(KEY, LOOPBACK) as found:
        yield found


def a_delivery(url: str, body: bytes = b'{"a":1}') -> Delivery:
    return Delivery(1, WebhookId(1), url, "event-1", "CUSTOM", body, Instant(0.0), 0)


@contextlib.asynccontextmanager
async def shipping(folder: Path, sender: Sender) -> AsyncIterator[Webhooks]:
    clock = SystemClock()
    async with accounts.ground(folder) as ground, asyncio.TaskGroup() as tasks:
        webhooks = Webhooks(ground.database, clock, sender, uuid4, base_url="https://muster.example.org/")
        shipper = Shipper(ground.database, clock, sender.send, random.Random(1))
        webhooks.on_enqueued(shipper.wake)
        running = tasks.create_task(shipper.run())
        yield webhooks
        running.cancel()


async def a_webhook(webhooks: Webhooks, url: str, format: Format = Format.DEFAULT) -> Webhook:
    trigger = NewTrigger(TriggerType.STATE_CHANGE, state="COMPLETED")
    return await webhooks.create(SYSTEM, NewWebhook(f"hook-{format}", url, format, Mode.WORKSPACE, [trigger]))


def _verified(headers: dict[str, str], body: str) -> bool:
    """As Determined's documentation tells receivers to do it."""
    timestamp = headers["x-determined-ai-signature-timestamp"]
    again = json.dumps(separators=(",", ":"), obj=json.loads(body))
    made = hmac.new(KEY.encode(), f"{timestamp},{again}".encode(), digestmod=hashlib.sha256).hexdigest()
    return made == headers["x-determined-ai-signature"]


async def test_an_event_arrives_signed_as_the_documentation_says(
    tmp_path: Path, receiver: Receiver, sender: Sender
) -> None:
    async with shipping(tmp_path, sender) as webhooks:
        await a_webhook(webhooks, receiver.url)
        await webhooks.queue(lambda connection: to_tell_of_end(connection, DONE))
        await asyncio.wait_for(receiver.came.wait(), 10)
    ((headers, body),) = receiver.requests
    assert _verified(headers, body.decode())
    assert not _verified(headers, body.decode().replace("COMPLETED", "ERROR"))
    told = json.loads(body)
    assert headers["x-muster-event-id"] == told["event_id"]
    assert (told["event_type"], told["condition"]) == ("EXPERIMENT_STATE_CHANGE", {"state": "COMPLETED"})
    assert told["event_data"]["experiment"] == {
        "id": 7, "state": "COMPLETED", "name": "zahlen – <b>", "slots_per_trial": 0, "duration": 3700,
        "resource_pool": "", "workspace": "", "project": "",
    }  # fmt: skip


async def test_slack_gets_what_it_can_show_and_nothing_that_it_would_obey(
    tmp_path: Path, receiver: Receiver, sender: Sender
) -> None:
    async with shipping(tmp_path, sender) as webhooks:
        await a_webhook(webhooks, receiver.url, Format.SLACK)
        await webhooks.queue(lambda connection: to_tell_of_end(connection, DONE))
        await asyncio.wait_for(receiver.came.wait(), 10)
    told = json.loads(receiver.requests[0][1])
    (block,) = told["attachments"][0]["blocks"]
    assert block["text"]["text"] == ("<https://muster.example.org/det/experiments/7/overview|zahlen – &lt;b&gt; (#7)>")
    assert {"type": "mrkdwn", "text": "*Duration*: 1h 1min"} in block["fields"]


async def test_a_test_says_whether_it_was_taken(tmp_path: Path, receiver: Receiver, sender: Sender) -> None:
    receiver.replies = [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"]
    async with shipping(tmp_path, sender) as webhooks:
        hook = await a_webhook(webhooks, receiver.url)
        with pytest.raises(errors.BadRequest, match="answered 404"):
            await webhooks.test(hook.id)
        await webhooks.test(hook.id)
    assert json.loads(receiver.requests[1][1])["event_data"] == {"data": "test"}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("200 OK", Taken()),
        ("204 No Content", Taken()),
        ("400 Bad", Never("the receiver answered 400")),
        ("429 Slow down\r\nRetry-After: 7", NotNow("the receiver answered 429", 7.0)),
        ("503 Later\r\nRetry-After: tomorrow", NotNow("the receiver answered 503")),
    ],
)
async def test_what_a_status_means(receiver: Receiver, sender: Sender, status: str, outcome: object) -> None:
    receiver.replies = [f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()]
    assert await sender.send(a_delivery(receiver.url), 0.0) == outcome


async def test_redirects_are_not_followed(receiver: Receiver, sender: Sender) -> None:
    receiver.replies = [f"HTTP/1.1 307 There\r\nLocation: {receiver.url}\r\nContent-Length: 0\r\n\r\n".encode()]
    outcome = await sender.send(a_delivery(receiver.url), 0.0)
    assert isinstance(outcome, Never)
    assert "redirects are not followed" in outcome.error
    assert len(receiver.requests) == 1


async def test_an_endless_reply_is_not_read(receiver: Receiver, sender: Sender) -> None:
    receiver.replies = [b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n" + b"x" * 1_000_000]
    assert await asyncio.wait_for(sender.send(a_delivery(receiver.url), 0.0), 5) == Taken()


async def test_a_receiver_that_says_nothing_is_given_up_in_time(
    receiver: Receiver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.replies = [b""]
    assert sender._session is not None
    monkeypatch.setattr(sender._session, "_timeout", type(sender._session._timeout)(total=0.2))
    assert await sender.send(a_delivery(receiver.url), 0.0) == NotNow("no reply in time")


async def test_nobody_there_is_worth_another_try(sender: Sender, unused_tcp_port: int) -> None:
    outcome = await sender.send(a_delivery(f"http://127.0.0.1:{unused_tcp_port}/"), 0.0)
    assert isinstance(outcome, NotNow)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0"])
async def test_what_only_the_server_can_reach_is_not_called(receiver: Receiver, host: str) -> None:
    """However it is written: the check is made when the connection is opened."""
    async with Sender(KEY) as strict:
        url = f"http://{host}:{receiver.port}/"
        outcome = await strict.send(a_delivery(url), 0.0)
        with pytest.raises(errors.BadRequest, match=r"url: .* is not a public address; .*webhooks\.allowed_networks"):
            await strict.check(url)
    assert isinstance(outcome, Never)
    assert "not a public address" in outcome.error or "not a canonical" in outcome.error
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        *((text, False) for text in (
            "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
            "255.255.255.255", "::", "::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "::ffff:10.0.0.1",
            "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::7f00:1", "nonsense",
        )),
    ],
)  # fmt: skip
def test_which_addresses_are_public(address: str, is_public: bool) -> None:
    assert is_allowed(address, ()) == is_public


def test_networks_can_be_allowed_and_are_read_strictly() -> None:
    allowed = networks(["10.0.0.0/8", "fd00::/8"], "x")
    assert is_allowed("10.200.1.1", allowed)
    assert is_allowed("::ffff:10.200.1.1", allowed)
    assert is_allowed("fd00::7", allowed)
    assert not is_allowed("192.168.0.1", allowed)
    with pytest.raises(errors.BadRequest, match=r"webhooks\.allowed_networks: .*nonsense"):
        networks(["nonsense"], "webhooks.allowed_networks")
