"""Logging in through an OpenID provider: the authorization code flow, with PKCE.

Between leaving for the provider and coming back the browser carries what we must remember, signed with a key of ours: a
login costs nothing here until the provider has vouched for it, and any replica can end what another began.
"""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from hmac import new as hmac
from typing import Final

import msgspec
from sqlalchemy import Connection, insert, select

from muster.accounts import groups, users
from muster.accounts.audit import SYSTEM, By, Deed, Outcome, note
from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import NOBODY
from muster.accounts.limiting import LoginLimiter
from muster.accounts.oidc_provider import Provider, Verifier
from muster.accounts.oidc_tokens import Identity, identity
from muster.accounts.service import Accounts, Login
from muster.accounts.users import NewUser, User
from muster.api import errors
from muster.records import Database
from muster.records.tables_accounts import IDENTITIES, SERVER_KEYS
from muster.runtime.clock import Clock

_SECONDS: Final = 600.0
_KEY: Final = "oidc"


class _Flow(msgspec.Struct, frozen=True):
    provider: str
    state: str
    nonce: str
    verifier: str
    relay: str
    redirect: str
    until: float


@dataclass(frozen=True, slots=True)
class Departure:
    """`memory`: what the browser must bring back with it."""

    url: str
    memory: str


@dataclass(frozen=True, slots=True)
class Arrival:
    login: Login
    relay: str
    """Where the user wanted to go."""


class OidcLogins:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        accounts: Accounts,
        authorizer: Authorizer,
        providers: Sequence[Provider],
    ) -> None:
        self._database = database
        self._clock = clock
        self._accounts = accounts
        self._authorizer = authorizer
        self.providers = {provider.settings.name.lower(): provider for provider in providers}
        self._key = b""
        self._limiter = LoginLimiter(clock)

    async def depart(self, name: str, relay: str, redirect: str) -> Departure:
        """`redirect`: where the provider is to send the browser back to. Raises NotFound, Unavailable."""
        provider = self._provider(name)
        flow = _Flow(
            provider.settings.name.lower(),
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(48),
            relay[:2000],
            redirect,
            self._clock.now() + _SECONDS,
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(flow.verifier.encode()).digest()).rstrip(b"=").decode()
        url = await provider.authorization_url(
            {
                "response_type": "code",
                "client_id": provider.settings.client_id,
                "redirect_uri": redirect,
                "scope": " ".join(provider.settings.scopes),
                "state": flow.state,
                "nonce": flow.nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            }
        )
        return Departure(url, await self._signed(flow))

    async def arrive(self, name: str, *, code: str, state: str, memory: str, remote: str) -> Arrival:
        """Raises Unauthorized, Forbidden, NotFound, BadRequest (the username will not do), TooManyRequests,
        Unavailable."""
        provider = self._provider(name)
        self._limiter.attempt(None, remote)
        try:
            flow = await self._begun(provider, state, memory)
            user = await self._vouched(provider, flow, code)
        except (errors.Unauthorized, errors.Forbidden, errors.BadRequest) as error:
            deed = Deed("login", provider.settings.name, error.message, Outcome.REFUSED)
            by = By(NOBODY, remote)
            await self._database.write(lambda connection: note(connection, self._clock.now(), by, deed))
            raise
        self._limiter.succeeded(None, remote)
        return Arrival(await self._accounts.enter(user, remote, f"oidc {provider.settings.name}"), flow.relay)

    async def _begun(self, provider: Provider, state: str, memory: str) -> _Flow:
        flow = await self._remembered(memory)
        if flow is None or flow.provider != provider.settings.name.lower() or flow.until <= self._clock.now():
            raise errors.Unauthorized("this login was not begun here, or too long ago: begin again")
        if not compare_digest(flow.state.encode(), state.encode()):
            raise errors.Unauthorized("this login is not the one that was begun in this browser: begin again")
        return flow

    async def _vouched(self, provider: Provider, flow: _Flow, code: str) -> User:
        if not code:
            raise errors.Unauthorized(f"{provider.settings.name} sent no code")
        token = await provider.id_token(code, Verifier(flow.verifier), flow.redirect)
        claims = await provider.claims(token, flow.nonce)
        return await self._known(provider, identity(claims, provider.settings.issuer, provider.settings.claims))

    def _provider(self, name: str) -> Provider:
        found = self.providers.get(name.lower())
        if found is None:
            raise errors.NotFound(f"login provider {name[:80]!r} not found")
        return found

    async def _known(self, provider: Provider, who: Identity) -> User:
        def change(connection: Connection) -> tuple[User, bool]:
            user = self._user(connection, provider, who)
            source = provider.settings.name
            return user, who.groups is not None and groups.follow_claims(connection, user.id, source, who.groups)

        user, is_changed = await self._database.write(change)
        if is_changed:
            self._authorizer.forget()
        return user

    def _user(self, connection: Connection, provider: Provider, who: Identity) -> User:
        """Known by the provider's subject, which never changes hands; the first time by name. Raises Forbidden."""
        is_it = (IDENTITIES.c.provider == who.issuer) & (IDENTITIES.c.subject == who.subject)
        linked = connection.scalar(select(IDENTITIES.c.user_id).where(is_it))
        if linked is not None:
            known = users.get(connection, linked)
            _must_be_remote(known)  # an administrator may have made it local since
            return known
        try:
            user = users.named(connection, who.username)
        except errors.NotFound:
            user = self._provisioned(connection, provider, who)
        else:
            _must_be_remote(user)
            _must_be_unlinked(connection, user)
        connection.execute(insert(IDENTITIES).values(provider=who.issuer, subject=who.subject, user_id=user.id))
        note(connection, self._clock.now(), SYSTEM, Deed("user.link", user.username, f"to {provider.settings.name}"))
        return user

    def _provisioned(self, connection: Connection, provider: Provider, who: Identity) -> User:
        if not provider.settings.provision:
            raise errors.Forbidden(f"user {who.username[:80]!r} has no account here: ask an administrator for one")
        new = NewUser(who.username, who.display_name, is_remote=True)
        made = users.create(connection, new, "", self._clock.now())
        self._accounts.welcome(connection, made)
        note(connection, self._clock.now(), SYSTEM, Deed("user.create", made.username, f"by {provider.settings.name}"))
        return made

    # What the browser carries

    async def _signed(self, flow: _Flow) -> str:
        payload = base64.urlsafe_b64encode(msgspec.json.encode(flow))
        return f"{payload.decode()}.{await self._signature(payload)}"

    async def _remembered(self, memory: str) -> _Flow | None:
        payload, _, signature = memory.partition(".")
        encoded = payload.encode("utf-8", "replace")
        if not compare_digest((await self._signature(encoded)).encode(), signature.encode("utf-8", "replace")):
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(encoded), type=_Flow)

    async def _signature(self, payload: bytes) -> str:
        self._key = self._key or await self._database.write(_signing_key)
        return hmac(self._key, payload, "sha256").hexdigest()


def _must_be_remote(user: User) -> None:
    """Raises Forbidden: whoever can choose a name at the provider must not become somebody here by it."""
    if not user.is_remote:
        raise errors.Forbidden(f"user {user.username!r} logs in with a password; an administrator can make it remote")


def _must_be_unlinked(connection: Connection, user: User) -> None:
    """Raises Forbidden."""
    if connection.scalar(select(IDENTITIES.c.user_id).where(IDENTITIES.c.user_id == user.id)) is not None:
        raise errors.Forbidden(f"user {user.username!r} is already somebody else at a login provider")


def _signing_key(connection: Connection) -> bytes:
    found = connection.scalar(select(SERVER_KEYS.c.value).where(SERVER_KEYS.c.name == _KEY))
    if found is not None:
        return bytes(found)
    made = secrets.token_bytes(32)
    connection.execute(insert(SERVER_KEYS).values(name=_KEY, value=made))
    return made
