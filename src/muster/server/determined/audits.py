"""Who did what: for administrators. Determined has no such list; ours is beside its API."""

from collections.abc import Sequence

from muster.accounts.audit import Audit, Entry
from muster.accounts.permissions import Permission
from muster.server.determined import acting, paging
from muster.server.determined.paging import Paged, Pagination
from muster.server.determined.routing import Call, Message, Route, Rule, route


class GetAudit(Paged, frozen=True):
    """`action`: also only its beginning, as in `user.`."""

    username: str = ""
    action: str = ""


class AuditEntry(Message, frozen=True):
    id: int
    time: str | None
    user_id: int | None
    username: str
    action: str
    target: str
    outcome: str
    remote_address: str
    detail: str


class GetAuditReply(Message, frozen=True):
    entries: Sequence[AuditEntry]
    pagination: Pagination


class _Audits:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def list(self, call: Call, asked: GetAudit) -> GetAuditReply:
        page = await self._audit.entries(username=asked.username, action=asked.action, window=asked.window)
        return GetAuditReply(entries=[_told(entry) for entry in page.items], pagination=paging.told(page, asked))


def _told(entry: Entry) -> AuditEntry:
    return AuditEntry(
        id=entry.id,
        time=acting.time(entry.at),
        user_id=entry.user,
        username=entry.username,
        action=entry.deed.action,
        target=entry.deed.target,
        outcome=entry.deed.outcome.value,
        remote_address=entry.remote,
        detail=entry.deed.detail,
    )


def routes(audit: Audit) -> Sequence[Route]:
    rule: Rule[GetAudit] = Rule(Permission.ADMINISTRATE_USERS)
    return (route("GET", "/api/v1/audit", GetAudit, GetAuditReply, rule, _Audits(audit).list),)
