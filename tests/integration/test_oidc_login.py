"""Logging in through a real OpenID provider, a small one, over loopback."""

import base64
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from muster.accounts.oidc_login import OidcLogins
from muster.accounts.oidc_provider import OidcSettings, Provider
from muster.accounts.oidc_tokens import USUAL, ClaimNames
from muster.accounts.service import Password
from muster.accounts.users import UserPatch
from muster.server.determined.sso import SsoPages
from muster.server.exchange import Query, Request, Response
from muster.testing import accounts
from muster.testing.accounts import ADMIN, Ground

pytestmark = pytest.mark.postgres
CLIENT, SECRET = "muster:1", "s3cret/+"
HOME = "https://muster.example.org"


@dataclass
class Idp:
    """Everybody who asks is `person`. Breaks a rule where a test says so."""

    issuer: str = ""
    person: dict[str, object] = field(
        default_factory=lambda: {"sub": "s-1", "preferred_username": "Ann", "name": "Ann"}
    )
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "k1", "use": "sig"}))
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    replaced: dict[str, object] = field(default_factory=dict)
    told_issuer: str = ""
    key_requests: int = 0

    async def discover(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.told_issuer or self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        )

    async def keys(self, request: web.Request) -> web.Response:
        self.key_requests += 1
        return web.json_response({"keys": [self.key.as_dict(private=False)]})

    async def authorize(self, request: web.Request) -> web.Response:
        asked = dict(request.query)
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe()
        self.codes[code] = asked
        raise web.HTTPFound(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}")

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        asked = self.codes.pop(str(form["code"]), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(str(form["code_verifier"]).encode()).digest())
        basic = base64.b64encode(b"muster%3A1:s3cret%2F%2B").decode()
        if (
            asked is None
            or asked["code_challenge"] != challenge.rstrip(b"=").decode()
            or asked["redirect_uri"] != form["redirect_uri"]
            or request.headers.get("Authorization") != f"Basic {basic}"
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        claims = {
            "iss": self.issuer, "aud": CLIENT, "nonce": asked["nonce"], "iat": 1_700_000_000, "exp": 1_700_000_300,
            **self.person, **self.replaced,
        }  # fmt: skip
        signed = jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)
        return web.json_response({"access_token": "unused", "token_type": "Bearer", "id_token": signed})


@asynccontextmanager
async def running(idp: Idp) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", idp.discover)
    app.router.add_get("/keys", idp.keys)
    app.router.add_get("/authorize", idp.authorize)
    app.router.add_post("/token", idp.token)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        idp.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield
    finally:
        await runner.cleanup()


@dataclass
class Browser:
    """Follows redirects between our pages and the provider, and keeps cookies."""

    pages: SsoPages
    session: aiohttp.ClientSession
    cookies: dict[str, str] = field(default_factory=dict)

    async def visit(self, url: str) -> Response:
        """One of our pages."""
        parts = urlsplit(url)
        headers = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        request = Request("GET", parts.path, Query(parts.query.encode()), headers, "1", _nothing, "10.2.2.2")
        answer = await self.pages.answer(request)
        for name, value in answer.headers:
            if name == "set-cookie":
                cookie, _, rest = value.partition(";")
                assert "HttpOnly" in rest
                assert "Secure" in rest
                self.cookies[cookie.partition("=")[0]] = cookie.partition("=")[2]
        return answer

    async def at_provider(self, url: str) -> str:
        """Where the provider sends us back to."""
        async with self.session.get(url, allow_redirects=False) as answer:
            assert answer.status == 302
            return answer.headers["Location"]

    async def log_in(self, relay: str = "") -> Response:
        departure = await self.visit(f"{HOME}/oidc/idp/sso?relayState={relay}")
        assert departure.status == 302, departure.body
        return await self.visit(await self.at_provider(location(departure)))


async def _nothing() -> dict[str, object]:
    return {"type": "http.request", "body": b""}


def location(answer: Response) -> str:
    return dict(answer.headers)["location"]


@dataclass
class Site:
    ground: Ground
    idp: Idp
    browser: Browser
    logins: OidcLogins


@asynccontextmanager
async def a_site(folder: Path, claims: ClaimNames = USUAL, *, provision: bool = True) -> AsyncIterator[Site]:
    idp = Idp()
    async with accounts.ground(folder) as ground, running(idp), aiohttp.ClientSession() as session:
        settings = OidcSettings("IdP", idp.issuer, CLIENT, SECRET, claims=claims, provision=provision)
        services = ground.services
        provider = Provider(settings, session, ground.clock)
        logins = OidcLogins(ground.database, ground.clock, services.accounts, services.authorizer, [provider])
        yield Site(ground, idp, Browser(SsoPages(logins, HOME), session), logins)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path) as found:
        yield found


async def test_a_browser_comes_back_with_a_session_and_where_it_wanted_to_go(site: Site) -> None:
    answer = await site.browser.log_in("/workspaces/1")
    assert (answer.status, location(answer)) == (302, "/workspaces/1")
    caller = await site.ground.services.accounts.authenticate(site.browser.cookies["auth"])
    assert caller is not None
    assert caller.username == "ann"
    user = await site.ground.services.accounts.user(caller.user)
    assert (user.is_remote, user.is_admin, user.display_name) == (True, False, "Ann")
    again = await site.browser.log_in()
    assert location(again) == "/"
    entry = (await site.ground.services.audit.entries(action="login")).items[0]
    assert (entry.username, entry.deed.detail, entry.remote) == ("ann", "oidc IdP", "10.2.2.2")
    assert site.idp.key_requests == 1


async def test_the_command_line_gets_its_token_where_it_listens(site: Site) -> None:
    answer = await site.browser.log_in("cli")
    where, _, query = location(answer).partition("?")
    assert where == "http://localhost:49176/"
    assert await site.ground.services.accounts.authenticate(dict(parse_qsl(query))["token"]) is not None
    assert "auth" not in site.browser.cookies


@pytest.mark.parametrize(
    "relay", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/%0d%0aX"]
)
async def test_nobody_is_sent_to_a_foreign_page(site: Site, relay: str) -> None:
    assert location(await site.browser.log_in(relay)) == "/"


async def test_providers_are_told_with_their_addresses(site: Site) -> None:
    (told,) = site.browser.pages.providers()
    assert (told.name, told.sso_url, told.type) == ("IdP", f"{HOME}/oidc/idp/sso", "OIDC")


async def refused(site: Site) -> str:
    answer = await site.browser.log_in()
    assert answer.status in (401, 403), answer
    assert "auth" not in site.browser.cookies
    return answer.body.decode()


@pytest.mark.parametrize(
    ("replaced", "told"),
    [
        ({"nonce": "x"}, "another login"),
        ({"aud": "x"}, "somebody else"),
        ({"iss": "http://x"}, "another issuer"),
        ({"exp": 1}, "expired"),
        ({"preferred_username": None}, "preferred_username"),
    ],
)
async def test_a_provider_that_vouches_wrongly_is_not_believed(
    site: Site, replaced: dict[str, object], told: str
) -> None:
    site.idp.replaced = replaced
    assert told in await refused(site)
    entry = (await site.ground.services.audit.entries()).items[0]
    assert (entry.deed.action, entry.deed.outcome) == ("login", "refused")


async def test_a_code_of_somebody_else_does_nothing_in_this_browser(site: Site) -> None:
    """An attacker's own code, brought into the victim's browser, must not log the victim in as the attacker."""
    attacker = Browser(site.browser.pages, site.browser.session)
    theirs = await attacker.at_provider(location(await attacker.visit(f"{HOME}/oidc/idp/sso")))
    without = await site.browser.visit(theirs)
    await site.browser.visit(f"{HOME}/oidc/idp/sso")
    other = await site.browser.visit(theirs)
    assert (without.status, other.status) == (401, 401)


async def test_a_code_does_once(site: Site) -> None:
    departure = await site.browser.visit(f"{HOME}/oidc/idp/sso")
    memory = dict(site.browser.cookies)
    back = await site.browser.at_provider(location(departure))
    assert (await site.browser.visit(back)).status == 302
    site.browser.cookies = memory
    again = await site.browser.visit(back)
    assert again.status == 401
    assert b"invalid_grant" in again.body


async def test_a_login_that_takes_too_long_or_was_tampered_with_begins_again(site: Site) -> None:
    departure = await site.browser.visit(f"{HOME}/oidc/idp/sso")
    back = await site.browser.at_provider(location(departure))
    memory = site.browser.cookies["muster_login"]
    for wrong in ("", "x", "x.y", memory[:-1] + ("0" if memory[-1] != "0" else "1"), "A" + memory[1:], "é.é"):
        site.browser.cookies["muster_login"] = wrong
        assert (await site.browser.visit(back)).status == 401
    site.browser.cookies["muster_login"] = memory
    site.ground.clock.seconds += 600
    assert (await site.browser.visit(back)).status == 401


async def test_new_keys_are_fetched_when_they_appear_but_not_for_every_nonsense(site: Site) -> None:
    await site.browser.log_in()
    site.idp.key = RSAKey.generate_key(2048, {"kid": "k2", "use": "sig"})
    assert "unknown key" in await refused_again(site)
    site.ground.clock.seconds += 60
    assert (await site.browser.log_in()).status == 302
    assert site.idp.key_requests == 2


async def refused_again(site: Site) -> str:
    site.browser.cookies.pop("auth", None)
    return await refused(site)


async def test_a_local_user_is_not_taken_over_by_name_and_a_remote_one_is_linked_once(site: Site) -> None:
    await site.ground.person("ann")
    assert "logs in with a password" in await refused(site)
    await site.ground.services.accounts.patch_user(ADMIN, 3, UserPatch(is_remote=True))
    assert (await site.browser.log_in()).status == 302
    site.idp.person = {"sub": "s-2", "preferred_username": "ann"}
    assert "already somebody else" in await refused_again(site)
    site.idp.person = {"sub": "s-1", "preferred_username": "renamed"}
    assert (await site.browser.log_in()).status == 302
    caller = await site.ground.services.accounts.authenticate(site.browser.cookies["auth"])
    assert caller is not None
    assert caller.username == "ann"


async def test_who_was_made_local_logs_in_with_a_password_only(site: Site) -> None:
    await site.browser.log_in()
    user = await site.ground.services.accounts.user_named("ann")
    await site.ground.services.accounts.patch_user(ADMIN, user.id, UserPatch(is_remote=False), Password("Passw0rd!"))
    assert "logs in with a password" in await refused_again(site)


async def test_forged_arrivals_are_on_record_and_soon_turned_away(site: Site) -> None:
    forged = f"{HOME}/oidc/idp/callback?code=x&state=y"
    statuses = [(await site.browser.visit(forged)).status for _ in range(70)]
    assert (statuses[:60], set(statuses[60:])) == ([401] * 60, {429})
    noted = await site.ground.services.audit.entries(action="login")
    assert (noted.total, noted.items[0].remote, noted.items[0].deed.outcome) == (60, "10.2.2.2", "refused")
    site.ground.clock.seconds += 60
    assert (await site.browser.log_in()).status == 302


async def test_a_name_that_no_user_may_have_is_told_and_on_record(site: Site) -> None:
    site.idp.person["preferred_username"] = "corp/ann"
    answer = await site.browser.log_in()
    assert (answer.status, b"slash" in answer.body) == (400, True)
    assert (await site.ground.services.audit.entries()).items[0].deed.outcome == "refused"


async def test_who_was_deactivated_stays_out(site: Site) -> None:
    await site.browser.log_in()
    user = await site.ground.services.accounts.user_named("ann")
    await site.ground.services.accounts.patch_user(ADMIN, user.id, UserPatch(is_active=False))
    assert "not active" in await refused_again(site)


async def test_a_remote_user_has_no_password_to_guess(site: Site) -> None:
    await site.browser.log_in()
    with pytest.raises(Exception, match="invalid credentials"):
        await site.ground.services.accounts.login("ann", Password(""))


async def test_without_provisioning_only_those_get_in_whom_an_administrator_made(tmp_path: Path) -> None:
    async with a_site(tmp_path, provision=False) as site:
        assert "no account here" in await refused(site)
        await site.ground.person("ann", is_remote=True)
        assert (await site.browser.log_in()).status == 302


async def test_groups_follow_the_claim_at_each_login_and_what_was_done_by_hand_stays(tmp_path: Path) -> None:
    names = ClaimNames(groups="groups", group_names={"idp-red": "red", "idp-blue": "blue"})
    async with a_site(tmp_path, names) as site:
        by_hand = await site.ground.services.groups.create(ADMIN, "green")

        async def mine() -> set[str]:
            page = await site.ground.services.groups.list(user=3)
            return {group.name for group, _ in page.items}

        site.idp.person["groups"] = ["idp-red", "idp-blue", "idp-unmapped"]
        await site.browser.log_in()
        assert await mine() == {"red", "blue"}
        await site.ground.services.groups.change_many(ADMIN, [3], [by_hand[0].id], [])
        site.idp.person["groups"] = ["idp-blue"]
        await site.browser.log_in()
        assert await mine() == {"blue", "green"}
        del site.idp.person["groups"]
        await site.browser.log_in()
        assert await mine() == {"green"}


async def test_a_provider_that_is_another_or_is_away_is_told(site: Site) -> None:
    site.idp.told_issuer = "http://127.0.0.1:1/other"
    answer = await site.browser.visit(f"{HOME}/oidc/idp/sso")
    assert (answer.status, b"exactly as it does" in answer.body) == (503, True)
    assert (await site.browser.visit(f"{HOME}/oidc/nobody/sso")).status == 404
    denied = await site.browser.visit(f"{HOME}/oidc/idp/callback?error=%3Cscript%3E")
    assert (denied.status, b"<script>" in denied.body) == (401, False)


async def test_secrets_go_nowhere_unencrypted_but_to_this_machine(site: Site) -> None:
    async with aiohttp.ClientSession() as session:
        away = Provider(OidcSettings("Away", "http://idp.example.org", "c", "s"), session, site.ground.clock)
        with pytest.raises(Exception, match="must be https"):
            await away.authorization_url({})
    assert SECRET not in repr(site.logins.providers["idp"].settings)
