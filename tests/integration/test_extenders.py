"""A real extender on loopback: one that answers, and all the ways in which one does not."""

import asyncio
import base64
import gc
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web

from muster.api import core, objects
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.controllers.extenders import ExtenderClient
from muster.placement import configuration, extending
from muster.placement.configuration import Configuration
from muster.placement.extending import Answered, Ask, ExtenderConfig, Failed, Filtered, Reply, Verb

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NODES = ("a", "b", "c")


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """`handler` answers every request; gives the address."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/api"
    finally:
        await runner.cleanup()


def configured(url: str, **fields: Any) -> Configuration:
    extender = {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "5s", **fields}
    found = configuration.parse(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": [extender],
        }
    )
    assert isinstance(found, Configuration), found
    return found


@asynccontextmanager
async def client_of(found: Configuration) -> AsyncIterator[ExtenderClient]:
    client = ExtenderClient.of(found.extenders)
    assert isinstance(client, ExtenderClient), client
    async with client:
        yield client


async def talk(client: ExtenderClient, conversation: Generator[Ask, Reply, T]) -> T:
    try:
        ask = next(conversation)
        while True:
            ask = conversation.send(await client.ask(ask))
    except StopIteration as stop:
        found: T = stop.value
        return found


def world() -> tuple[ClusterState, PodInfo]:
    nodes = [objects.view_of(core.NODE, {"metadata": {"name": name, "labels": {"rack": name}}}) for name in NODES]
    cluster = ClusterState.of(node for node in nodes if isinstance(node, core.Node))
    view = objects.view_of(core.POD, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {}})
    assert isinstance(view, core.Pod)
    return cluster, cluster.shapes.info(view)


async def filtered(handler: Handler, **fields: Any) -> Filtered | Failed:
    cluster, pod = world()
    async with serving(handler) as url:
        found = configured(url, **fields)
        async with client_of(found) as client:
            return await talk(client, extending.filtering(found.extenders, pod, cluster.mask(True), cluster))


def answering(document: Any, status: int = 200) -> Handler:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response(document, status=status)

    return handler


def left(outcome: Filtered | Failed) -> list[str]:
    assert isinstance(outcome, Filtered), outcome
    return [name for name, is_left in zip(NODES, outcome.nodes, strict=True) if is_left]


# An extender that does its work


async def test_an_extender_filters_scores_and_binds() -> None:
    heard: list[tuple[str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        asked = await request.json()
        heard.append((request.path, asked))
        match request.path:
            case "/api/filter":
                names = [item["metadata"]["name"] for item in asked["Nodes"]["items"]]
                kept = [item for item in asked["Nodes"]["items"] if item["metadata"]["labels"]["rack"] != "b"]
                return web.json_response({"Nodes": {"items": kept}, "FailedNodes": {names[1]: "wrong rack"}})
            case "/api/prioritize":
                return web.json_response([{"Host": "c", "Score": 10}])
            case _:
                return web.json_response({"Error": ""})

    cluster, pod = world()
    async with serving(handler) as url:
        verbs = {"prioritizeVerb": "prioritize", "weight": 3, "bindVerb": "bind", "nodeCacheCapable": False}
        found = configured(url, **verbs)
        (extender,) = found.extenders
        async with client_of(found) as client:
            passed = await talk(client, extending.filtering(found.extenders, pod, cluster.mask(True), cluster))
            assert left(passed) == ["a", "c"]
            assert isinstance(passed, Filtered)
            assert [rejection.reason for rejection in passed.rejections] == ["wrong rack"]
            scored = await talk(client, extending.prioritizing(found.extenders, pod, passed.nodes, cluster))
            assert scored.scores.tolist() == [0, 0, 300]
            bound = await client.ask(extending.bind_request(extender, pod, "c"))
            assert extending.apply_bind_answer(extender, bound) is None
    assert [path for path, _ in heard] == ["/api/filter", "/api/prioritize", "/api/bind"]
    assert heard[2][1] == {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "c"}


async def test_a_large_cluster_goes_through() -> None:
    async def handler(request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"Nodes": asked["Nodes"], "FailedNodes": {}})

    labels = {f"example.com/label-{number}": "v" * 40 for number in range(20)}
    nodes = (
        objects.view_of(core.NODE, {"metadata": {"name": f"n{number}", "labels": labels}}) for number in range(3000)
    )
    cluster = ClusterState.of(node for node in nodes if isinstance(node, core.Node))
    _, pod = world()
    async with serving(handler) as url:
        found = configured(url, nodeCacheCapable=False, httpTimeout="60s")
        async with client_of(found) as client:
            outcome = await talk(client, extending.filtering(found.extenders, pod, cluster.mask(True), cluster))
    assert isinstance(outcome, Filtered), outcome
    assert outcome.nodes.all()


# Extenders that do not


async def _silent(_request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError("nobody wakes it")


async def _dripping(request: web.Request) -> web.StreamResponse:
    """Always something, and never the end."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


async def _breaking_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"NodeNames":')
    assert request.transport is not None
    request.transport.close()
    return response


async def _garbage(_request: web.Request) -> web.Response:
    return web.Response(body=b"<html>It works!</html>", content_type="text/html")


async def _not_utf8(_request: web.Request) -> web.Response:
    return web.Response(body=b'{"NodeNames": ["\xff\xfe"]}')


async def _nested(_request: web.Request) -> web.Response:
    return web.Response(body=b"[" * 100_000)


async def _empty(_request: web.Request) -> web.Response:
    return web.Response()


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(100):
        await response.write(b" " * 1024 * 1024)
    return response


async def _elsewhere(_request: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": "http://127.0.0.1:1/filter"})


async def _badly_packed(_request: web.Request) -> web.Response:
    return web.Response(body=b"this is not gzip", headers={"Content-Encoding": "gzip"})


FAILING: dict[str, tuple[Handler, str]] = {
    "never answers": (_silent, "did not answer within 0.3 s"),
    "answers a byte at a time": (_dripping, "did not answer within 0.3 s"),
    "breaks off": (_breaking_off, "cannot be reached"),
    "answers with a web page": (_garbage, "not valid JSON"),
    "answers with bytes that are no text": (_not_utf8, "not valid JSON"),
    "answers with lists in lists": (_nested, "not valid JSON"),
    "answers with nothing": (_empty, "not valid JSON"),
    "answers with far too much": (_endless, "more than 64 MiB"),
    "sends us elsewhere": (_elsewhere, "status 307"),
    "answers with a broken archive": (_badly_packed, "cannot be reached"),
    "has an error": (answering({"reason": "database is gone"}, 500), "status 500: "),
    "says that it failed": (answering({"Error": "no licence"}), "no licence"),
    "answers with something else": (answering({"items": []}), "none of Nodes, NodeNames"),
    "lies about nodes": (answering({"NodeNames": ["a", "mars"]}), "was not asked about: 'mars'"),
    "lies about failed nodes": (answering({"NodeNames": ["a"], "FailedNodes": {"mars": "x"}}), "'mars'"),
}


@pytest.mark.parametrize("what", FAILING)
async def test_an_extender_that_fails_is_a_value_and_costs_nothing_where_it_may_be_ignored(what: str) -> None:
    handler, reason = FAILING[what]
    timeout = "60s" if what == "answers with far too much" else "300ms"
    outcome = await filtered(handler, httpTimeout=timeout)
    assert isinstance(outcome, Failed)
    assert reason in outcome.reason
    assert "127.0.0.1" in outcome.reason, "who failed is named"
    ignored = await filtered(handler, httpTimeout=timeout, ignorable=True)
    assert left(ignored) == ["a", "b", "c"]
    assert isinstance(ignored, Filtered)
    assert reason in ignored.ignored[0].reason


async def test_an_extender_that_is_not_there() -> None:
    async with serving(_empty) as url:
        pass
    found = configured(url)
    async with client_of(found) as client:
        reply = await client.ask(Ask(found.extenders[0], Verb.FILTER, {}))
    assert isinstance(reply, Failed)
    assert "cannot be reached" in reply.reason


@pytest.mark.parametrize("url", ["http://", "http://[", "http://127.0.0.1:99999", "http://exa mple/"])
async def test_an_address_that_makes_no_sense(url: str) -> None:
    extender = ExtenderConfig(url, {Verb.FILTER: "filter"})
    async with ExtenderClient({}) as client:
        assert isinstance(await client.ask(Ask(extender, Verb.FILTER, {})), Failed)


async def test_one_that_hangs_keeps_nobody_else_waiting() -> None:
    async with serving(_silent) as slow, serving(answering({"NodeNames": ["a"]})) as fast:
        hanging, quick = configured(slow, httpTimeout="30s"), configured(fast)
        async with client_of(quick) as client, asyncio.TaskGroup() as group:
            waiting = group.create_task(client.ask(Ask(hanging.extenders[0], Verb.FILTER, {})), name="hanging")
            replies = [await client.ask(Ask(quick.extenders[0], Verb.FILTER, {})) for _ in range(20)]
            assert all(isinstance(reply, Answered) for reply in replies)
            assert not waiting.done()
            waiting.cancel()


async def test_nobody_is_asked_after_the_end() -> None:
    async with serving(answering({"NodeNames": []})) as url:
        found = configured(url)
        async with client_of(found) as client:
            pass
        reply = await client.ask(Ask(found.extenders[0], Verb.FILTER, {}))
    assert isinstance(reply, Failed)
    assert "shutting down" in reply.reason


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `cert.pem` and `key.pem`: a certificate for extender.example.com that vouches for itself."""
    if shutil.which("openssl") is None:
        missing = "openssl makes the certificates of this test; install it"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"),
            *("-addext", "subjectAltName=DNS:extender.example.com", "-keyout", "key.pem", "-out", "cert.pem"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


def _server_tls(authority: Path, *, asks_for_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    if asks_for_certificate:
        context.load_verify_locations(authority / "cert.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def _over_tls(authority: Path, asks_for_certificate: bool = False, **fields: Any) -> Reply:
    tls = _server_tls(authority, asks_for_certificate=asks_for_certificate)
    async with serving(answering({"NodeNames": ["a"]}), tls) as url:
        found = configured(url, **fields)
        async with client_of(found) as client:
            reply = await client.ask(Ask(found.extenders[0], Verb.FILTER, {}))
    gc.collect()  # what was refused in the handshake must leave nothing open
    return reply


async def test_an_extender_over_tls_is_checked_as_configured(authority: Path) -> None:
    known = {"caFile": str(authority / "cert.pem"), "serverName": "extender.example.com"}
    trusted: list[dict[str, Any]] = [
        {"tlsConfig": known},
        {"tlsConfig": {"caData": _data(authority / "cert.pem"), "serverName": "extender.example.com"}},
        {"tlsConfig": {"insecure": True}},
        {"enableHTTPS": True},
        {"enableHTTPS": True, "tlsConfig": known},
    ]
    for fields in trusted:
        assert await _over_tls(authority, **fields) == Answered({"NodeNames": ["a"]}), fields
    refused: list[dict[str, Any]] = [{}, {"tlsConfig": {**known, "serverName": "other.example.com"}}, {"tlsConfig": {}}]
    for fields in refused:
        reply = await _over_tls(authority, **fields)
        assert isinstance(reply, Failed), fields
        assert "ertificate" in reply.reason


async def test_an_extender_may_want_to_know_who_asks(authority: Path) -> None:
    files = {"insecure": True, "certFile": str(authority / "cert.pem"), "keyFile": str(authority / "key.pem")}
    data = {"insecure": True, "certData": _data(authority / "cert.pem"), "keyData": _data(authority / "key.pem")}
    for tls in (files, data):
        assert await _over_tls(authority, True, tlsConfig=tls) == Answered({"NodeNames": ["a"]})
    assert isinstance(await _over_tls(authority, True, tlsConfig={"insecure": True}), Failed)


@pytest.mark.parametrize(
    "tls",
    [
        {"caFile": "/nowhere/ca.pem"},
        {"caData": base64.b64encode(b"not a certificate").decode()},
        {"certFile": "/nowhere/cert.pem", "keyFile": "/nowhere/key.pem"},
        {"certData": base64.b64encode(b"x").decode(), "keyData": base64.b64encode(b"y").decode()},
    ],
)
def test_certificates_that_cannot_be_used_are_told_at_the_start(tls: dict[str, str]) -> None:
    errors = ExtenderClient.of(configured("https://127.0.0.1:1", tlsConfig=tls).extenders)
    assert isinstance(errors, list)
    assert [error.path for error in errors] == ["extenders[0].tlsConfig"]


def test_what_is_said_is_plain_json() -> None:
    cluster, pod = world()
    (extender,) = configured("http://x", nodeCacheCapable=False).extenders
    ask = extending.filter_request(extender, pod, cluster.mask(True), cluster, extending.FromColumns(cluster))
    assert json.loads(json.dumps(ask.document)) == ask.document
