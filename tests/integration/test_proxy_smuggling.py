"""Requests that two parsers might read differently, and headers that carry more than one: none of it gets through.

Each attempt hides a second request, `GET /proxy/notebook/hidden`, in the first. Whatever the first is answered, the
service must never see the second, and must never be asked on behalf of somebody who was not let in.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.integration.proxy_world import World, world

from muster.server.proxy import headers
from muster.server.proxy.headers import Front

pytestmark = pytest.mark.asyncio(loop_scope="module")
HIDDEN = b"GET /proxy/open/hidden HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"POST /proxy/open/first HTTP/1.1\r\nHost: x\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[World]:
    async with world() as found:
        yield found


@pytest.fixture
def at(shared: World) -> World:
    shared.reset()
    return shared


def _length(body: bytes) -> bytes:
    return b"Content-Length: " + str(len(body)).encode() + b"\r\n"


CHUNKED = b"0\r\n\r\n" + HIDDEN
INSIDE = hex(len(HIDDEN))[2:].encode() + b"\r\n" + HIDDEN + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(HEAD + _length(CHUNKED) + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED, id="CL.TE"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n" + b"Content-Length: 4\r\n\r\n" + INSIDE, id="TE.CL"),
        pytest.param(HEAD + b"Content-Length: 0\r\n" + _length(HIDDEN) + b"\r\n" + HIDDEN, id="two lengths"),
        pytest.param(HEAD + b"Content-Length: 0, 47\r\n\r\n" + HIDDEN, id="two lengths in one"),
        pytest.param(HEAD + b"Content-Length: +0\r\n\r\n" + HIDDEN, id="a length with a sign"),
        pytest.param(HEAD + b"Content-Length: 0x0\r\n\r\n" + HIDDEN, id="a length in hex"),
        pytest.param(HEAD + b"Content-Length : 0\r\n\r\n" + HIDDEN, id="a space before the colon"),
        pytest.param(HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED, id="an unknown encoding"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKED, id="chunked is not last"),
        pytest.param(HEAD + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNKED, id="a control character"),
        pytest.param(HEAD + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKED, id="an encoding with a space"),
        pytest.param(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED, id="two encodings"),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + CHUNKED, id="two headers"
        ),
        pytest.param(HEAD + b"X: a\r\n Content-Length: 0\r\n\r\n" + HIDDEN, id="a folded header"),
        pytest.param(HEAD + b"X: a\rContent-Length: 0\r\n\r\n" + HIDDEN, id="a bare carriage return"),
        pytest.param(HEAD + b"X: a\nContent-Length: 0\n\n" + HIDDEN, id="bare newlines"),
        pytest.param(HEAD + b"X: a\x00b\r\n\r\n" + HIDDEN, id="NUL in a header"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;x=\n\r\nhello\r\n" + CHUNKED, id="an extension"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + CHUNKED, id="a negative chunk"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + CHUNKED, id="a huge chunk"),
    ],
)  # fmt: skip
async def test_a_request_in_a_request_never_reaches_the_service_through_the_first(
    at: World, request_bytes: bytes
) -> None:
    answer = await at.raw(request_bytes, seconds=1.0)
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    # It is refused; or it is read as one request whose body is the rest, or as two that follow each other, which a
    # client may send anyway. What must not be is a service that was asked what our parser has not seen.
    passed = statuses.count(b"200")
    assert at.seen.count == passed
    if len(statuses) < 2:
        assert "hidden" not in at.seen.path
    assert statuses[-1:] == [b"400"] or passed in (1, 2), answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(HEAD + _length(CHUNKED) + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED, id="CL.TE"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n" + b"Content-Length: 4\r\n\r\n" + INSIDE, id="TE.CL"),
        pytest.param(HEAD + b"Content-Length: 0\r\n" + _length(HIDDEN) + b"\r\n" + HIDDEN, id="two lengths"),
        pytest.param(HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED, id="an unknown encoding"),
        pytest.param(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED, id="two encodings"),
    ],
)
async def test_the_classics_are_refused(at: World, request_bytes: bytes) -> None:
    answer = await at.raw(request_bytes, seconds=1.0)
    assert answer.startswith(b"HTTP/1.1 400")
    assert at.seen.count == 0


@pytest.mark.parametrize(
    "line",
    [
        b"GET /proxy/open/x\r\nX-Injected: 1 HTTP/1.1",
        b"GET /proxy/open/x y HTTP/1.1",
        b"GET /proxy/open/x\x00 HTTP/1.1",
        b"GET /proxy/open/x\x7f HTTP/1.1",
        b"GET /proxy/open/\xff HTTP/1.1",
        b"GET /proxy/op%0d%0aen/x HTTP/1.1",
        b"GET /proxy/%2e%2e/x HTTP/1.1",
        b"GET /%70roxy/open/x HTTP/1.1",
        b"GET //proxy/open/x HTTP/1.1",
        b"GET /proxy//x HTTP/1.1",
        b"GET /proxy/@127.0.0.1:22/x HTTP/1.1",
        b"GET /proxy/open@evil.org/x HTTP/1.1",
        b"GET /proxy/open%2F..%2Fnotebook/x HTTP/1.1",
    ],
)
async def test_paths_that_are_not_what_they_seem(at: World, line: bytes) -> None:
    answer = await at.raw(line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer[9:12] in (b"400", b"404"), answer
    assert at.seen.count == 0


async def test_an_encoded_line_end_stays_encoded(at: World) -> None:
    line = b"GET /proxy/open/x%0d%0aX-Injected:%201?y=%0d%0a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert (await at.raw(line)).startswith(b"HTTP/1.1 200")
    assert at.seen.path == "/proxy/open/x%0d%0aX-Injected:%201?y=%0d%0a"
    assert "x-injected" not in at.seen.headers


async def test_an_address_in_the_request_line_does_not_choose_who_is_asked(at: World) -> None:
    line = b"GET http://127.0.0.1:22/proxy/open/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert (await at.raw(line)).startswith(b"HTTP/1.1 200")
    assert at.seen.path == "/proxy/open/x"
    line = b"GET http://127.0.0.1:22/proxy/open/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    line += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    assert (await at.raw(line))[9:12] in (b"101", b"404")


async def test_requests_that_follow_each_other_are_each_let_in_on_their_own(at: World) -> None:
    first = b"GET /proxy/notebook/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer editor\r\n\r\n"
    second = b"GET /proxy/notebook/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = await at.raw(first + second)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"401"]
    assert at.seen.count == 1


async def test_two_hosts_are_not_sent_on(at: World) -> None:
    await at.raw(b"GET /proxy/open/x HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n")
    assert [name for name, _ in at.seen.raw_headers].count("host") <= 1


async def test_a_service_cannot_slip_headers_into_its_reply() -> None:
    front = Front("host", "http", "1.2.3.4", "/proxy/x")
    bad = [("x", "a\r\nSet-Cookie: auth=1"), ("y", "a\nb"), ("z", "\x00"), ("bad name", "1"), ("", "1"), ("good", "1")]
    assert headers.returned(bad, front, "http://1.1.1.1:1") == [("good", "1")]
    both = [("Transfer-Encoding", "chunked"), ("Content-Length", "5")]
    assert headers.returned(both, front, "http://1.1.1.1:1") == []
