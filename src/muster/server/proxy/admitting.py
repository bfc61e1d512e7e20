"""Who may reach a task's service: whoever may change the task, the task itself, or who has the token of its address."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from sqlalchemy import Connection, select

from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.records import Database
from muster.records.tables_tasks import TASKS
from muster.server.access import sent_token
from muster.server.determined.authenticating import check_origin, cookie
from muster.server.determined.router import Authenticate, Authorize
from muster.server.exchange import Query
from muster.server.proxy.headers import TOKEN_COOKIE
from muster.tasks.proxies import Target
from muster.tasks.proxy_tokens import ProxyTokens

_VIEWED: Final = frozenset({"TENSORBOARD"})
"""Tasks that only show something: who may see them may use them. In all others one runs code as somebody else."""
_ASKING: Final = frozenset({"NOTEBOOK"})
"""Tasks whose default service wants the token of its address."""
_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Admitted:
    """`keeps_authorization`: that header is not ours, but the service's. `token`: to be kept as a cookie.
    `authorization`: what the service is told for those who were let in by us, since it asks on its own as well."""

    keeps_authorization: bool
    token: str = ""
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class Affiliation:
    type: str
    workspace: WorkspaceId | None


class Affiliations(Protocol):
    async def of(self, task: str) -> Affiliation:
        """Raises NotFound."""
        ...


class Admission:
    def __init__(
        self, authenticate: Authenticate, authorize: Authorize, tokens: ProxyTokens, affiliations: Affiliations
    ) -> None:
        self._authenticate = authenticate
        self._authorize = authorize
        self._tokens = tokens
        self._affiliations = affiliations

    async def admit(self, target: Target, headers: Mapping[str, str], query: Query, method: str) -> Admitted:
        """`method`: `WEBSOCKET` for one. Raises Unauthorized, Forbidden, NotFound."""
        if target.port.is_unauthenticated:
            return Admitted(await self._is_theirs(headers))
        shown = query.text("token")
        if shown and self._tokens.is_of(target.task, shown):
            return Admitted(await self._is_theirs(headers), token=shown)
        if self._tokens.is_of(target.task, _token_scheme(headers)):
            return Admitted(keeps_authorization=True)
        if self._tokens.is_of(target.task, cookie(headers, TOKEN_COOKIE)):
            check_origin(method, headers)
            introduction = self._introduction(target) if target.port.is_default else ""
            return Admitted(await self._is_theirs(headers), authorization=introduction)
        caller = await self._authenticate(headers)
        if caller is None:
            raise errors.Unauthorized("log in first: no known session or token came with the request")
        check_origin(method, headers)
        task = await self._affiliations.of(target.task)
        await self._check(caller, target, task)
        introduction = self._introduction(target) if task.type in _ASKING and target.port.is_default else ""
        return Admitted(await self._is_theirs(headers), authorization=introduction)

    async def _is_theirs(self, headers: Mapping[str, str]) -> bool:
        """Whether the header `Authorization` is meant for the service. What proves to us who somebody is never is,
        however else they were let in."""
        token = sent_token(headers.get("authorization", "")).decode("latin-1")
        return not token or await self._authenticate({"authorization": f"Bearer {token}"}) is None

    def _introduction(self, target: Target) -> str:
        """As Jupyter takes it: the token of its address is its own as well."""
        return f"token {self._tokens.of(target.task)}"

    async def _check(self, caller: Caller, target: Target, task: Affiliation) -> None:
        if caller.allocation:
            if caller.task != target.task:
                raise errors.Forbidden(f"{target.task} is not the task that this token belongs to")
            return
        needed = Permission.VIEW_TASKS if task.type in _VIEWED else Permission.EDIT_TASKS
        await self._authorize.check(caller, needed, task.workspace)


def _token_scheme(headers: Mapping[str, str]) -> str:
    """As Jupyter's own clients send it."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "token" else ""


class RecordedAffiliations:
    """From the records; remembered, since a task stays where it is."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, Affiliation] = {}

    async def of(self, task: str) -> Affiliation:
        found = self._known.get(task)
        if found is None:
            found = await self._database.read(lambda connection: _affiliation(connection, task))
            if len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[task] = found
        return found


def _affiliation(connection: Connection, task: str) -> Affiliation:
    row = connection.execute(select(TASKS.c.type, TASKS.c.workspace_id).where(TASKS.c.id == task)).one_or_none()
    if row is None:
        raise errors.NotFound(f"task {task} not found")
    return Affiliation(row.type, None if row.workspace_id is None else WorkspaceId(row.workspace_id))


Admit: TypeAlias = Callable[[Target, Mapping[str, str], Query, str], Awaitable[Admitted]]
