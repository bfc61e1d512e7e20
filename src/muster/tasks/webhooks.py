"""Webhooks: whoever wants to hear of what happens is told, over HTTP.

An event is put into the queue of every webhook that it concerns, in the records, before anything is sent: what was
acknowledged is told, whatever becomes of this process. `webhook_shipping.Shipper` sends.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from sqlalchemy import Connection

from muster.accounts import names
from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import Caller, WorkspaceId
from muster.api import errors
from muster.api.meta import Instant
from muster.records import Database
from muster.runtime.clock import Clock
from muster.tasks import webhook_records, webhook_rules
from muster.tasks.webhook_payloads import Alert, Alerted, Event, ExperimentFacts, Happening, StateChanged, Tested, body
from muster.tasks.webhook_records import Delivery, NewDelivery
from muster.tasks.webhook_rules import NewWebhook, Subject, Trigger, Webhook, WebhookId, concerns
from muster.tasks.webhook_sending import Outcome, Taken

_LONGEST_TITLE: Final = 250
_LONGEST_DESCRIPTION: Final = 4096
_MOST_DEAD: Final = 200
_log = logging.getLogger(__name__)
NewId: TypeAlias = Callable[[], UUID]


class Carrier(Protocol):
    """Whoever brings events to their receivers: `webhook_sending.Sender`."""

    async def check(self, url: str) -> None:
        """Raises BadRequest for an address that it would not call."""
        ...

    async def send(self, delivery: Delivery, now: float) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Experiment:
    """What webhooks need of one: `subject` decides who hears of it, `facts` is what they hear."""

    subject: Subject
    facts: ExperimentFacts


FindExperiment: TypeAlias = Callable[[Caller, int], Awaitable[Experiment | None]]
"""None where there is none, or the caller may not speak for it."""


async def no_experiments(_caller: Caller, _id: int) -> Experiment | None:
    return None


class Webhooks:
    """Whoever sends is woken when something waits: `on_enqueued`."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        carrier: Carrier,
        new_id: NewId,
        *,
        base_url: str = "",
        find_experiment: FindExperiment = no_experiments,
    ) -> None:
        self._database = database
        self._clock = clock
        self._carrier = carrier
        self._new_id = new_id
        self._base_url = base_url.rstrip("/")
        self._find_experiment = find_experiment
        self._wakes: list[Callable[[], None]] = []

    def on_enqueued(self, wake: Callable[[], None]) -> None:
        self._wakes.append(wake)

    # What there is

    async def get(self, id: int) -> Webhook:
        """Raises NotFound."""
        return await self._database.read(lambda connection: webhook_records.get(connection, id))

    async def list(self, visible: Collection[WorkspaceId] | None) -> Sequence[Webhook]:
        """`visible`: only of these workspaces; None for all, and those of the whole cluster."""
        return await self._database.read(lambda connection: webhook_records.listed(connection, visible))

    async def create(self, by: By, wanted: NewWebhook) -> Webhook:
        """Raises BadRequest, AlreadyExists, NotFound."""
        fine = webhook_rules.checked(wanted)
        await self._carrier.check(fine.url)

        def change(connection: Connection) -> Webhook:
            made = webhook_records.add(connection, fine, self._clock.now())
            note(connection, self._clock.now(), by, Deed("webhook.create", made.name))
            return made

        return await self._database.write(change)

    async def set_url(self, by: By, id: int, url: str) -> Webhook:
        """Also for what waits already. Raises BadRequest, NotFound."""
        fine = webhook_rules.checked_url(url)
        await self._carrier.check(fine)

        def change(connection: Connection) -> Webhook:
            found = webhook_records.get(connection, id)
            webhook_records.set_url(connection, found.id, fine)
            note(connection, self._clock.now(), by, Deed("webhook.change", found.name, "url"))
            return webhook_records.get(connection, id)

        return await self._database.write(change)

    async def delete(self, by: By, id: int) -> None:
        """With all that waits for it. Raises NotFound."""

        def change(connection: Connection) -> None:
            found = webhook_records.get(connection, id)
            webhook_records.remove(connection, found.id)
            note(connection, self._clock.now(), by, Deed("webhook.delete", found.name))

        await self._database.write(change)

    async def test(self, id: int) -> None:
        """Sends it something now. Raises NotFound, and BadRequest where that was not taken."""
        found = await self.get(id)
        now = self._clock.now()
        made = self._made(found, self._event(Tested()))
        outcome = await self._carrier.send(
            Delivery(0, found.id, found.url, made.event, made.event_type, made.body, now, 0), now
        )
        if not isinstance(outcome, Taken):
            raise errors.BadRequest(f"url: the event was not taken: {outcome.error}")

    async def dead_letters(self, id: int) -> Sequence[Delivery]:
        """What was given up, the latest first. Raises NotFound."""

        def read(connection: Connection) -> Sequence[Delivery]:
            return webhook_records.dead_letters(connection, webhook_records.get(connection, id).id, _MOST_DEAD)

        return await self._database.read(read)

    async def revive(self, by: By, id: int) -> int:
        """Tries all dead letters of it again. How many. Raises NotFound."""

        def change(connection: Connection) -> int:
            found = webhook_records.get(connection, id)
            note(connection, self._clock.now(), by, Deed("webhook.retry", found.name))
            return webhook_records.revive(connection, found.id, self._clock.now())

        count = await self._database.write(change)
        self._wake()
        return count

    # What happens

    async def alert(self, caller: Caller, experiment: int, trial: int, alert: Alert) -> None:
        """What a task wants told, to the webhooks that its configuration names. Raises NotFound, BadRequest."""
        names.checked_text("data.title", alert.title, longest=_LONGEST_TITLE)
        names.checked_text("data.description", alert.description, longest=_LONGEST_DESCRIPTION)
        about = await self._find_experiment(caller, experiment) if experiment else None
        if about is None and caller.task:
            about = await self._of_task(caller.task)
        if about is None:
            raise errors.NotFound(f"experiment {experiment} not found")
        await self.tell(Alerted(alert, _of_trial(about.facts, trial)), about.subject, _always)

    async def tell(self, what: Happening, about: Subject, is_meant: Callable[[Trigger], bool]) -> None:
        """Queues it for each trigger that it concerns and that `is_meant`."""
        await self.queue(lambda connection: meant(connection, what, about, is_meant))

    async def queue(self, meant: Callable[[Connection], Sequence[tuple[Webhook, Happening]]]) -> None:
        """Queues what is meant for whom, in the transaction in which that is decided."""
        now = Instant(self._clock.now())

        def change(connection: Connection) -> list[WebhookId]:
            found = meant(connection)
            events = {what: self._event(what) for _, what in found}
            made = [self._made(webhook, events[what]) for webhook, what in found]
            return webhook_records.enqueue(connection, made, now)

        for full in await self._database.write(change):
            _log.warning("webhook %d: too much waits for it; an event is not told", full)
        self._wake()

    def _event(self, what: Happening) -> Event:
        return Event(self._new_id(), Instant(self._clock.now()), what)

    def _made(self, webhook: Webhook, event: Event) -> NewDelivery:
        text = body(event, webhook.format, self._base_url)
        return NewDelivery(webhook.id, str(event.id), event.what.type.value, text)

    async def _of_task(self, task: str) -> Experiment | None:
        found = await self._database.read(lambda connection: webhook_records.task(connection, task))
        if found is None:
            return None
        facts = ExperimentFacts(0, found.name, "ACTIVE", workspace=found.workspace_name)
        return Experiment(webhook_rules.subject(found.workspace, found.config), facts)

    def _wake(self) -> None:
        for wake in self._wakes:
            wake()


def to_tell_of_end(connection: Connection, about: Experiment) -> Sequence[tuple[Webhook, Happening]]:
    """For each trigger that waits for experiments to end so: for `Webhooks.queue`."""
    return meant(
        connection, StateChanged(about.facts), about.subject, lambda trigger: trigger.state == about.facts.state
    )


def meant(
    connection: Connection, what: Happening, about: Subject, is_meant: Callable[[Trigger], bool]
) -> Sequence[tuple[Webhook, Happening]]:
    """For each trigger that it concerns and that `is_meant`: for `Webhooks.queue`."""
    return [
        (webhook, what)
        for webhook in webhook_records.listed(connection)
        if concerns(webhook, about)
        for trigger in webhook.triggers
        if trigger.type is what.type and is_meant(trigger)
    ]


def _always(_trigger: Trigger) -> bool:
    return True


def _of_trial(facts: ExperimentFacts, trial: int) -> ExperimentFacts:
    return replace(facts, trial=trial) if trial else facts
