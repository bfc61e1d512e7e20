"""Which pods a running job needs more, and which it has too many."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice

from muster.api import batch
from muster.api.meta import Instant
from muster.jobs.batch import backoff, failures, members, standing
from muster.jobs.batch.members import Member
from muster.jobs.batch.standing import Standing

MOST_AT_ONCE = 500
"""Pods made or removed in one go: the next go sees what became of them."""

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, no look-alikes: Kubernetes' own choice
_SUFFIX_LENGTH = 5
_LONGEST_STEM = 58


@dataclass(frozen=True, slots=True)
class NewPod:
    """`failures` and `ignored_failures` are those of its index so far; None where nobody counts them."""

    name: str
    stem: str
    index: int | None = None
    failures: int | None = None
    ignored_failures: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """`removed` are pods that the job has no use for: they go without being counted."""

    created: Sequence[NewPod] = ()
    removed: Sequence[Member] = ()
    again_after: float | None = None


def manage(found: Standing, now: Instant, taken: Collection[str] = ()) -> Work:
    """Pods are either removed or made, never both: what is made is decided with the removed ones gone. `taken`: names
    that others are known to have."""
    job = found.job
    if job.spec.suspend:
        return Work(removed=found.active)
    wanted = _wanted(found)
    surplus = _surplus(found, max(0, len(found.active) - wanted))
    if surplus:
        is_more = len(surplus) > MOST_AT_ONCE
        return Work(removed=surplus[:MOST_AT_ONCE], again_after=0.0 if is_more else None)
    missing = wanted - len(found.active) - (found.ending if standing.waits_for_the_end(job) else 0)
    if missing <= 0:
        return Work()
    if not standing.limits_each_index(job):
        delay = backoff.remaining(*_finished(found), now)
        if delay > 0:
            return Work(again_after=delay)
    return _make(found, missing, now, taken)


def _wanted(found: Standing) -> int:
    spec = found.job.spec
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        # Pods that share out work among themselves: once one has succeeded there is none left to begin.
        return len(found.active) if found.succeeded else parallelism
    return max(0, min(spec.completions - found.succeeded, parallelism))


def _surplus(found: Standing, at_least: int) -> Sequence[Member]:
    """At least so many, and in any case those that are of no use: not held any more, so that they could not be counted;
    or of an index that is wrong, or that another has."""
    if not at_least and not _has_useless(found):
        return ()
    ordered = sorted(found.active, key=members.removal_order)
    # A later one is worth more, and takes the place of an earlier one.
    keepers = {_place(found, member): member for member in ordered if _is_of_use(found, member)}
    surplus = [member for member in ordered if keepers.get(_place(found, member)) is not member]
    others = (member for member in ordered if keepers.get(_place(found, member)) is member)
    return [*surplus, *islice(others, max(0, at_least - len(surplus)))]


def _has_useless(found: Standing) -> bool:
    places = {_place(found, member) for member in found.active}
    return len(places) < len(found.active) or not all(_is_of_use(found, member) for member in found.active)


def _is_of_use(found: Standing, member: Member) -> bool:
    return member.is_tracked and (
        not standing.is_indexed(found.job) or standing.is_within(found.job, member.completion_index)
    )


def _place(found: Standing, member: Member) -> str | int | None:
    """What only one pod can have."""
    return member.completion_index if standing.is_indexed(found.job) else member.uid


def _finished(found: Standing) -> tuple[list[Member], list[Member]]:
    """Those that succeeded and those that failed; not those that were removed, which fail because they had to go."""
    succeeded = [member for member in found.members if member.phase == "Succeeded"]
    return succeeded, [
        member for member in found.failed_pods.values() if member.is_tracked or not member.is_terminating
    ]


def _make(found: Standing, missing: int, now: Instant, taken: Collection[str]) -> Work:
    job = found.job
    used = {member.name for member in found.members}.union(taken)
    if not standing.is_indexed(job):
        chosen = islice(_names(job, None, used), min(missing, MOST_AT_ONCE))
        created = [NewPod(name, _stem(job, None)) for name in chosen]
        return Work(created, again_after=0.0 if missing > MOST_AT_ONCE else None)
    pending = list(islice(_pending(found), min(missing, MOST_AT_ONCE)))
    delays = {
        index: backoff.remaining_of_index(found.replaceable[index], now)
        for index in pending
        if index in found.replaceable
    }
    created = [_member_of(found, index, used) for index in pending if delays.get(index, 0.0) <= 0]
    waiting = [delay for delay in delays.values() if delay > 0]
    if missing > len(pending) == MOST_AT_ONCE and created:
        return Work(created, again_after=0.0)
    return Work(created, again_after=min(waiting, default=None))


def _pending(found: Standing) -> Iterable[int]:
    """The indexes that need a pod, lowest first."""
    job = found.job
    busy = found.active
    if standing.waits_for_the_end(job):
        busy = [*busy, *(member for member in found.members if member.is_ending)]
    taken = {member.completion_index for member in busy}
    return (
        index
        for index in range(job.spec.completions or 0)
        if index not in taken and index not in found.completed and index not in found.failed_indexes
    )


def _member_of(found: Standing, index: int, used: Collection[str]) -> NewPod:
    job = found.job
    name = next(_names(job, index, used))
    if not standing.limits_each_index(job):
        return NewPod(name, _stem(job, index), index)
    replaced = found.replaceable.get(index)
    if replaced is None:
        return NewPod(name, _stem(job, index), index, 0)
    is_counted = failures.judge(job.spec.pod_failure_policy, replaced).is_counted
    return NewPod(
        name,
        _stem(job, index),
        index,
        replaced.failures + is_counted,
        replaced.ignored_failures + (not is_counted),
    )


def _stem(job: batch.Job, index: int | None) -> str:
    tail = "-" if index is None else f"-{index}-"
    return job.metadata.name[: _LONGEST_STEM - len(tail)] + tail


def _names(job: batch.Job, index: int | None, used: Collection[str]) -> Iterator[str]:
    """Those that are free of a series which looks random but follows from the job alone. Whoever does not know of all
    pods yet, because an answer was lost or news is late, asks for names that exist, and makes no pod twice."""
    stem = _stem(job, index)
    source = job.metadata.uid if index is None else f"{job.metadata.uid}/{index}"
    chosen: set[str] = set()
    for number in count():
        name = stem + _suffix(source, number)
        if name not in used and name not in chosen:
            chosen.add(name)
            yield name


@lru_cache(maxsize=2**15)  # a job with many pods goes through its whole series again and again
def _suffix(source: str, number: int) -> str:
    digest = int.from_bytes(hashlib.blake2b(f"{source}/{number}".encode(), digest_size=8).digest())
    letters = []
    for _ in range(_SUFFIX_LENGTH):
        digest, letter = divmod(digest, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)
