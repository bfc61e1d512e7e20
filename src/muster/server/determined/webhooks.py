"""Webhooks: who is told of what, and alerts from user code."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.raw import JSON
from muster.server.determined import acting
from muster.server.determined.master import LogLevel
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route
from muster.tasks import webhook_records, webhook_rules
from muster.tasks.webhook_payloads import Alert
from muster.tasks.webhook_records import Delivery
from muster.tasks.webhook_rules import Format, Mode, NewTrigger, NewWebhook
from muster.tasks.webhooks import Webhooks


class WebhookType(StrEnum):
    UNSPECIFIED = "WEBHOOK_TYPE_UNSPECIFIED"
    DEFAULT = "WEBHOOK_TYPE_DEFAULT"
    SLACK = "WEBHOOK_TYPE_SLACK"


class WebhookMode(StrEnum):
    UNSPECIFIED = "WEBHOOK_MODE_UNSPECIFIED"
    WORKSPACE = "WEBHOOK_MODE_WORKSPACE"
    SPECIFIC = "WEBHOOK_MODE_SPECIFIC"


class TriggerType(StrEnum):
    UNSPECIFIED = "TRIGGER_TYPE_UNSPECIFIED"
    EXPERIMENT_STATE_CHANGE = "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE"
    METRIC_THRESHOLD_EXCEEDED = "TRIGGER_TYPE_METRIC_THRESHOLD_EXCEEDED"
    TASK_LOG = "TRIGGER_TYPE_TASK_LOG"
    CUSTOM = "TRIGGER_TYPE_CUSTOM"


_TYPES: Final[Mapping[TriggerType, webhook_rules.TriggerType]] = {
    TriggerType.EXPERIMENT_STATE_CHANGE: webhook_rules.TriggerType.STATE_CHANGE,
    TriggerType.TASK_LOG: webhook_rules.TriggerType.TASK_LOG,
    TriggerType.CUSTOM: webhook_rules.TriggerType.CUSTOM,
}
_NAMES: Final = {ours: theirs for theirs, ours in _TYPES.items()}


class Trigger(Message, frozen=True):
    id: Id = 0
    trigger_type: TriggerType = TriggerType.UNSPECIFIED
    condition: Mapping[str, JSON] = {}
    webhook_id: Id = 0


class Webhook(Message, frozen=True):
    """As a request it is the whole body. `workspace_id`: 0 for the whole cluster."""

    id: Id = 0
    name: str = ""
    url: str = ""
    webhook_type: WebhookType = WebhookType.UNSPECIFIED
    mode: WebhookMode = WebhookMode.UNSPECIFIED
    triggers: Sequence[Trigger] = ()
    workspace_id: Id = 0


class WebhookReply(Message, frozen=True):
    webhook: Webhook


class GetWebhooksReply(Message, frozen=True):
    webhooks: Sequence[Webhook]


class WebhookAsked(Message, frozen=True):
    id: Id = 0


class PatchWebhook(Message, frozen=True):
    id: Id = 0
    url: str = ""


class TestReply(Message, frozen=True):
    completed: bool


class CustomData(Message, frozen=True):
    title: str = ""
    description: str = ""
    level: LogLevel = LogLevel.UNSPECIFIED


class PostCustom(Message, frozen=True):
    experiment_id: Id = 0
    trial_id: Id = 0
    data: CustomData | None = None


class DeadLetter(Message, frozen=True):
    """An event that was given up. `body`: as it was sent."""

    id: int
    event_id: str
    event_type: str
    created: str | None
    attempts: int
    error: str
    body: str


class DeadLetters(Message, frozen=True):
    dead_letters: Sequence[DeadLetter]


class Revived(Message, frozen=True):
    count: int


class _Webhooks:
    def __init__(self, webhooks: Webhooks, authorizer: Authorizer) -> None:
        self._webhooks = webhooks
        self._authorizer = authorizer

    async def workspace(self, call: Call, asked: WebhookAsked | PatchWebhook) -> WorkspaceId | None:
        """Of one that may be seen; else the answer is the same as if it were not there."""
        found = await self._webhooks.get(asked.id)
        if not await self._authorizer.allows(call.caller, Permission.EDIT_WEBHOOKS, found.workspace):
            raise webhook_records.not_found(asked.id)
        return found.workspace

    async def list(self, call: Call, asked: Nothing) -> GetWebhooksReply:
        visible = await self._authorizer.workspaces(acting.person(call), Permission.EDIT_WEBHOOKS)
        return GetWebhooksReply(webhooks=[_told(each) for each in await self._webhooks.list(visible)])

    async def get(self, call: Call, asked: WebhookAsked) -> WebhookReply:
        return WebhookReply(webhook=_told(await self._webhooks.get(asked.id)))

    async def create(self, call: Call, asked: Webhook) -> WebhookReply:
        return WebhookReply(webhook=_told(await self._webhooks.create(acting.by(call), _wanted(asked))))

    async def patch(self, call: Call, asked: PatchWebhook) -> Nothing:
        await self._webhooks.set_url(acting.by(call), asked.id, asked.url)
        return Nothing()

    async def delete(self, call: Call, asked: WebhookAsked) -> Nothing:
        await self._webhooks.delete(acting.by(call), asked.id)
        return Nothing()

    async def test(self, call: Call, asked: WebhookAsked) -> TestReply:
        await self._webhooks.test(asked.id)
        return TestReply(completed=True)

    async def custom(self, call: Call, asked: PostCustom) -> Nothing:
        data = asked.data or CustomData()
        level = data.level.value.removeprefix("LOG_LEVEL_")
        alert = Alert(data.title, data.description, "INFO" if level == "UNSPECIFIED" else level)
        await self._webhooks.alert(call.caller, asked.experiment_id, asked.trial_id, alert)
        return Nothing()

    async def dead_letters(self, call: Call, asked: WebhookAsked) -> DeadLetters:
        return DeadLetters(dead_letters=[_dead(each) for each in await self._webhooks.dead_letters(asked.id)])

    async def revive(self, call: Call, asked: WebhookAsked) -> Revived:
        return Revived(count=await self._webhooks.revive(acting.by(call), asked.id))


async def _of(call: Call, asked: Webhook) -> WorkspaceId | None:
    return WorkspaceId(asked.workspace_id) if asked.workspace_id else None


def _wanted(asked: Webhook) -> NewWebhook:
    if asked.webhook_type is WebhookType.UNSPECIFIED:
        raise errors.BadRequest("webhookType: must be WEBHOOK_TYPE_DEFAULT or WEBHOOK_TYPE_SLACK")
    triggers = [_trigger(f"triggers[{place}]", trigger) for place, trigger in enumerate(asked.triggers)]
    return NewWebhook(
        asked.name,
        asked.url,
        Format(asked.webhook_type.name),
        Mode.SPECIFIC if asked.mode is WebhookMode.SPECIFIC else Mode.WORKSPACE,
        triggers,
        WorkspaceId(asked.workspace_id) if asked.workspace_id else None,
    )


def _trigger(field: str, asked: Trigger) -> NewTrigger:
    type = _TYPES.get(asked.trigger_type)
    if type is None:
        served = ", ".join(each.value for each in _TYPES)
        raise errors.BadRequest(f"{field}.triggerType: {asked.trigger_type.value} is not served, but {served} are")
    said = {name: asked.condition.get(name, "") for name in ("state", "regex")}
    for name, value in said.items():
        if not isinstance(value, str):
            raise errors.BadRequest(f"{field}.condition.{name}: must be a text")
    return NewTrigger(type, state=str(said["state"]), pattern=str(said["regex"]))


def _told(webhook: webhook_rules.Webhook) -> Webhook:
    return Webhook(
        id=webhook.id,
        name=webhook.name,
        url=webhook.url,
        webhook_type=WebhookType[webhook.format.value],
        mode=WebhookMode[webhook.mode.value],
        triggers=[
            Trigger(id=each.id, trigger_type=_NAMES[each.type], condition=each.condition, webhook_id=webhook.id)
            for each in webhook.triggers
        ],
        workspace_id=webhook.workspace or 0,
    )


def _dead(delivery: Delivery) -> DeadLetter:
    return DeadLetter(
        id=delivery.id,
        event_id=delivery.event,
        event_type=delivery.event_type,
        created=acting.time(delivery.created),
        attempts=delivery.attempts,
        error=delivery.error,
        body=delivery.body.decode(errors="replace"),
    )


def routes(webhooks: Webhooks, authorizer: Authorizer) -> Sequence[Route]:
    handlers = _Webhooks(webhooks, authorizer)
    all_, each = "/api/v1/webhooks", "/api/v1/webhooks/{id}"
    edit = Permission.EDIT_WEBHOOKS
    asked: Rule[WebhookAsked] = Rule(edit, handlers.workspace)
    patch: Rule[PatchWebhook] = Rule(edit, handlers.workspace)
    return (
        route("GET", all_, Nothing, GetWebhooksReply, known(), handlers.list),
        route("POST", all_, Webhook, WebhookReply, Rule(edit, _of), handlers.create),
        # Whom it speaks for is looked at where that is known: a task may only speak for itself.
        route("POST", f"{all_}/custom", PostCustom, Nothing, known(), handlers.custom),
        route("GET", each, WebhookAsked, WebhookReply, asked, handlers.get),
        route("PATCH", each, PatchWebhook, Nothing, patch, handlers.patch),
        route("DELETE", each, WebhookAsked, Nothing, asked, handlers.delete),
        route("POST", f"{each}/test", WebhookAsked, TestReply, asked, handlers.test),
        # Ours alone: what nobody took, and to try it again.
        route("GET", f"{each}/dead-letters", WebhookAsked, DeadLetters, asked, handlers.dead_letters),
        route("POST", f"{each}/dead-letters/retry", WebhookAsked, Revived, asked, handlers.revive),
    )
