"""Logging in and out."""

from collections.abc import Sequence
from typing import Final

from muster.accounts.hosts import is_loopback_authority
from muster.accounts.service import Accounts, Password
from muster.api import errors
from muster.server.determined import acting, users
from muster.server.determined.routing import Call, Message, Nothing, Route, dressed, known, public, route
from muster.server.determined.users import User, UserReply

COOKIE: Final = "auth"
"""Browsers send their session's token in it."""


class Login(Message, frozen=True):
    username: str = ""
    password: str = ""
    is_hashed: bool = False


class LoginReply(Message, frozen=True):
    token: str
    user: User


def set_cookie(token: str, *, is_secure: bool) -> str:
    """The value of Set-Cookie. Scripts cannot read it, and other sites cannot make a browser change anything with it.
    An empty token takes it away."""
    parts = [f"{COOKIE}={token}", "Path=/", "HttpOnly", "SameSite=Lax"]
    if not token:
        parts.append("Max-Age=0")
    if is_secure:
        parts.append("Secure")
    return "; ".join(parts)


class _Auth:
    """`is_secure`: browsers reach us over TLS, whether we speak it or somebody before us does."""

    def __init__(self, accounts: Accounts, *, is_secure: bool) -> None:
        self._accounts = accounts
        self._is_secure = is_secure

    async def login(self, call: Call, asked: Login) -> LoginReply:
        """The token is also set as a cookie, for browsers."""
        # A page from elsewhere can have its own name mean this machine; it cannot choose by which name it calls us.
        if not asked.password and call.host and not is_loopback_authority(call.host):
            raise errors.Unauthorized("a blank password does only for who calls the server localhost or 127.0.0.1")
        login = await self._accounts.login(asked.username, Password(asked.password, asked.is_hashed), call.remote)
        return LoginReply(token=login.token, user=users.told(login.user))

    async def logout(self, call: Call, asked: Nothing) -> Nothing:
        acting.person(call)
        await self._accounts.logout(acting.by(call))
        return Nothing()

    async def user(self, call: Call, asked: Nothing) -> UserReply:
        return UserReply(user=users.told(await self._accounts.me(call.caller)))

    def entered(self, call: Call, reply: LoginReply) -> Sequence[tuple[str, str]]:
        return self._cookie(call, reply.token)

    def left(self, call: Call, reply: Nothing) -> Sequence[tuple[str, str]]:
        return self._cookie(call, "")

    def _cookie(self, call: Call, token: str) -> Sequence[tuple[str, str]]:
        return (("set-cookie", set_cookie(token, is_secure=call.is_secure or self._is_secure)),)


def routes(accounts: Accounts, *, is_secure: bool) -> Sequence[Route]:
    auth = _Auth(accounts, is_secure=is_secure)
    login = route("POST", "/api/v1/auth/login", Login, LoginReply, public(), auth.login)
    logout = route("POST", "/api/v1/auth/logout", Nothing, Nothing, known(), auth.logout)
    return (
        dressed(login, LoginReply, auth.entered),
        dressed(logout, Nothing, auth.left),
        route("GET", "/api/v1/auth/user", Nothing, UserReply, known(), auth.user),
    )
