"""Following a job of any dialect to its end: how it is doing, and on request what its pods write.

One thread watches the job, one its pods, one its workload, and one more reads each log; they meet in a queue that one
reader takes from. An object, not a generator, for the reason that `following` gives.
"""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from muster.api import errors
from muster.api.raw import Document
from muster.sdk import dialects, finding, gangs, jobs, reading, resources, summaries
from muster.sdk.client import Client
from muster.sdk.dialects import Job
from muster.sdk.inbox import Inbox
from muster.sdk.log_reading import Line, LogEnded, LogLost, LogReader
from muster.sdk.resources import Resource, Selection
from muster.sdk.summaries import State, Summary, Surroundings
from muster.sdk.watching import Change, Watching

_SETTLE_SECONDS = 3.0
"""How long the end of a job waits for the last words of its pods: their logs, and with what code they ended."""


@dataclass(frozen=True, slots=True)
class Moved:
    summary: Summary


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more will come."""

    summary: Summary
    exit_code: int


@dataclass(frozen=True, slots=True)
class _Seen:
    resource: Resource
    change: Change


@dataclass(frozen=True, slots=True)
class _WatchFailed:
    error: errors.ApiError


Event: TypeAlias = Moved | Ended | Line | LogLost
_Message: TypeAlias = _Seen | _WatchFailed | Line | LogEnded


class JobFollower:
    """Lines carry a number for their pod, which `label` turns into a name."""

    def __init__(self, client: Client, job: Job, *, with_logs: bool = False) -> None:
        self._client = client
        self._job = job
        self._with_logs = with_logs and job.dialect not in dialects.MAKERS
        self._messages: Inbox[_Message, Event] = Inbox()
        self._objects: dict[Resource, dict[str, Document]] = {}
        self._numbers: dict[str, int] = {}
        self._reading: dict[str, LogReader] = {}
        self._unread: set[str] = set()
        self._is_gone = False
        self._over_at = math.inf
        self._shown: Summary | None = None
        self._watches = [self._watch(resource, selection) for resource, selection in _watched(job)]

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None when `timeout` seconds passed without one. Raises what a watch failed with."""
        return self._messages.next(
            timeout, take=self._take, due=self._ended, due_at=lambda: self._over_at + _SETTLE_SECONDS
        )

    def close(self) -> None:
        for watch in self._watches:
            watch.close()
        for reader in self._reading.values():
            reader.close()

    def label(self, number: int) -> str:
        """The pod's name without the job's."""
        pod = next((name for name, found in self._numbers.items() if found == number), "")
        return pod.removeprefix(f"{self._job.name}-") or pod

    @property
    def summary(self) -> Summary:
        pods = self._of(resources.PODS)
        groups = [g for g in self._of(resources.POD_GROUPS) if dialects.controller(g).get("uid") == self._job.uid]
        beside = Surroundings(pods, finding.newest(self._of(resources.WORKLOADS)), groups[0] if groups else {})
        found = summaries.observe(self._job, beside)
        if not self._is_gone or found.is_over:
            return found
        return replace(found, state=State.STOPPED, exit_code=gangs.EXIT_STOPPED, why="it was deleted")

    def _of(self, resource: Resource) -> Sequence[Document]:
        return list(self._objects.get(resource, {}).values())

    def _watch(self, resource: Resource, selection: Selection) -> Watching:
        watching = Watching(self._client, resource, selection)

        def run() -> None:
            try:
                for change in watching.changes():
                    self._messages.put(_Seen(resource, change))
            except errors.NotFound:
                return  # a server without this kind
            except errors.ApiError as error:
                self._messages.put(_WatchFailed(error))

        threading.Thread(target=run, name=f"watch {resource.plural} of {self._job.name}", daemon=True).start()
        return watching

    def _take(self, message: _Message) -> Event | None:
        match message:
            case Line():
                return message
            case LogEnded(member, error):
                self._unread.discard(member.pod)
                return LogLost(member.rank, error) if error else None
            case _WatchFailed(error):
                raise error
            case _Seen(resource, change):
                self._see(resource, change)
        found = self.summary
        if found == self._shown:
            return None
        self._shown = found
        return Moved(found)

    def _see(self, resource: Resource, change: Change) -> None:
        if resource == self._job.dialect.resource:
            self._see_job(change)
        if resource == resources.PODS:
            self._see_pod(change)
        elif change.type != "DELETED":
            self._objects.setdefault(resource, {})[reading.text(change.object, "metadata", "uid")] = change.object
        else:
            self._objects.get(resource, {}).pop(reading.text(change.object, "metadata", "uid"), None)

    def _see_job(self, change: Change) -> None:
        if reading.text(change.object, "metadata", "uid") == self._job.uid:
            self._is_gone = change.type == "DELETED"
            self._job = Job(self._job.dialect, {**self._job.document, **change.object})

    def _see_pod(self, change: Change) -> None:
        pod = change.object
        if not _is_member(self._job, pod):
            return
        name, uid = reading.text(pod, "metadata", "name"), reading.text(pod, "metadata", "uid")
        known = self._objects.setdefault(resources.PODS, {})
        member = replace(gangs.observe_pod(pod), rank=self._numbers.setdefault(name, len(self._numbers)))
        if change.type == "DELETED" and not member.is_finished:
            known.pop(uid, None)
        else:
            known[uid] = pod  # one that has finished still says with what code, when it is gone
        if change.type == "DELETED":
            self._unread.discard(name)
        elif self._with_logs and member.has_log and uid not in self._reading:
            self._unread.add(name)
            first = reading.text(pod, "spec", "containers", 0, "name")
            reader = LogReader(self._client, member, self._job.namespace, self._messages, container=first)
            self._reading[uid] = reader
            reader.start()

    def _ended(self) -> Ended | None:
        found = self.summary
        if not found.is_over and not self._is_gone:
            self._over_at = math.inf
            return None
        self._over_at = min(self._over_at, time.monotonic())
        is_late = time.monotonic() >= self._over_at + _SETTLE_SECONDS
        if is_late or (self._messages.is_empty and not self._unread and self._is_told(found)):
            return Ended(found, found.exit_code or 0)
        return None

    def _is_told(self, found: Summary) -> bool:
        """Whether its pods have been heard, as far as they matter: the watches run at their own pace."""
        if found.state is State.FAILED:
            return any(gangs.observe_pod(pod).exit_code for pod in self._of(resources.PODS))
        return bool(self._numbers) or not self._with_logs


def _watched(job: Job) -> list[tuple[Resource, Selection]]:
    """The job itself first: it may be over already."""
    found = [(job.dialect.resource, Selection(job.namespace, fields=f"metadata.name={job.name}"))]
    inside = Selection(job.namespace)
    if job.dialect.pod_label:
        found.append((resources.PODS, Selection(job.namespace, labels=f"{job.dialect.pod_label}={job.name}")))
        found.append((resources.WORKLOADS, Selection(job.namespace, labels=f"{finding.JOB_UID_LABEL}={job.uid}")))
    elif job.dialect is dialects.GANG:
        found.append((resources.PODS, inside))
    if job.dialect in (dialects.VOLCANO, dialects.PYTORCH):
        found.append((resources.POD_GROUPS, inside))
    return found


def _is_member(job: Job, pod: Document) -> bool:
    if job.dialect is dialects.POD:
        return reading.text(pod, "metadata", "uid") == job.uid
    if reading.text(dialects.controller(pod), "uid") == job.uid:
        return True
    return job.dialect is dialects.GANG and jobs.group_of(pod) == job.name


def wait(client: Client, job: Job, *, timeout: float | None = None) -> Summary:
    """Until the job is over; `exit_code` of what comes back is the job's. Raises Timeout, and BadRequest for a cron
    job, which has no end."""
    refuse_endless(job)
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    follower = JobFollower(client, job)
    try:
        while True:
            left = deadline - time.monotonic()
            match follower.next(None if left == math.inf else max(left, 0.0)):
                case Ended(summary):
                    return summary
                case None:
                    raise errors.Timeout(f"{job.shown} was not over within {timeout:g} s: {follower.summary.state}")
    finally:
        follower.close()


def refuse_endless(job: Job) -> None:
    if job.dialect is dialects.CRON:
        raise errors.BadRequest(f"{job.shown} has no end to wait for; wait for one of the jobs that it makes")
