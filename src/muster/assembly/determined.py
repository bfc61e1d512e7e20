"""Determined's API: records, accounts, and the routes of all areas, put together.

Each area has services, which are made here in the order in which they need each other, and routes over them.
"""

import contextlib
import importlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

import aiohttp
from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from muster.accounts import bootstrapping
from muster.accounts.callers import Caller, UserId, WorkspaceId
from muster.accounts.lifespans import Lifespans
from muster.accounts.passwords import Passwords
from muster.accounts.removing import Occupant
from muster.accounts.services import AccountServices
from muster.api import errors
from muster.api.kueue import CLUSTER_QUEUE, ClusterQueue
from muster.assembly import experimenting, overseeing
from muster.assembly.addresses import Place
from muster.assembly.configured import ServeSettings
from muster.assembly.controlling import Component
from muster.assembly.experimenting import Experimenting
from muster.assembly.interactive import InteractiveTasks, Setting, interactive_tasks
from muster.assembly.overseeing import Oversight, Scene
from muster.assembly.platform import ForeignCluster
from muster.assembly.private_files import token
from muster.assembly.tasking import TaskServices, task_services
from muster.engines import sizing
from muster.engines.pod_documents import USUAL, Customs
from muster.engines.sizing import Auxiliary
from muster.experiments.metric_intake import MetricIntake
from muster.records import Database
from muster.records.tables_accounts import WORKSPACE_NAMESPACES
from muster.runtime.clock import Clock
from muster.runtime.log_ring import LogRing
from muster.server.app import Identify, Pages
from muster.server.determined import account_routes, master, me, openapi
from muster.server.determined.api_pages import ApiPages
from muster.server.determined.authenticating import Credentials
from muster.server.determined.cluster_facts import ClusterFacts
from muster.server.determined.master import About, Live, SsoProvider
from muster.server.determined.router import Router
from muster.server.determined.routing import Route
from muster.server.identities import Identities
from muster.server.proxy.admitting import Admission, RecordedAffiliations
from muster.server.proxy.proxying import Proxy
from muster.server.proxy.recording import Recording
from muster.settings.reading import without_password
from muster.settings.sections import Security
from muster.store.protocol import Selection, Store
from muster.tasks.proxy_tokens import ProxyTokens
from muster.tasks.queues import Queues
from muster.version import VERSION

_DAY: Final = 86_400.0
_ROOT: Final = UserId(1)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What Determined's API needs of the rest. `trusted`: in PEM, what others know us by, where their system does not.
    `root_token` is the one that the owner of the data directory has. `cluster`: where tasks run, if not on nodes of
    ours."""

    store: Store
    clock: Clock
    place: Place
    trusted: str
    root_token: str
    live: Live
    log: LogRing
    queues: Queues
    cluster: ForeignCluster | None = None


@dataclass(frozen=True, slots=True)
class Determined:
    """`components` must be kept running. `password`: of the administrator, where this start has made one up."""

    router: Router
    proxy: Proxy
    identify: Identify
    pages: Sequence[Pages]
    accounts: AccountServices
    tasks: TaskServices
    intake: MetricIntake
    components: Mapping[str, Component]
    password: str | None


@contextlib.asynccontextmanager
async def determined(settings: ServeSettings, around: Surroundings) -> AsyncIterator[Determined]:
    """Open while the context lasts."""
    async with contextlib.AsyncExitStack() as stack:
        base = await _base(settings, around, stack)
        areas = await _areas(settings, around, base, stack)
        routes = await _routes(settings, around, base, areas)
        accounts, caller = base.accounts, base.credentials.caller
        yield Determined(
            router=Router(routes, caller, accounts.authorizer, accounts.refusals.note),
            proxy=await stack.enter_async_context(_proxy(around, base, areas)),
            identify=Identities(
                base.credentials.of_token, accounts.authorizer, _Namespaces(base.database).all
            ).identify,
            pages=(
                *areas.sso,
                *overseeing.pages(areas.overseen, caller, accounts),
                *experimenting.pages(areas.experimenting, caller, accounts),
                ApiPages(lambda: openapi.document(routes, VERSION)),
            ),
            accounts=accounts,
            tasks=areas.tasks,
            intake=areas.experimenting.intake,
            components={
                "removal of workspaces": accounts.remover.run,
                "upkeep of accounts": accounts.upkeep.run,
                "records of refusals": accounts.refusals.run,
                **areas.tasks.components,
                **areas.interactive.components,
                **areas.overseen.components,
                **areas.experimenting.components,
            },
            password=base.password,
        )


@dataclass(frozen=True, slots=True)
class _Base:
    """Who there is. `occupants`: those who keep something in workspaces; they need accounts first, and are added."""

    database: Database
    accounts: AccountServices
    occupants: list[Occupant]
    credentials: Credentials
    password: str | None


@dataclass(frozen=True, slots=True)
class _Areas:
    """What there is to do. `facts`: of the cluster; `tokens`: for the services of tasks."""

    facts: ClusterFacts
    tokens: ProxyTokens
    sso: Sequence["_Sso"]
    tasks: TaskServices
    interactive: InteractiveTasks
    overseen: Oversight
    experimenting: Experimenting


async def _base(settings: ServeSettings, around: Surroundings, stack: contextlib.AsyncExitStack) -> _Base:
    security = settings.platform.security
    database = await _database(settings, stack)
    passwords = Passwords(may_be_blank=around.place.is_local)
    occupants: list[Occupant] = []
    accounts = AccountServices.over(
        database,
        around.clock,
        passwords,
        _Pools(around.store),
        occupants=occupants,
        lifespans=_lifespans(security),
    )
    first = await bootstrapping.bootstrap(
        database, around.clock, passwords, accounts.accounts, security.initial_user_password
    )
    credentials = Credentials(accounts.accounts.authenticate, around.root_token, await _root(accounts))
    return _Base(database, accounts, occupants, credentials, None if first is None else first.generated)


async def _areas(
    settings: ServeSettings, around: Surroundings, base: _Base, stack: contextlib.AsyncExitStack
) -> _Areas:
    platform, accounts = settings.platform, base.accounts
    facts, tokens = ClusterFacts(base.database, around.clock), await ProxyTokens.load(base.database)
    auxiliary = Auxiliary(platform.tasks.cpu, platform.tasks.memory)
    days = platform.retention_policy.log_retention_days
    customs = USUAL
    if around.cluster is not None:
        # Another server, with other records, may have tasks there: it must not take ours for forgotten ones.
        engine = f"pods.{await facts.id()}"
        customs = Customs(around.cluster.scheduler, True, platform.proxy.by_service, engine)
    tasks = await stack.enter_async_context(
        task_services(around.store, around.clock, base.database, accounts.accounts, auxiliary, days, customs)
    )
    setting = Setting(
        around.store,
        around.clock,
        settings.data,
        platform.tasks.master_url or (around.cluster and around.cluster.service) or around.place.url,
        around.trusted,
        await facts.id(),
        is_foreign=around.cluster is not None,
    )
    interactive = await interactive_tasks(platform, setting, tasks, accounts, tokens)
    base.occupants.append(interactive.tasks)
    overseen = await stack.enter_async_context(_oversight(settings, around, auxiliary, tasks, accounts))
    experiments = experimenting.experimenting(platform, setting, tasks, interactive, accounts, overseen.webhooks)
    # First: its trials are tasks as well, and would be run again.
    base.occupants.insert(0, experiments.core.remover)
    return _Areas(facts, tokens, await _sso(settings, around, base, stack), tasks, interactive, overseen, experiments)


async def _routes(settings: ServeSettings, around: Surroundings, base: _Base, areas: _Areas) -> Sequence[Route]:
    providers = [provider for each in areas.sso for provider in each.providers()]
    about = About(await areas.facts.id(), str(uuid4()), settings.platform.cluster_name, VERSION, providers)
    accounts, is_secure = base.accounts, around.place.url.startswith("https:")
    return (
        *master.routes(about, areas.facts, around.live, around.log),
        *me.routes(accounts.accounts),
        *account_routes.routes(accounts, is_secure=is_secure),
        *areas.tasks.routes(accounts.authorizer),
        *areas.interactive.routes,
        *areas.overseen.routes,
        *areas.experimenting.routes,
    )


def _proxy(around: Surroundings, base: _Base, areas: _Areas) -> Proxy:
    caller, accounts = base.credentials.caller, base.accounts
    admission = Admission(caller, accounts.authorizer, areas.tokens, RecordedAffiliations(base.database))
    recording = Recording(caller, accounts.refusals.note)
    return Proxy(areas.tasks.allocations.proxies, admission.admit, around.clock, recording=recording)


def _oversight(
    settings: ServeSettings,
    around: Surroundings,
    auxiliary: Auxiliary,
    tasks: TaskServices,
    accounts: AccountServices,
) -> contextlib.AbstractAsyncContextManager[Oversight]:
    key = token(settings.data / "webhook-key")
    scene = Scene(around.store, around.clock, around.queues, around.place.url, key, auxiliary)
    return overseeing.oversight(scene, settings.platform.webhooks, tasks, accounts)


async def _database(settings: ServeSettings, stack: contextlib.AsyncExitStack) -> Database:
    """Raises BadRequest where it cannot be opened."""
    url = settings.platform.database
    try:
        database = await (Database.open(url) if url else Database.at(settings.data / "records.db"))
    except (SQLAlchemyError, ModuleNotFoundError) as error:
        place = without_password(url) or settings.data / "records.db"
        why = str(getattr(error, "orig", None) or error).partition("\n")[0]
        raise errors.BadRequest(f"database: cannot open {place}: {why}") from error
    stack.push_async_callback(database.close)
    return database


class _Sso(Pages, Protocol):
    """Pages to log in through others."""

    def providers(self) -> Sequence[SsoProvider]: ...


async def _sso(
    settings: ServeSettings, around: Surroundings, base: _Base, stack: contextlib.AsyncExitStack
) -> Sequence[_Sso]:
    """None where nobody else vouches for users: then what checks their tokens is not even loaded."""
    security = settings.platform.security
    if not security.oidc:
        return ()
    session = await stack.enter_async_context(aiohttp.ClientSession())
    make = importlib.import_module("muster.assembly.sso").pages
    found: _Sso = make(
        security, around.place.url, session, clock=around.clock, database=base.database, accounts=base.accounts
    )
    return (found,)


async def _root(accounts: AccountServices) -> Caller:
    """The administrator that the first start made, whatever has become of the name."""
    user = await accounts.accounts.user(_ROOT)
    return Caller(user.id, user.username, is_admin=True)


def _lifespans(security: Security) -> Lifespans:
    longest = security.token.max_lifespan_days
    return Lifespans(
        session=security.session_lifespan_days * _DAY,
        access=security.token.default_lifespan_days * _DAY,
        longest_access=None if longest is None else longest * _DAY,
    )


class _Pools:
    """Those of the ClusterQueues that are resource pools."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def names(self) -> Sequence[str]:
        page = await self._store.list(Selection(CLUSTER_QUEUE))
        return [found.key.name for found in page.items if sizing.is_pool(found.read(ClusterQueue))]


class _Namespaces:
    """Of workspaces that are bound to one in our own cluster, whose name is empty."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> Mapping[WorkspaceId, str]:
        return await self._database.read(_namespaces)


def _namespaces(connection: Connection) -> Mapping[WorkspaceId, str]:
    table = WORKSPACE_NAMESPACES
    query = select(table.c.workspace_id, table.c.namespace).where(table.c.cluster == "")
    return {WorkspaceId(row.workspace_id): row.namespace for row in connection.execute(query)}
