"""Talks to extenders over HTTP. Whatever goes wrong is an answer: an extender must not be able to stop the scheduler.

What to say and what to make of it is `placement.extending`; this sends one document and gets one back, within the
extender's own time.
"""

import asyncio
import io
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import aiohttp

from muster.api import raw
from muster.api.errors import BadRequest, FieldError
from muster.placement.extending import Answered, Ask, ExtenderConfig, Failed, Reply, TlsConfig

_LARGEST_ANSWER = 64 * 1024 * 1024  # ten thousand whole nodes
_LARGE_BODY = 512 * 1024  # more takes long enough to encode that others would notice
_CHUNK = 1024 * 1024
_SHOWN = 200
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


class ExtenderClient:
    """Use as an async context manager. `ask` never raises, but when it is cancelled."""

    def __init__(self, contexts: Mapping[str, ssl.SSLContext]) -> None:
        """`contexts`: by the extender's path in the configuration."""
        self._contexts = contexts
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def of(cls, extenders: Sequence[ExtenderConfig]) -> Self | list[FieldError]:
        """Reads the extenders' certificates. Blocks: for the start of the program."""
        contexts: dict[str, ssl.SSLContext] = {}
        errors: list[FieldError] = []
        for extender in extenders:
            try:
                contexts[extender.path] = _context(extender)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                message = f"the certificates cannot be used: {_shown(error)}"
                errors.append(FieldError(f"{extender.path}.tlsConfig", "FieldValueInvalid", message))
        return errors or cls(contexts)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=_HEADERS)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, ask: Ask) -> Reply:
        extender, url = ask.extender, ask.extender.url(ask.verb)
        try:
            async with asyncio.timeout(extender.timeout_seconds):
                return await self._exchange(ask, url)
        except TimeoutError:
            return Failed(f"extender {url} did not answer within {extender.timeout_seconds:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Failed(f"extender {url} cannot be reached: {_shown(error)}")
        except BadRequest as error:
            return Failed(f"extender {url}: {_shown(error)}")

    async def _exchange(self, ask: Ask, url: str) -> Reply:
        if self._session is None:
            return Failed(f"extender {url} cannot be asked: the scheduler is shutting down")
        tls = ask.extender.tls
        body = await asyncio.to_thread(raw.encode, ask.document)
        async with self._session.post(
            url,
            data=body if len(body) <= _LARGE_BODY else io.BytesIO(body),  # in pieces, so that others have their turn
            ssl=self._contexts.get(ask.extender.path, True),
            server_hostname=(tls.server_name or None) if tls and url.startswith("https:") else None,
            allow_redirects=False,
            # asyncio.timeout is over all of it, also over slow drips; aiohttp's own would only get in its way.
            timeout=aiohttp.ClientTimeout(total=None),
        ) as response:
            content = await _content(response)
        if response.status != 200:
            said = content[:_SHOWN].decode(errors="replace").strip()
            return Failed(f"extender {url} answered with status {response.status}{': ' if said else ''}{said}")
        if len(content) > _LARGEST_ANSWER:
            return Failed(f"extender {url} answered with more than {_LARGEST_ANSWER // 1024 // 1024} MiB")
        return Answered(await _decoded(content))


async def _content(response: aiohttp.ClientResponse) -> bytes:
    """The body, and no more of it than says that it is too large."""
    content = bytearray()
    while len(content) <= _LARGEST_ANSWER:
        chunk = await response.content.read(_CHUNK)
        if not chunk:
            break
        content += chunk
    return bytes(content)


async def _decoded(content: bytes) -> raw.JSON:
    return await asyncio.to_thread(raw.decode, content) if len(content) > _LARGE_BODY else raw.decode(content)


def _context(extender: ExtenderConfig) -> ssl.SSLContext:
    tls = extender.tls or TlsConfig()
    # With `enableHTTPS` and no authority named, kube-scheduler trusts whoever answers.
    is_trusting = tls.insecure or (extender.enable_https and not (tls.ca_file or tls.ca_data))
    context = ssl.create_default_context(
        cafile=(tls.ca_file or None) if not tls.ca_data else None, cadata=tls.ca_data.decode("ascii") or None
    )
    if is_trusting:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_data or tls.cert_file:
        _load_certificate(context, tls)
    return context


def _load_certificate(context: ssl.SSLContext, tls: TlsConfig) -> None:
    with tempfile.TemporaryDirectory() as scratch:  # private to us; OpenSSL takes certificates from files alone
        certificate, key = Path(tls.cert_file), Path(tls.key_file)
        if tls.cert_data:
            certificate = Path(scratch, "cert.pem")
            certificate.write_bytes(tls.cert_data)
        if tls.key_data:
            key = Path(scratch, "key.pem")
            key.write_bytes(tls.key_data)
        context.load_cert_chain(certificate, key)


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_SHOWN]
