"""An OpenID provider over HTTP: what it tells about itself, its keys, and tokens for codes."""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NewType
from urllib.parse import quote_plus, urlencode, urlsplit

import aiohttp
from joserfc.jwk import KeySet

from muster.accounts import oidc_tokens
from muster.accounts.hosts import is_loopback_url
from muster.accounts.oidc_tokens import USUAL, ClaimNames, UnknownKey
from muster.api import errors, raw
from muster.api.raw import JSON, Document
from muster.runtime.clock import Clock

_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)
_MOST_BYTES: Final = 1_048_576
_KEPT_SECONDS: Final = 3600.0
_AGAIN_AFTER: Final = 60.0
"""Keys are asked for again at most so often: a token with a nonsense key must not make us a nuisance."""
Verifier = NewType("Verifier", str)


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """`issuer`: its URL; what it says about itself is below it. `provision`: whether whoever the provider knows gets an
    account; otherwise an administrator makes remote users first."""

    name: str
    issuer: str
    client_id: str
    client_secret: str = field(repr=False, default="")
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    claims: ClaimNames = USUAL
    provision: bool = True
    always_redirect: bool = False


@dataclass(frozen=True, slots=True)
class Discovered:
    authorization: str
    token: str
    keys: str
    takes_basic: bool


class Provider:
    """Remembers what the provider told about itself, and its keys, for an hour."""

    def __init__(self, settings: OidcSettings, session: aiohttp.ClientSession, clock: Clock) -> None:
        self.settings = settings
        self._session = session
        self._clock = clock
        self._discovered: tuple[Discovered, float] | None = None
        self._keys: tuple[KeySet, float] | None = None

    async def authorization_url(self, parameters: Mapping[str, str]) -> str:
        """Where to send the browser. Raises Unavailable."""
        where = (await self._discover()).authorization
        return f"{where}{'&' if urlsplit(where).query else '?'}{urlencode(parameters)}"

    async def id_token(self, code: str, verifier: Verifier, redirect: str) -> str:
        """For a code, once. Raises Unauthorized, Unavailable."""
        found, settings = await self._discover(), self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": settings.client_id,
            "code_verifier": verifier,
        }
        headers: dict[str, str] = {}
        if settings.client_secret and found.takes_basic:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif settings.client_secret:
            form["client_secret"] = settings.client_secret
        async with self._reached():
            answer = await self._session.post(
                found.token, data=form, headers=headers, allow_redirects=False, timeout=_TIMEOUT
            )
            document = await _document(answer, also=(400, 401))
        token = document.get("id_token")
        if answer.status != 200 or not isinstance(token, str):
            raise errors.Unauthorized(
                f"{settings.name} gave no token: {str(document.get('error', 'no id_token'))[:100]}"
            )
        return token

    async def claims(self, token: str, nonce: str) -> Document:
        """Of an id token. Raises Unauthorized, Unavailable."""
        try:
            return self._verified(token, nonce, await self._key_set(_KEPT_SECONDS))
        except UnknownKey:
            pass
        try:
            return self._verified(token, nonce, await self._key_set(_AGAIN_AFTER))
        except UnknownKey as error:
            raise errors.Unauthorized("the provider's token is signed with an unknown key") from error

    def _verified(self, token: str, nonce: str, keys: KeySet) -> Document:
        settings = self.settings
        return oidc_tokens.verify(
            token, keys, issuer=settings.issuer, client=settings.client_id, nonce=nonce, now=self._clock.now()
        )

    async def _key_set(self, oldest: float) -> KeySet:
        if self._keys is None or self._clock.monotonic() - self._keys[1] >= oldest:
            where = (await self._discover()).keys
            self._keys = oidc_tokens.key_set(await self._get(where)), self._clock.monotonic()
        return self._keys[0]

    async def _discover(self) -> Discovered:
        if self._discovered is None or self._clock.monotonic() - self._discovered[1] >= _KEPT_SECONDS:
            document = await self._get(f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
            self._discovered = _discovered(document, self.settings), self._clock.monotonic()
        return self._discovered[0]

    async def _get(self, url: str) -> Document:
        _must_be_safe(url, self.settings)
        async with self._reached():
            return await _document(await self._session.get(url, allow_redirects=False, timeout=_TIMEOUT))

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[None]:
        try:
            yield
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unavailable(f"{self.settings.name} cannot be reached: {type(error).__name__}") from error


async def _document(answer: aiohttp.ClientResponse, also: tuple[int, ...] = ()) -> Document:
    try:
        if answer.status not in (200, *also):
            raise errors.Unavailable(f"the provider answered with status {answer.status}")
        body = await answer.content.read(_MOST_BYTES + 1)
        while len(body) <= _MOST_BYTES and (more := await answer.content.read(_MOST_BYTES)):
            body += more
        if len(body) > _MOST_BYTES:
            raise errors.Unavailable("the provider's answer is too large")
        return raw.decode_object(body)
    except errors.BadRequest as error:
        raise errors.Unavailable(f"the provider's answer cannot be read: {error.message}") from error
    finally:
        answer.release()


def _discovered(document: Document, settings: OidcSettings) -> Discovered:
    if document.get("issuer") != settings.issuer:
        raise errors.Unavailable(
            f"{settings.name} calls itself {str(document.get('issuer'))[:200]!r}, not {settings.issuer!r}: "
            "write its issuer exactly as it does"
        )
    found = [
        _url(document.get(name), name, settings) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
    ]
    methods = document.get("token_endpoint_auth_methods_supported")
    return Discovered(found[0], found[1], found[2], not isinstance(methods, list) or "client_secret_basic" in methods)


def _url(value: JSON, name: str, settings: OidcSettings) -> str:
    if not isinstance(value, str):
        raise errors.Unavailable(f"{settings.name} tells no {name}")
    _must_be_safe(value, settings)
    return value


def _must_be_safe(url: str, settings: OidcSettings) -> None:
    if not is_safe(url, settings.issuer):
        raise errors.Unavailable(f"{settings.name}: {url[:200]!r} must be https")


def is_safe(url: str, issuer: str) -> bool:
    """Secrets travel there: only encrypted, except to a provider on this very machine."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return bool(parts.hostname)
    return parts.scheme == "http" and is_loopback_url(url) and is_loopback_url(issuer)
