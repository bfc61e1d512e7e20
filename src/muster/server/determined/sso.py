"""The pages of logging in through a provider: a browser goes to `/oidc/<provider>/sso`, and comes back to
`/oidc/<provider>/callback` with a code. They are pages, not API calls: they answer with redirects and cookies."""

import html
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, urlencode

from muster.accounts.oidc_login import OidcLogins
from muster.api import errors
from muster.api.errors import ApiError
from muster.server.determined import auth
from muster.server.determined.authenticating import cookie
from muster.server.determined.master import SsoProvider
from muster.server.exchange import Request, Response

_PATH: Final = re.compile(r"/oidc/([^/]+)/(sso|callback)")
_MEMORY: Final = "muster_login"
_COMMAND_LINE: Final = "cli"
_COMMAND_LINE_PORT: Final = 49176
"""Where `det auth login` listens on the user's own machine."""


class SsoPages:
    """`address`: how browsers reach this server, as in `https://muster.example.org`."""

    def __init__(self, logins: OidcLogins, address: str) -> None:
        self._logins = logins
        self._address = address.rstrip("/")
        self._is_secure = address.startswith("https:")

    def serves(self, path: str) -> bool:
        return _PATH.fullmatch(path) is not None

    def providers(self) -> Sequence[SsoProvider]:
        """What /info tells, so that clients know where to go."""
        return [
            SsoProvider(
                name=provider.settings.name,
                sso_url=f"{self._address}/oidc/{quote(name)}/sso",
                type="OIDC",
                always_redirect=provider.settings.always_redirect,
            )
            for name, provider in self._logins.providers.items()
        ]

    async def answer(self, request: Request) -> Response:
        matched = _PATH.fullmatch(request.path)
        if matched is None or request.method != "GET":
            raise errors.NotFound(f"nothing is served at {request.path}")
        name, what = matched.groups()
        try:
            return await (self._depart(request, name) if what == "sso" else self._arrive(request, name))
        except ApiError as error:
            return _page(error)

    async def _depart(self, request: Request, name: str) -> Response:
        redirect = f"{self._address}/oidc/{quote(name.lower())}/callback"
        departure = await self._logins.depart(name, request.query.text("relayState"), redirect)
        return _redirect(departure.url, self._remember(departure.memory, 600))

    async def _arrive(self, request: Request, name: str) -> Response:
        query = request.query
        if query.text("error"):
            raise errors.Unauthorized(f"{name} refused the login: {query.text('error')[:100]}")
        arrival = await self._logins.arrive(
            name,
            code=query.text("code"),
            state=query.text("state"),
            memory=cookie(request.headers, _MEMORY),
            remote=request.remote,
        )
        forget = self._remember("", 0)
        if arrival.relay == _COMMAND_LINE:
            told = urlencode({"token": arrival.login.token})
            return _redirect(f"http://localhost:{_COMMAND_LINE_PORT}/?{told}", forget)
        session = auth.set_cookie(arrival.login.token, is_secure=self._is_secure)
        return _redirect(_local(arrival.relay), forget, session)

    def _remember(self, memory: str, seconds: int) -> str:
        secure = "; Secure" if self._is_secure else ""
        return f"{_MEMORY}={memory}; Path=/oidc; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"


def _local(relay: str) -> str:
    """A page of ours: a link to our login must not end on a page of somebody else."""
    is_ours = re.fullmatch(r"/(?![/\\])[^\\\x00-\x20\x7f-\uffff]*", relay) is not None
    return relay if is_ours else "/"


def _redirect(url: str, *cookies: str) -> Response:
    headers = (("location", url), ("cache-control", "no-store"), ("referrer-policy", "no-referrer"))
    return Response(302, b"", "text/plain", (*headers, *(("set-cookie", each) for each in cookies)))


def _page(error: ApiError) -> Response:
    body = f"<!doctype html><title>Login</title><p>{html.escape(error.message)}</p><p><a href='/'>Back</a></p>"
    headers = (("cache-control", "no-store"), ("content-security-policy", "default-src 'none'"))
    return Response(error.http_status, body.encode(), "text/html; charset=utf-8", headers)
