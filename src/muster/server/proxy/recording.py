"""What the proxy refused, for the audit records: who asked for which service. Never the rest of the path, nor the
query, which may hold the token of a notebook."""

from collections.abc import Mapping
from typing import Final

from muster.accounts.audit import By
from muster.accounts.callers import NOBODY
from muster.api.errors import ApiError
from muster.server.determined.authenticating import token_of
from muster.server.determined.router import Authenticate, OnRefusal

_RECORDED: Final = {
    400: "request.invalid",
    401: "request.unknown",
    403: "request.forbidden",
    404: "request.undeclared",
}


class Recording:
    def __init__(self, authenticate: Authenticate, note: OnRefusal) -> None:
        self._authenticate = authenticate
        self._note = note

    async def refused(self, headers: Mapping[str, str], remote: str, service: str, error: ApiError) -> None:
        """`service`: as it was asked for, before anything else in the path."""
        action = _RECORDED.get(error.http_status)
        is_stranger = error.http_status == 401 and not token_of(headers)
        is_over = error.http_status == 404 and ":" not in service  # a task that has ended: people leave pages open
        if action is None or is_stranger or is_over:
            return
        caller = await self._authenticate(headers)
        self._note(By(caller or NOBODY, remote), action, f"/proxy/{service}", error.reason)
