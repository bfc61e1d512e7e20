"""Checks of lifecycle policies: which events lead to which actions."""

from collections.abc import Iterator

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.volcano import durations
from muster.api.volcano.views import Command, LifecyclePolicy

ANY_EVENT = "*"
EVENTS = frozenset(
    {ANY_EVENT, "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed", "JobUpdated"}
)
ACTIONS = frozenset(
    {
        "AbortJob",
        "RestartJob",
        "RestartTask",
        "RestartPod",
        "RestartPartition",
        "TerminateJob",
        "CompleteJob",
        "ResumeJob",
    }
)
QUEUE_ACTIONS = frozenset({"SyncQueue", "OpenQueue", "CloseQueue"})
INTERNAL_ACTIONS = frozenset({"SyncJob", "EnqueueJob"}) | QUEUE_ACTIONS


def validate_policies(path: str, policies: tuple[LifecyclePolicy, ...]) -> Iterator[FieldError]:
    events: set[str] = set()
    exit_codes: set[int] = set()
    for index, policy in enumerate(policies):
        at = f"{path}[{index}]"
        own = [*([policy.event] if policy.event else []), *policy.events]
        yield from _cause(at, own, policy.exit_code)
        for event in own:
            if event not in EVENTS:
                yield fields.invalid(f"{at}.event", event, f"invalid policy event; use one of {_listed(EVENTS)}")
            elif event in events:
                yield fields.invalid(f"{at}.event", event, f"duplicate event {event} across different policy")
            events.add(event)
        if policy.exit_code in exit_codes:
            yield fields.invalid(f"{at}.exitCode", policy.exit_code, f"duplicate exitCode {policy.exit_code}")
        exit_codes |= {policy.exit_code} if policy.exit_code is not None else set()
        if policy.action not in ACTIONS:
            yield fields.invalid(f"{at}.action", policy.action, f"invalid policy action; use one of {_listed(ACTIONS)}")
        yield from validate_duration(f"{at}.timeout", policy.timeout)
    if ANY_EVENT in events and len(events) > 1:
        yield fields.invalid(path, ANY_EVENT, "if there's * here, no other policy should be here")


def _cause(path: str, events: list[str], exit_code: int | None) -> Iterator[FieldError]:
    if events and exit_code is not None:
        yield fields.invalid(path, exit_code, "must not specify event and exitCode simultaneously")
    if not events and exit_code is None:
        yield fields.required(path, "Required value: either event and exitCode should be specified")
    if exit_code == 0:
        yield fields.invalid(f"{path}.exitCode", 0, "0 is not a valid error code")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def validate_duration(path: str, text: str | None) -> Iterator[FieldError]:
    """A length of time that is not negative. Absent is fine."""
    if text is None:
        return
    try:
        seconds = durations.parse(text)
    except durations.BadDuration as error:
        yield fields.invalid(path, text, str(error))
        return
    if seconds < 0:
        yield fields.invalid(path, text, "must not be negative")


def validate_command(command: Command) -> list[FieldError]:
    return list(_command(command))


def _command(command: Command) -> Iterator[FieldError]:
    """A command is deleted before it is carried out, so a mistake in it would vanish without a trace."""
    if not command.action:
        yield fields.required("action")
    else:
        yield from fields.one_of("action", command.action, ACTIONS | INTERNAL_ACTIONS)
    if command.target is None:
        yield fields.required("target")
        return
    for field, value in (("kind", command.target.kind), ("name", command.target.name)):
        if not value:
            yield fields.required(f"target.{field}")
