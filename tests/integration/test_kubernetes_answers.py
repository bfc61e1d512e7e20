"""What a store makes of a Kubernetes server's rarer answers, which a real one gives only when it is in trouble.

The server here says what the test wants it to say; `tests/kubernetes` asks a real one what those say.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from muster.access.credentials import Credential, Credentials, FileCredentials
from muster.access.kubeconfig import Cluster
from muster.api import coordination, core, errors, kueue, raw
from muster.api.objects import Key
from muster.api.ownership import CLASS_LABEL, OURS, Ownership, Unlabelled
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import (
    Bind,
    Create,
    Delete,
    Patch,
    PatchType,
    Refused,
    Revision,
    Selection,
    Write,
    Written,
)

MAPS = Selection(core.CONFIG_MAP, "default")
A_MAP = Create(core.CONFIG_MAP, {"metadata": {"name": "a", "namespace": "default"}})
AT = Key("default", "a")
ANYBODY = FileCredentials(Credential)
Answer = web.StreamResponse | Callable[[web.BaseRequest], web.StreamResponse]


class Server:
    """Gives its answers one by one, and keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[web.BaseRequest] = []
        self.bodies: list[bytes] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request)
        self.bodies.append(await request.read())
        answer = self.answers.pop(0)
        return answer(request) if callable(answer) else answer


@asynccontextmanager
async def store_of(server: Server, credentials: Credentials = ANYBODY, **options) -> AsyncIterator[KubernetesStore]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        runner = web.ServerRunner(web.Server(server.answer))
        await runner.setup()
        await web.SockSite(runner, listening).start()
        try:
            async with KubernetesStore(Cluster(f"http://{host}:{port}", credentials), **options) as store:
                yield store
        finally:
            await runner.cleanup()


def answer(document: raw.Document | bytes, status: int = 200, **headers: str) -> web.Response:
    body = document if isinstance(document, bytes) else raw.encode(document)
    return web.Response(body=body, status=status, headers=headers)


def failure(code: int, reason: str, message: str, **more: raw.JSON) -> web.Response:
    return answer(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **more}, code
    )


def a_map(name: str = "a", **metadata: raw.JSON) -> raw.Document:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": "7", **metadata}}


def a_list(*names: str, token: str = "") -> web.Response:
    meta = {"resourceVersion": "9", "continue": token}
    return answer({"kind": "ConfigMapList", "metadata": meta, "items": [a_map(name) for name in names]})


def busy(after: str = "0") -> web.Response:
    return answer(b"Too many requests, please try again later.\n", 429, **{"Retry-After": after})


async def write(store: KubernetesStore, write: Write) -> Written:
    (result,) = await store.write([write])
    assert isinstance(result, Written)
    return result


async def refusal(store: KubernetesStore, write: Write) -> errors.ApiError:
    (result,) = await store.write([write])
    assert isinstance(result, Refused)
    return result.error


# Trouble


async def test_who_is_sent_away_comes_back_when_told():
    server = Server(busy(), busy(), answer(b"starting", 503, **{"Retry-After": "0"}), answer(a_map(), 201))
    async with store_of(server) as store:
        assert (await write(store, A_MAP)).is_new
    assert len(server.asked) == 4
    assert len(set(server.bodies)) == 1


async def test_patience_has_an_end():
    server = Server(*[busy() for _ in range(20)])
    async with store_of(server) as store:
        error = await refusal(store, A_MAP)
    assert isinstance(error, errors.TooManyRequests)
    assert len(server.asked) == 8


async def test_a_disruption_budget_is_an_answer_and_no_trouble():
    causes = [{"reason": "DisruptionBudget", "message": "needs 2 healthy pods and has 2 currently"}]
    refused = failure(429, "TooManyRequests", "Cannot evict pod", details={"causes": causes})
    refused.headers["Retry-After"] = "10"
    server = Server(refused)
    async with store_of(server) as store:
        error = await refusal(store, Delete(core.POD, AT, within_budgets=True))
    assert isinstance(error, errors.TooManyRequests)
    assert error.causes[0].reason == "DisruptionBudget"
    assert server.asked[0].path == "/api/v1/namespaces/default/pods/a/eviction"


async def test_an_answer_that_is_lost_is_not_asked_for_again():
    def hang_up(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server = Server(hang_up, hang_up)
    async with store_of(server) as store:
        assert isinstance(await refusal(store, A_MAP), errors.Unavailable)
        assert isinstance(await refusal(store, Patch(core.CONFIG_MAP, AT, {})), errors.Unavailable)
    assert len(server.asked) == 2


async def test_a_server_in_trouble_is_unavailable_whatever_it_calls_it():
    server = Server(
        failure(500, "InternalError", 'failed calling webhook "x.example": connection refused'),
        failure(500, "", "etcdserver: leader changed"),
        answer(b"<html>bad gateway</html>", 502),
        *[answer(b"<html>login</html>", 200) for _ in range(4)],
    )
    async with store_of(server) as store:
        for message in ("failed calling webhook", "leader changed", "answered 502"):
            error = await refusal(store, A_MAP)
            assert isinstance(error, errors.Unavailable)
            assert message in error.message
        with pytest.raises(errors.Unavailable, match="not what was asked for"):
            await store.list(MAPS)
        with pytest.raises(errors.Unavailable, match="not what was asked for"):
            await store.get(core.CONFIG_MAP, AT)
        assert isinstance(await refusal(store, A_MAP), errors.Unavailable)
        assert isinstance(await refusal(store, Delete(core.CONFIG_MAP, AT)), errors.Unavailable)


async def test_leases_are_renewed_while_other_writes_wait():
    slow = asyncio.Event()

    class Slow(Server):
        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            if "leases" not in request.path:
                await slow.wait()
            return answer(a_map(), 201)

    async with store_of(Slow()) as store, asyncio.timeout(5):
        writing = asyncio.ensure_future(store.write([Patch(core.POD, Key("x", f"p{n}"), {}) for n in range(100)]))
        await asyncio.sleep(0.05)
        await write(store, Patch(coordination.LEASE, AT, {"spec": {}}))
        assert not writing.done()
        slow.set()
        assert len(await writing) == 100


async def test_a_burst_of_events_leaves_most_turns_to_others():
    slow = asyncio.Event()
    under_way: list[str] = []

    class Slow(Server):
        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            if "events" in request.path:
                under_way.append(request.path)
                await slow.wait()
            return answer(a_map(), 201)

    async with store_of(Slow()) as store, asyncio.timeout(5):
        telling = asyncio.ensure_future(store.write([Patch(core.EVENT, Key("x", f"e{n}"), {}) for n in range(100)]))
        await asyncio.sleep(0.05)
        await write(store, Patch(core.POD, AT, {}))
        assert 0 < len(under_way) < 10
        slow.set()
        assert len(await telling) == 100


async def test_a_small_write_does_not_wait_for_a_large_batch():
    answered: list[str] = []

    class Steady(Server):
        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            await asyncio.sleep(0.001)
            answered.append(request.path)
            return answer(a_map())

    async with store_of(Steady()) as store, asyncio.timeout(20):
        batch = asyncio.ensure_future(store.write([Patch(core.POD, Key("x", f"p{n}"), {}) for n in range(500)]))
        while not answered:
            await asyncio.sleep(0.001)
        await write(store, Patch(core.CONFIG_MAP, AT, {}))
        assert len(answered) < 250
        assert len(await batch) == 500


async def test_what_is_too_large_for_etcd_is_no_trouble_of_the_server():
    async with store_of(Server(failure(500, "", "etcdserver: request is too large"))) as store:
        assert isinstance(await refusal(store, A_MAP), errors.TooLarge)


async def test_a_credential_that_has_ended_is_renewed_once(tmp_path):
    token = tmp_path / "token"
    token.write_text("first")

    def load() -> Credential:
        return Credential((("Authorization", token.read_text()),))

    def refuse(_request: web.BaseRequest) -> web.StreamResponse:
        token.write_text("second, which is longer")
        return failure(401, "Unauthorized", "Unauthorized")

    server = Server(refuse, a_list(), failure(401, "Unauthorized", "Unauthorized"))
    async with store_of(server, FileCredentials(load, [token])) as store:
        await store.list(MAPS)
        with pytest.raises(errors.Unauthorized):
            await store.list(MAPS)
    sent = [request.headers["Authorization"] for request in server.asked]
    assert sent == ["first", "second, which is longer", "second, which is longer"]


async def test_what_one_may_not_do_is_named():
    message = 'configmaps is forbidden: User "x" cannot list resource "configmaps" in API group "" in the namespace "y"'
    async with store_of(Server(failure(403, "Forbidden", message))) as store:
        with pytest.raises(errors.Forbidden, match='cannot list resource "configmaps"'):
            await store.list(MAPS)


async def test_a_kind_that_is_not_served_is_named():
    missing = [answer(b"404 page not found\n", 404) for _ in range(3)]
    async with store_of(Server(*missing)) as store:
        with pytest.raises(errors.NotFound, match=r"does not serve clusterqueues\.kueue\.x-k8s\.io in kueue"):
            await store.list(Selection(kueue.CLUSTER_QUEUE))
        with pytest.raises(errors.NotFound, match="does not serve"):
            await anext(store.watch(Selection(kueue.CLUSTER_QUEUE), since=Revision(1)))
        made = await refusal(store, Create(kueue.CLUSTER_QUEUE, {"metadata": {"name": "q"}}))
        assert isinstance(made, errors.NotFound)


# Lists and watches


async def test_all_is_listed_in_pages_of_one_moment():
    server = Server(a_list("a", "b", token="more"), a_list("c"))
    async with store_of(server, page=2) as store:
        page = await store.list(MAPS)
    assert [found.key.name for found in page.items] == ["a", "b", "c"]
    assert (page.revision, page.token) == (9, "")
    assert [request.query.get("continue") for request in server.asked] == [None, "more"]
    assert {request.query["limit"] for request in server.asked} == {"2"}
    assert page.items[0].document() | {"kind": "ConfigMap", "apiVersion": "v1"} == page.items[0].document()


async def test_pages_that_the_server_forgot_are_begun_anew_and_in_the_end_taken_at_once():
    def gone(_request: web.BaseRequest) -> web.StreamResponse:
        return failure(410, "Expired", "The provided continue parameter is too old")

    begun = [each for _ in range(3) for each in (a_list("a", token="more"), gone)]
    server = Server(*begun, a_list("a", "b"))
    async with store_of(server, page=1) as store:
        assert len((await store.list(MAPS)).items) == 2
    assert "limit" not in server.asked[-1].query


async def test_from_now_on_means_from_a_list():
    event = raw.encode({"type": "ADDED", "object": a_map()}) + b"\n"
    server = Server(a_list("x", token="more"), answer(event))
    async with store_of(server) as store:
        (first,) = await anext(store.watch(MAPS))
    assert first.object is not None
    assert server.asked[1].query["resourceVersion"] == "9"
    assert server.asked[1].query["allowWatchBookmarks"] == "true"


async def test_a_watch_goes_on_from_the_last_bookmark():
    bookmark = {"type": "BOOKMARK", "object": {"kind": "ConfigMap", "metadata": {"resourceVersion": "12"}}}
    added = {"type": "ADDED", "object": a_map(resourceVersion="13")}
    server = Server(answer(raw.encode(bookmark) + b"\n"), answer(raw.encode(added) + b"\n"))
    async with store_of(server) as store:
        (first,) = await anext(store.watch(MAPS, since=Revision(5)))
    assert first.revision == 13
    assert [request.query["resourceVersion"] for request in server.asked] == ["5", "12"]


@pytest.mark.parametrize("is_event", [True, False])
async def test_a_watch_from_before_memory_has_expired(is_event):
    gone = {"kind": "Status", "code": 410, "reason": "Gone", "message": "too old resource version: 5 (100)"}
    line = raw.encode({"type": "ERROR", "object": gone}) + b"\n"
    async with store_of(Server(answer(line) if is_event else answer(gone, 410))) as store:
        with pytest.raises(errors.Expired, match="too old resource version"):
            await anext(store.watch(MAPS, since=Revision(5)))


async def test_a_watch_that_breaks_is_told():
    def break_off(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"typ\r\n')
        request.transport.close()
        return web.Response()

    async with store_of(Server(break_off)) as store, asyncio.timeout(5):
        with pytest.raises(errors.Unavailable):
            await anext(store.watch(MAPS, since=Revision(5)))


# Whose objects


async def test_only_what_is_ours_is_seen_and_what_we_make_says_so():
    server = Server(a_list(), answer(b""), answer(a_map(), 201), answer(a_map(), 201))
    async with store_of(server, owned=Ownership(Unlabelled.THEIRS)) as store:
        workloads = Selection(kueue.WORKLOAD, "default")
        await store.list(workloads)
        watching = asyncio.ensure_future(anext(store.watch(workloads, since=Revision(5))))
        while len(server.asked) < 2:
            await asyncio.sleep(0.01)
        watching.cancel()
        await write(store, Create(kueue.WORKLOAD, {"metadata": {"name": "a", "namespace": "default"}}))
        await write(store, A_MAP)
    selected = [request.query.get("labelSelector") for request in server.asked[:2]]
    assert selected == [f"{CLASS_LABEL}={OURS}"] * 2
    assert raw.decode(server.bodies[2])["metadata"]["labels"] == {CLASS_LABEL: OURS}
    assert "labels" not in raw.decode(server.bodies[3])["metadata"]


# Writes that are not answered with the object

SUCCESS: raw.Document = {"kind": "Status", "apiVersion": "v1", "status": "Success"}


async def test_what_was_bound_is_told_without_asking():
    server = Server(answer(SUCCESS, 201))
    async with store_of(server) as store:
        made = await write(store, Bind(core.POD, AT, "node-1", "some-uid", {"muster.dev/devices": "0"}))
    assert (made.object.key, made.object.uid, made.is_new) == (AT, "some-uid", False)
    assert made.object.read(core.Pod).spec.node_name == "node-1"
    sent = raw.decode(server.bodies[0])
    assert sent["metadata"] == {
        "name": "a",
        "namespace": "default",
        "uid": "some-uid",
        "annotations": {"muster.dev/devices": "0"},
    }


async def test_what_was_deleted_is_gone_unless_something_holds_it():
    times = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
    server = Server(
        answer(SUCCESS | {"details": {"name": "a", "uid": "some-uid"}}),
        answer(a_map(finalizers=["x.dev/y"], **times)),
        answer(a_map(deletionGracePeriodSeconds=30, **times)),
        answer(a_map(deletionGracePeriodSeconds=0, **times)),
        answer(a_map()),
    )
    async with store_of(server) as store:
        results = [await write(store, Delete(core.POD, AT)) for _ in range(5)]
    assert [result.is_gone for result in results] == [True, False, False, True, True]
    assert (results[0].object.key, results[0].object.uid) == (AT, "some-uid")


async def test_an_eviction_does_not_say_whether_the_pod_has_gone():
    async with store_of(Server(answer(SUCCESS, 201))) as store:
        made = await write(store, Delete(core.POD, AT, uid="some-uid", within_budgets=True))
    assert (made.object.uid, made.is_gone, made.is_new) == ("some-uid", False, False)


async def test_a_patch_says_in_its_body_what_it_was_based_on():
    server = Server(*[answer(a_map()) for _ in range(3)])
    bodies: dict[PatchType, raw.JSON] = {
        PatchType.MERGE: {"metadata": {"labels": {"a": "b"}}},
        PatchType.STRATEGIC: {"spec": {}},
        PatchType.JSON: [{"op": "remove", "path": "/data"}],
    }
    async with store_of(server) as store:
        for type, body in bodies.items():
            await write(store, Patch(core.CONFIG_MAP, AT, body, type, based_on=Revision(5)))
    assert [raw.decode(body) for body in server.bodies] == [
        {"metadata": {"labels": {"a": "b"}, "resourceVersion": "5"}},
        {"metadata": {"resourceVersion": "5"}, "spec": {}},
        [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": "5"},
            {"op": "remove", "path": "/data"},
        ],
    ]
    assert "metadata" not in bodies[PatchType.STRATEGIC]
