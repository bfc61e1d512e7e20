"""Who am I? Each command of the client begins by asking this."""

from collections.abc import Sequence

from muster.accounts.service import Accounts
from muster.server.determined import users
from muster.server.determined.routing import Call, Nothing, Route, known, route
from muster.server.determined.users import UserReply


class _Me:
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def get(self, call: Call, asked: Nothing) -> UserReply:
        return UserReply(user=users.told(await self._accounts.me(call.caller)))


def routes(accounts: Accounts) -> Sequence[Route]:
    return (route("GET", "/api/v1/me", Nothing, UserReply, known(), _Me(accounts).get),)
