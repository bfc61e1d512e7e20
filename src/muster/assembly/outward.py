"""What an API server asks of a controller, on one port: its admission webhooks and its aggregated API.

All replicas listen. The leader tells the API server where.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from muster.api.ownership import Ownership
from muster.assembly import admission, aggregating
from muster.assembly.admission import Certificate, WebhookSettings
from muster.assembly.aggregating import Here, Trust
from muster.assembly.controlling import Component
from muster.runtime.clock import Clock
from muster.server.admission.answering import Webhooks
from muster.server.aggregation import answering as aggregated
from muster.server.aggregation.answering import Aggregated
from muster.server.aggregation.authorizing import Reviews
from muster.server.listening import listening
from muster.server.visibility import VisibilityApi
from muster.store.protocol import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answers:
    """Who has them. `is_leading`: whether what is seen here is what is decided by."""

    webhooks: Webhooks
    visibility: VisibilityApi
    is_leading: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Terms:
    """On which the API server asks. `namespace`: of the certificate and the Services. `steers_pods`: whether any pod
    may have to be changed."""

    namespace: str
    webhooks: WebhookSettings
    ownership: Ownership
    steers_pods: bool


class _Port:
    """Both applications, told apart by their paths."""

    def __init__(self, webhooks: Webhooks, passed_on: Aggregated) -> None:
        self._webhooks = webhooks
        self._passed_on = passed_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = self._passed_on if aggregated.serves(scope["path"]) else self._webhooks
        await chosen(scope, receive, send)


@contextlib.asynccontextmanager
async def answering(
    answers: Answers, store: Store, leaders: Store, clock: Clock, terms: Terms
) -> AsyncIterator[Mapping[str, Component]]:
    """While the block runs; gives what the leader has to run. `leaders`: the same store, for who leads only."""
    settings = terms.webhooks
    certificate, trust = Certificate(store, clock, terms.namespace, settings), Trust(store, clock)
    passed_on = Aggregated(answers.visibility, Reviews(store), lambda: trust.current, answers.is_leading)
    telling = admission.Registration(leaders, clock, certificate, terms.ownership, steers_pods=terms.steers_pods)
    here = Here(answers.visibility.versions, settings.way(terms.namespace), settings.pod)
    passing = aggregating.Registration(leaders, clock, certificate, trust, here)
    async with (
        certificate.served() as context,
        trust.followed(context),
        listening(_Port(answers.webhooks, passed_on), settings.host, settings.port, tls=context) as url,
    ):
        _log.info("webhooks and what is passed on are answered at %s", url)
        yield {"webhooks": telling.run, "visibility": passing.run}
