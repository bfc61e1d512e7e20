"""Following a gang live: its status and its merged logs, as one stream of events.

One thread watches the pods, one more reads each pod's log; they meet in a queue that one reader
takes from. An object, not a generator: a Ctrl-C while it waits must not end it, because the user
may choose to go on.
"""

import math
import threading
import time
from dataclasses import dataclass, replace
from typing import TypeAlias

from muster.api import errors
from muster.api.raw import Document
from muster.sdk import gangs, resources
from muster.sdk.client import Client
from muster.sdk.gangs import EXIT_STOPPED, Member, Phase, Status
from muster.sdk.inbox import Inbox
from muster.sdk.log_reading import Line, LogEnded, LogLost, LogReader
from muster.sdk.resources import Selection
from muster.sdk.watching import Change, Watching


@dataclass(frozen=True, slots=True)
class Moved:
    """The gang's status changed."""

    status: Status


@dataclass(frozen=True, slots=True)
class Stuck:
    """A member failed some seconds ago and these pods still run: most likely they wait for it, for ever."""

    failed: Member
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more will come: every member has finished and every log is read."""

    status: Status
    exit_code: int


@dataclass(frozen=True, slots=True)
class _WatchFailed:
    error: Exception


Event: TypeAlias = Line | LogLost | Moved | Stuck | Ended
_Message: TypeAlias = Line | Change | LogEnded | _WatchFailed


@dataclass(frozen=True, slots=True)
class Patience:
    after_failure: float = 5.0
    """Seconds that the others may go on after one member failed: enough to report what they saw of it."""
    after_deletion: float = 1.0
    """Seconds that the log of a pod that is gone may go on: its end might never be told."""


PATIENCE = Patience()


class Follower:
    """Follows the pods that carry the gang's job label from version `since` on (where `group`, the PodGroup that the
    caller has just made, came to be), or from now."""

    def __init__(
        self,
        client: Client,
        group: Document,
        *,
        since: str = "",
        with_logs: bool = True,
        patience: Patience = PATIENCE,
    ) -> None:
        self._client = client
        self._group = group
        self._name = str(group["metadata"]["name"])
        self._namespace = str(group["metadata"].get("namespace", client.namespace))
        self._with_logs = with_logs
        self._patience = patience
        self._messages: Inbox[_Message, Event] = Inbox()
        self._members: dict[str, Member] = {}
        self._reading: dict[str, LogReader] = {}
        self._unread: set[str] = set()
        self._failed_first: Member | None = None
        self._stuck_at = math.inf
        self._silent_at: dict[str, float] = {}
        self._shown: Status | None = None
        selection = Selection(self._namespace, labels=f"{gangs.JOB_LABEL}={self._name}")
        self._watching = Watching(client, resources.PODS, selection, since=since)
        threading.Thread(target=self._watch, name=f"watch {self._name}", daemon=True).start()

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None when `timeout` seconds passed without one. Raises what the watch failed with."""
        return self._messages.next(timeout, take=self._take, due=self._due, due_at=self._due_at)

    def _due_at(self) -> float:
        return min(self._stuck_at, *self._silent_at.values(), math.inf)

    def close(self) -> None:
        self._watching.close()
        for reader in self._reading.values():
            reader.close()

    @property
    def status(self) -> Status:
        members = tuple(sorted(self._members.values(), key=lambda member: member.rank))
        size = int(self._group["spec"]["minMember"])
        waiting = next((m.reason for m in members if m.phase is Phase.PENDING and m.reason), "")
        return Status(self._name, max(size, len(members)), members, waiting)

    def _watch(self) -> None:
        try:
            for change in self._watching.changes():
                self._messages.put(change)
        except errors.ApiError as error:
            self._messages.put(_WatchFailed(error))

    def _take(self, message: _Message) -> Event | None:
        match message:
            case Line():
                return message
            case Change():
                return self._pod_changed(message)
            case LogEnded(member, error):
                self._unread.discard(member.pod)
                return LogLost(member.rank, error) if error else None
            case _WatchFailed(error):
                raise error

    def _pod_changed(self, change: Change) -> Event | None:
        member = gangs.observe_pod(change.object)
        if change.type == "DELETED" and not member.is_finished:
            member = replace(member, phase=Phase.STOPPED, exit_code=EXIT_STOPPED, reason="deleted before it finished")
        self._members[member.pod] = member
        if member.exit_code and member.is_finished and self._failed_first is None:
            self._failed_first = member  # by the order of events: timestamps only know seconds
            self._stuck_at = time.monotonic() + self._patience.after_failure
        if change.type == "DELETED":
            self._silent_at[member.pod] = time.monotonic() + self._patience.after_deletion
        elif member.has_log:
            self._read_log(member)
        status = self.status
        if status == self._shown:
            return None
        self._shown = status
        return Moved(status)

    def _read_log(self, member: Member) -> None:
        if self._with_logs and member.pod not in self._reading:
            self._unread.add(member.pod)
            reader = LogReader(self._client, member, self._namespace, self._messages)
            self._reading[member.pod] = reader
            reader.start()

    def _due(self) -> Stuck | Ended | None:
        """What time brings, rather than a message."""
        now = time.monotonic()
        for pod in [pod for pod, at in self._silent_at.items() if now >= at]:
            del self._silent_at[pod]
            # Not waited for: a reader whose server has not answered yet cannot be woken.
            self._unread.discard(pod)
            if pod in self._reading:
                self._reading[pod].close()
        status, failed = self.status, self._failed_first
        is_read = not self._unread and self._messages.is_empty
        if len(status.members) == status.size and status.is_finished and is_read:
            return Ended(status, (failed.exit_code or 1) if failed else 0)
        if failed is not None and now >= self._stuck_at:
            self._stuck_at = math.inf
            running = tuple(member.pod for member in status.members if not member.is_finished)
            return Stuck(failed, running) if running else None
        return None
