"""What a webhook is, what it may be made of, and which of them an event concerns. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType
from urllib.parse import urlsplit

from muster.accounts import names
from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.api.raw import JSON
from muster.tasks import patterns

WebhookId = NewType("WebhookId", int)
TriggerId = NewType("TriggerId", int)
_LONGEST_URL: Final = 2048
_MOST_TRIGGERS: Final = 20


class Format(StrEnum):
    """How an event is worded for whoever receives it."""

    DEFAULT = "DEFAULT"
    SLACK = "SLACK"


class Mode(StrEnum):
    """Whose events: of all in the workspace, or only of those whose configuration names the webhook."""

    WORKSPACE = "WORKSPACE"
    SPECIFIC = "SPECIFIC"


class TriggerType(StrEnum):
    STATE_CHANGE = "EXPERIMENT_STATE_CHANGE"
    TASK_LOG = "TASK_LOG"
    CUSTOM = "CUSTOM"


class EndState(StrEnum):
    """The states of an experiment that can be told of."""

    COMPLETED = "COMPLETED"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class NewTrigger:
    """`state` for a change of state, `pattern` for a task's log; empty where it is another type's."""

    type: TriggerType
    state: str = ""
    pattern: str = ""

    @property
    def condition(self) -> dict[str, str]:
        match self.type:
            case TriggerType.STATE_CHANGE:
                return {"state": self.state}
            case TriggerType.TASK_LOG:
                return {"regex": self.pattern}
            case TriggerType.CUSTOM:
                return {}


@dataclass(frozen=True, slots=True)
class Trigger(NewTrigger):
    id: TriggerId = TriggerId(0)


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """`workspace`: None for the whole cluster."""

    name: str
    url: str
    format: Format
    mode: Mode
    triggers: Sequence[NewTrigger]
    workspace: WorkspaceId | None = None


@dataclass(frozen=True, slots=True)
class Webhook:
    id: WebhookId
    name: str
    url: str
    format: Format
    mode: Mode
    triggers: Sequence[Trigger]
    workspace: WorkspaceId | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom an event is about, as far as webhooks care: its workspace, and what its configuration says of them."""

    workspace: WorkspaceId | None
    ids: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()
    is_excluded: bool = False


def subject(workspace: WorkspaceId | None, config: Mapping[str, JSON] | None) -> Subject:
    """`config`: of a task or an experiment; its `integrations.webhooks` is read, and nonsense in it ignored: it was
    checked when it was submitted."""
    integrations = (config or {}).get("integrations")
    said = integrations.get("webhooks") if isinstance(integrations, dict) else None
    if not isinstance(said, dict):
        return Subject(workspace)
    return Subject(
        workspace,
        frozenset(each for each in _listed(said.get("webhook_id")) if isinstance(each, int)),
        frozenset(each for each in _listed(said.get("webhook_name")) if isinstance(each, str)),
        said.get("exclude") is True,
    )


def _listed(value: JSON) -> Iterable[JSON]:
    return value if isinstance(value, list) else ()


def concerns(webhook: Webhook, about: Subject) -> bool:
    if about.is_excluded:
        return False
    if webhook.workspace is not None and webhook.workspace != about.workspace:
        return False
    return webhook.mode is Mode.WORKSPACE or webhook.id in about.ids or webhook.name in about.names


# What may be made


def checked(wanted: NewWebhook) -> NewWebhook:
    """Raises BadRequest with the field that is wrong."""
    if not wanted.triggers:
        raise errors.BadRequest("triggers: name at least one event that the webhook is for")
    if len(wanted.triggers) > _MOST_TRIGGERS:
        raise errors.BadRequest(f"triggers: at most {_MOST_TRIGGERS}, found {len(wanted.triggers)}")
    triggers = [_checked(f"triggers[{place}]", trigger, wanted.mode) for place, trigger in enumerate(wanted.triggers)]
    name, url = names.checked("name", wanted.name), checked_url(wanted.url)
    return NewWebhook(name, url, wanted.format, wanted.mode, triggers, wanted.workspace)


def checked_url(url: str) -> str:
    """Raises BadRequest. Whether the address is one that may be called is seen when it is: names change what they
    mean."""
    if len(url) > _LONGEST_URL:
        raise errors.BadRequest(f"url: must not be longer than {_LONGEST_URL} characters, found {len(url)}")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise errors.BadRequest("url: must be of printable ASCII characters, with all others percent-encoded")
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:
        raise errors.BadRequest(f"url: {error}") from error
    if parts.scheme not in ("http", "https") or not is_complete:
        raise errors.BadRequest("url: must be complete, as in https://example.org/hook")
    if parts.username is not None or parts.password is not None:
        raise errors.BadRequest("url: must hold no user and password; put a secret into the path or the query")
    return url


def _checked(field: str, trigger: NewTrigger, mode: Mode) -> NewTrigger:
    match trigger.type:
        case TriggerType.STATE_CHANGE:
            # The documentation of Determined calls it by both names.
            state = EndState.ERROR.value if trigger.state == "ERRORED" else trigger.state
            if state not in EndState.__members__:
                raise errors.BadRequest(f"{field}.condition.state: must be COMPLETED or ERROR, found {state[:80]!r}")
            return NewTrigger(trigger.type, state=state)
        case TriggerType.TASK_LOG:
            if not trigger.pattern:
                raise errors.BadRequest(f"{field}.condition.regex: required")
            patterns.search(trigger.pattern, f"{field}.condition.regex")
            return NewTrigger(trigger.type, pattern=trigger.pattern)
        case TriggerType.CUSTOM:
            if mode is not Mode.SPECIFIC:
                raise errors.BadRequest(
                    f"{field}.triggerType: alerts go to webhooks of mode SPECIFIC, which a configuration must name"
                )
            return NewTrigger(trigger.type)
