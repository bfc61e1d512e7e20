"""Logging in and out."""

from collections.abc import Sequence
from typing import Final

from muster.accounts.service import Accounts, Password
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
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def login(self, call: Call, asked: Login) -> LoginReply:
        login = await self._accounts.login(asked.username, Password(asked.password, asked.is_hashed), call.remote)
        return LoginReply(token=login.token, user=users.told(login.user))

    async def logout(self, call: Call, asked: Nothing) -> Nothing:
        acting.person(call)
        await self._accounts.logout(acting.by(call))
        return Nothing()

    async def user(self, call: Call, asked: Nothing) -> UserReply:
        return UserReply(user=users.told(await self._accounts.me(call.caller)))


def _entered(call: Call, reply: LoginReply) -> Sequence[tuple[str, str]]:
    return (("set-cookie", set_cookie(reply.token, is_secure=call.is_secure)),)


def _left(call: Call, reply: Nothing) -> Sequence[tuple[str, str]]:
    return (("set-cookie", set_cookie("", is_secure=call.is_secure)),)


def routes(accounts: Accounts) -> Sequence[Route]:
    auth = _Auth(accounts)
    login = route("POST", "/api/v1/auth/login", Login, LoginReply, public(), auth.login)
    logout = route("POST", "/api/v1/auth/logout", Nothing, Nothing, known(), auth.logout)
    return (
        dressed(login, LoginReply, _entered),
        dressed(logout, Nothing, _left),
        route("GET", "/api/v1/auth/user", Nothing, UserReply, known(), auth.user),
    )
