"""TLS over loopback, with certificates of an authority that only the test knows."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
import trustme
from starlette.types import Receive, Scope, Send

from muster.api import core, errors
from muster.api.objects import Key
from muster.runtime.clock import SystemClock
from muster.sdk import trusting
from muster.sdk.config import Trust
from muster.sdk.transport import HttpTransport, Request
from muster.server import tls
from muster.server.app import App
from muster.server.listening import listening
from muster.server.tls import Files, Renewal
from muster.store.embedded import EmbeddedStore
from muster.store.http import HttpStore
from muster.testing.servers import TOKEN, app_for

AUTHORITY = trustme.CA()


def write(folder: Path, name: str, certificate: trustme.LeafCert) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    cert.write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    return cert, key


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(*write(tmp_path, "server", AUTHORITY.issue_cert("127.0.0.1", "localhost")))


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        yield app_for(store)


async def test_clients_that_know_the_authority_get_in(app: App, files: Files, ca: Path) -> None:
    async with listening(app, on_close=app.close, tls=tls.server_context(files)) as url:
        assert url.startswith("https://127.0.0.1:")
        trust = trusting.context(url, Trust(ca=str(ca)))
        async with HttpStore(url, TOKEN, tls=trust) as store:
            with pytest.raises(errors.NotFound):
                await store.get(core.NODE, Key("", "none"))
        async with HttpStore(url, TOKEN) as store:
            with pytest.raises(errors.Unavailable, match="certificate"):
                await store.get(core.NODE, Key("", "none"))


async def test_plain_http_is_turned_away_and_old_tls_too(app: App, files: Files) -> None:
    context = tls.server_context(files)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    async with listening(app, on_close=app.close, tls=context) as url, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(url.replace("https", "http"))


async def test_with_a_client_authority_only_those_with_its_certificates_get_in(
    app: App, files: Files, ca: Path, tmp_path: Path
) -> None:
    theirs = trustme.CA()
    client_ca = tmp_path / "clients.pem"
    theirs.cert_pem.write_to_path(str(client_ca))
    cert, key = write(tmp_path, "client", theirs.issue_cert("ann@example.org"))
    foreign = write(tmp_path, "foreign", trustme.CA().issue_cert("eve@example.org"))
    wanted = Files(files.cert, files.key, client_ca)
    async with listening(app, on_close=app.close, tls=tls.server_context(wanted)) as url:
        known = trusting.context(url, Trust(str(ca), cert=str(cert), key=str(key)))
        async with aiohttp.ClientSession() as session:
            assert known is not None
            async with session.get(f"{url}/healthz", ssl=known) as reply:
                assert reply.status == 200
            for trust in (Trust(str(ca)), Trust(str(ca), cert=str(foreign[0]), key=str(foreign[1]))):
                context = trusting.context(url, trust)
                assert context is not None
                with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
                    await session.get(f"{url}/healthz", ssl=context)


async def test_a_renewed_certificate_is_used_by_new_connections_and_a_broken_one_is_not(
    app: App, files: Files, ca: Path, tmp_path: Path
) -> None:
    context = tls.server_context(files)
    renewal = Renewal(context, files, SystemClock())
    async with listening(app, on_close=app.close, tls=context) as url:

        async def seen() -> str:
            trust = trusting.context(url, Trust(ca=str(ca)))
            _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port, ssl=trust)
            found = writer.get_extra_info("peercert")
            writer.close()
            await writer.wait_closed()
            return str(found["serialNumber"])

        before = await seen()
        files.cert.write_text("nonsense")
        renewal.look()
        assert await seen() == before
        files.cert.write_bytes(b"".join(each.bytes() for each in AUTHORITY.issue_cert("127.0.0.1").cert_chain_pems))
        renewal.look()  # its key has not been written yet
        assert await seen() == before
        write(tmp_path, "server", AUTHORITY.issue_cert("127.0.0.1"))
        renewal.look()
        assert await seen() != before


def test_the_sdk_says_whom_it_does_not_trust_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(errors.BadRequest, match="holds no certificate"):
        trusting.context("https://x", Trust(ca=str(tmp_path / "none.pem")))
    assert trusting.context("http://x", Trust(ca="ignored")) is None


async def test_a_connection_that_is_not_trusted_is_told_with_the_remedy(app: App, files: Files) -> None:
    async with listening(app, on_close=app.close, tls=tls.server_context(files)) as url:
        transport = HttpTransport(url, trusting.fixed(TOKEN, trusting.context(url, Trust())))
        with pytest.raises(errors.Unavailable, match="MUSTER_CA"):
            await asyncio.to_thread(transport.exchange, Request("GET", "/healthz"))
        transport.close()


@pytest.mark.parametrize(
    ("cert", "key", "told"),
    [
        ("none.pem", "server.key", "security.tls.cert: cannot read"),
        ("server.pem", "none.key", "security.tls.key: cannot read"),
        ("server.pem", "other.key", "not a certificate and its key"),
        ("empty.pem", "server.key", "not a certificate and its key"),
    ],
)
def test_what_is_wrong_with_the_files_is_told(tmp_path: Path, files: Files, cert: str, key: str, told: str) -> None:
    write(tmp_path, "other", AUTHORITY.issue_cert("127.0.0.1"))
    (tmp_path / "empty.pem").touch()
    with pytest.raises(errors.BadRequest, match=told):
        tls.server_context(Files(tmp_path / cert, tmp_path / key))


def test_what_clients_should_trust_is_found_in_the_servers_own_file(tmp_path: Path, files: Files, ca: Path) -> None:
    assert tls.own_authorities(files.cert) == ""
    both = tmp_path / "both.pem"
    both.write_bytes(files.cert.read_bytes() + ca.read_bytes())
    assert tls.own_authorities(both).strip() == ca.read_text().strip()


async def test_an_application_sees_the_certificate_of_its_client(files: Files, ca: Path, tmp_path: Path) -> None:
    async def show(scope: Scope, _receive: Receive, send: Send) -> None:
        shown = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", [])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": "".join(shown).encode()})

    issued = AUTHORITY.issue_cert("client.invalid")
    trust = ssl.create_default_context(cafile=str(ca))
    trust.load_cert_chain(*write(tmp_path, "client", issued))
    for asking, expected in ((ca, issued.cert_chain_pems[0].bytes()), (None, b"")):
        context = tls.server_context(Files(files.cert, files.key, client_ca=asking))
        async with (
            listening(show, tls=context) as url,
            aiohttp.ClientSession() as session,
            session.get(url, ssl=trust) as answer,
        ):
            assert await answer.read() == expected
