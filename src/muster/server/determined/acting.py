"""On whose behalf a handler acts."""

from muster.accounts.audit import By
from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import Caller
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.meta import Instant
from muster.api.timestamps import to_micro_text
from muster.server.determined.routing import Call


def by(call: Call) -> By:
    return By(call.caller, call.remote)


def person(call: Call) -> Caller:
    """Raises Forbidden for a task's own token: it must not change its user's account."""
    if call.caller.allocation:
        raise errors.Forbidden("a task's token does not do for this; use the session of the task's user")
    return call.caller


async def self_or(call: Call, user: int, authorizer: Authorizer, permission: Permission) -> None:
    """For what each may do to their own account, and administrators to all. Raises Forbidden."""
    caller = person(call)
    if caller.user != user:
        await authorizer.check(caller, permission, None)


def time(instant: Instant | None) -> str | None:
    return None if instant is None else to_micro_text(instant)
