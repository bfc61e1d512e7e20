"""The routes about accounts, called as over HTTP but without a socket: names, JSON, errors and rights are the real."""

import json
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.accounts.callers import Caller
from muster.accounts.removing import Occupant
from muster.server.determined import account_routes
from muster.server.determined.router import Router
from muster.server.exchange import Query, Request, Response
from muster.testing import accounts
from muster.testing.accounts import ADMIN, Ground


class Refused(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True)
class Api:
    ground: Ground
    router: Router
    caller: Caller | None = ADMIN.caller

    def by(self, caller: Caller | None) -> "Api":
        return Api(self.ground, self.router, caller)

    async def new_user(self, username: str = "ann", role: str = "", workspace: int | None = None) -> "Api":
        return self.by(await self.ground.caller(username, role, workspace))

    async def __call__(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """The reply's JSON. Raises Refused."""
        encoded = "&".join(
            f"{name}={each}"
            for name, value in query.items()
            for each in (value if isinstance(value, list) else [value])
        )
        sent = b"" if body is None else json.dumps(body).encode()

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": sent, "more_body": False}

        callers[:] = [self.caller]
        request = Request(method, f"/api/v1{path}", Query(encoded.encode()), {}, "1", receive, "10.9.9.9")
        response = await self.router.answer(request)
        assert isinstance(response, Response)
        found = json.loads(response.body)
        if response.status != 200:
            raise Refused(response.status, found["error"]["code"], found["error"]["error"])
        return found


callers: list[Caller | None] = []
"""Who speaks now: tokens are tested elsewhere."""


@asynccontextmanager
async def api(folder: Path, occupants: Sequence[Occupant] = ()) -> AsyncIterator[Api]:
    """As the administrator, until `by` says otherwise."""

    async def authenticate(headers: Mapping[str, str]) -> Caller | None:
        return callers[0]

    async with accounts.ground(folder, occupants) as ground:
        yield Api(ground, Router(account_routes.routes(ground.services), authenticate, ground.services.authorizer))
