"""Who is asking."""

from dataclasses import dataclass
from typing import NewType

UserId = NewType("UserId", int)
WorkspaceId = NewType("WorkspaceId", int)


@dataclass(frozen=True, slots=True)
class Caller:
    """A user; or a task, which speaks for its user as far as its own affairs go."""

    user: UserId
    username: str
    is_admin: bool = False
    session: int = 0
    """The session or access token that was shown."""
    allocation: str = ""
    """Where a task speaks: which one of its runs."""
    task: str = ""


NOBODY = Caller(UserId(0), "")
"""Who has not said who they are, where that is not needed."""
