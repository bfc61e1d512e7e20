"""Takes experiments: configures them, keeps their model definition, and writes them down.

What was acknowledged is in the records and will run; what fails on the way leaves nothing behind.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, func, insert, select

from muster.accounts import projects, workspaces
from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.policies import Workload
from muster.accounts.projects import Project, ProjectId
from muster.accounts.services import AccountServices
from muster.accounts.workspaces import Workspace
from muster.api import errors, raw
from muster.api.raw import JSON, Document
from muster.engines.protocol import AllocationId, Caveat, Request
from muster.engines.sizing import DEFAULT_POOL
from muster.experiments import experiment_records, launching, task_names
from muster.experiments.config import parsing, yaml_text
from muster.experiments.config.experiment_config import ExperimentConfig
from muster.experiments.config.parsing import Layers
from muster.experiments.config.searchers import Elsewhere
from muster.experiments.contract import Created, NewExperiment
from muster.experiments.experiment_records import Experiment
from muster.experiments.states import ExperimentId, ExperimentState
from muster.records import Database
from muster.records.tables_accounts import PROJECTS, WORKSPACES
from muster.records.tables_experiments import CHECKPOINTS, EXPERIMENTS, TRIALS
from muster.records.tables_tasks import JOBS
from muster.runtime.clock import Clock
from muster.tasks import naming, submitting
from muster.tasks.contexts import Contexts
from muster.tasks.submitting import TaskSettings

_UNCATEGORIZED: Final = ProjectId(1)
_MOST_SEEDS: Final = 2**31


class Checker(Protocol):
    """Whether something could be run: `engines.protocol.ResourceManager` knows."""

    async def check(self, request: Request) -> Sequence[Caveat]: ...


@dataclass(frozen=True, slots=True)
class Services:
    """What creating needs of others."""

    database: Database
    clock: Clock
    accounts: AccountServices
    contexts: Contexts
    engine: Checker


@dataclass(frozen=True, slots=True)
class Settings:
    """`storage`: for checkpoints, where neither a workspace nor a user says otherwise."""

    tasks: TaskSettings = field(default_factory=TaskSettings)
    storage: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that was checked of a new experiment."""

    config: ExperimentConfig
    project: Project
    caveats: Sequence[Caveat]


class Creator:
    def __init__(self, services: Services, settings: Settings) -> None:
        self._services = services
        self._settings = settings

    async def prepare(self, by: By, new: NewExperiment) -> Prepared:
        """Raises BadRequest, NotFound, Forbidden, TooLarge."""
        accounts = self._services.accounts
        user = yaml_text.read(new.config, "config")
        template = await submitting.find_template(accounts, by, new.template)
        project = await self._project(by.caller, new, user, template)
        await accounts.authorizer.check(by.caller, Permission.CREATE_EXPERIMENTS, project.workspace)
        workspace = await accounts.workspaces.get(project.workspace)
        _must_take(workspace, project)
        layers = replace(await self._layers(workspace), template=template, user=user, is_unmanaged=new.is_unmanaged)
        config = parsing.parse(layers, self._settings.tasks.allowed)
        config = replace(config, workspace=project.workspace_name, project=project.name)
        if not new.is_unmanaged:
            config = await self._placed(config, workspace)
        launching.variables_of_experiment(config.document(), {})
        await self._check_sources(by.caller, new.parent, config)
        return Prepared(config, project, () if new.is_unmanaged else await self._caveats(config))

    async def reconfigured(self, experiment: Experiment, wanted: Document) -> ExperimentConfig:
        """The configuration with which one that has ended goes on. Raises BadRequest."""
        workspace = await self._services.accounts.workspaces.get(experiment.workspace)
        layers = replace(await self._layers(workspace), accepted=experiment.config, user=wanted)
        config = parsing.parse(layers, self._settings.tasks.allowed)
        # Which trials there are follows from the seed: with another one they would be others.
        seed = raw.dig(experiment.config, "reproducibility", "experiment_seed", default=config.seed)
        return await self._placed(replace(config, seed=int(seed)), workspace)

    async def create(self, by: By, new: NewExperiment) -> Created:
        """One that runs elsewhere, and is known by the id that it has there, is made once. Raises as `prepare` does."""
        prepared = await self.prepare(by, new)
        staged = f"new-{uuid4()}"
        await self._stage(new, staged)
        try:
            id = await self._services.database.write(
                lambda connection: self._add(connection, by, new, prepared, staged)
            )
        finally:
            await self._services.contexts.delete(staged)
        found = await self._services.database.read(lambda connection: experiment_records.get(connection, id))
        return Created(found.config, found, prepared.caveats)

    # Its configuration

    async def _layers(self, workspace: Workspace) -> Layers:
        policies = await self._services.accounts.policies.applying(Workload.EXPERIMENT, workspace.id)
        return Layers(
            name=naming.made_up(secrets.randbelow),
            seed=secrets.randbelow(_MOST_SEEDS),
            cluster_storage=self._settings.storage,
            container_defaults=self._settings.tasks.defaults,
            workspace_storage=workspace.checkpoint_storage or {},
            policies=policies,
        )

    async def _placed(self, config: ExperimentConfig, workspace: Workspace) -> ExperimentConfig:
        has_slots = config.resources.slots_per_trial > 0
        usual = workspace.default_compute_pool if has_slots else workspace.default_aux_pool
        available = await self._services.accounts.bindings.available(workspace.id)
        return parsing.placed(config, usual or DEFAULT_POOL, available)

    async def _caveats(self, config: ExperimentConfig) -> Sequence[Caveat]:
        """Raises BadRequest where no trial of it could ever run."""
        wanted = config.resources
        if wanted.max_slots is not None and wanted.max_slots < wanted.slots_per_trial:
            raise errors.BadRequest(
                f"config: resources.max_slots: must be at least slots_per_trial, which is {wanted.slots_per_trial}, "
                f"found {wanted.max_slots}"
            )
        request = Request(
            allocation=AllocationId("new"),
            task="new",
            task_type="TRIAL",
            template={},
            pool=wanted.pool,
            slots=wanted.slots_per_trial,
            is_single_node=wanted.is_single_node,
        )
        try:
            return await self._services.engine.check(request)
        except errors.Invalid as error:
            told = error.message.replace("resources.slots", "resources.slots_per_trial")
            raise errors.BadRequest(f"config: {told}") from error

    async def _check_sources(self, caller: Caller, parent: ExperimentId | None, config: ExperimentConfig) -> None:
        """What it is made from must be there, and the caller's to see."""
        sources = await self._services.database.read(lambda connection: list(_sources(connection, parent, config)))
        for workspace, refusal in sources:
            allows = self._services.accounts.authorizer.allows
            if workspace is None or not await allows(caller, Permission.VIEW_EXPERIMENTS, workspace):
                raise refusal

    # Where it belongs

    async def _project(self, caller: Caller, new: NewExperiment, user: Document, template: Document) -> Project:
        """As whoever asks says, or the configuration; else with its parent. Raises NotFound."""
        if new.project is not None:
            return await self._services.accounts.projects.get(new.project)
        named = user if user.get("project") or user.get("workspace") else template
        workspace, project = raw.dig(named, "workspace"), raw.dig(named, "project")
        if isinstance(workspace, str) and isinstance(project, str) and workspace and project:
            return await self._named(caller, workspace, project)
        parent = new.parent

        def read(connection: Connection) -> Project:
            id = _UNCATEGORIZED if parent is None else experiment_records.get(connection, parent).project
            return projects.get(connection, id)

        return await self._services.database.read(read)

    async def _named(self, caller: Caller, workspace: str, project: str) -> Project:
        """The same answer whether it is not there or not to be seen. Raises NotFound."""
        id = await self._services.database.read(lambda connection: _named(connection, workspace, project))
        found = None if id is None else await self._services.accounts.projects.get(id)
        allows = self._services.accounts.authorizer.allows
        if found is None or not await allows(caller, Permission.VIEW_WORKSPACE, found.workspace):
            raise errors.NotFound(f"config: project: workspace {workspace[:80]!r} has no project {project[:80]!r}")
        return found

    # Writing it down

    async def _stage(self, new: NewExperiment, staged: str) -> None:
        """Its model definition, before anybody can see that there is an experiment."""
        if new.files:
            await self._services.contexts.put(staged, new.files)
        elif new.parent is not None:
            await self._services.contexts.copy(task_names.context(new.parent), staged)

    def _add(self, connection: Connection, by: By, new: NewExperiment, prepared: Prepared, staged: str) -> ExperimentId:
        if new.external_id is not None:
            known = connection.scalar(select(EXPERIMENTS.c.id).where(EXPERIMENTS.c.external_id == new.external_id))
            if known is not None:
                return ExperimentId(known)
        now, job = self._services.clock.now(), str(uuid4())
        must_take(connection, prepared.project.id)
        row = {"id": job, "type": "EXPERIMENT", "user_id": by.caller.user, "created": now}
        connection.execute(insert(JOBS).values(row))
        values = {
            **columns(prepared.config),
            "job_id": job,
            "project_id": prepared.project.id,
            "user_id": by.caller.user,
            "state": (ExperimentState.ACTIVE if new.is_active or new.is_unmanaged else ExperimentState.PAUSED).value,
            "original_config": new.config,
            "forked_from": new.parent,
            "external_id": new.external_id,
            "is_unmanaged": new.is_unmanaged,
            "created": now,
        }
        id = experiment_records.add(connection, values)
        # In the same change: nobody ever finds an experiment that has not all of its files.
        self._services.contexts.rename(staged, task_names.context(id))
        note(connection, now, by, Deed("experiment.create", str(id), f"in project {prepared.project.id}"))
        return id


def columns(config: ExperimentConfig) -> dict[str, object]:
    """Of its record, which its configuration decides."""
    searcher, resources = config.searcher, config.resources
    document = config.document()
    return {
        "name": config.name,
        "description": config.description,
        "labels": list(config.labels),
        "config": document,
        "searcher_type": document["searcher"]["name"],
        "searcher_metric": searcher.metric,
        "is_smaller_better": searcher.smaller_is_better,
        "pool": resources.pool,
        "slots_per_trial": resources.slots_per_trial,
        "priority": resources.priority,
        "weight": resources.weight,
        "max_slots": resources.max_slots,
        "log_retention_days": config.log_retention_days,
    }


def must_take(connection: Connection, project: ProjectId) -> Project:
    """Raises NotFound, BadRequest."""
    found = projects.get(connection, project)
    _must_take(workspaces.get(connection, found.workspace), found)
    return found


def _must_take(workspace: Workspace, project: Project) -> None:
    if workspace.is_archived or workspace.state:
        raise errors.BadRequest(f"workspace {workspace.name!r} is archived or being deleted")
    if project.is_archived or project.state:
        raise errors.BadRequest(f"project {project.name!r} is archived or being deleted")


def _named(connection: Connection, workspace: str, project: str) -> ProjectId | None:
    query = (
        select(PROJECTS.c.id)
        .join(WORKSPACES, WORKSPACES.c.id == PROJECTS.c.workspace_id)
        .where(func.lower(WORKSPACES.c.name) == workspace.lower(), func.lower(PROJECTS.c.name) == project.lower())
    )
    found = connection.scalar(query)
    return None if found is None else ProjectId(found)


def _sources(
    connection: Connection, parent: ExperimentId | None, config: ExperimentConfig
) -> Iterator[tuple[WorkspaceId | None, errors.ApiError]]:
    """Of all that it is made from: whose it is, None where there is no such thing; and what is told then."""
    if parent is not None:
        yield _workspace(connection, EXPERIMENTS.c.id == parent), experiment_records.not_found(parent)
    searcher = config.searcher
    if isinstance(searcher, Elsewhere):
        return
    trial, uuid = searcher.source_trial_id, searcher.source_checkpoint_uuid
    if trial is not None:
        has_one = EXPERIMENTS.c.id.in_(
            select(TRIALS.c.experiment_id).where(TRIALS.c.id == trial, TRIALS.c.latest_checkpoint.is_not(None))
        )
        told = f"config: searcher.source_trial_id: trial {trial} has no checkpoint to begin with"
        yield _workspace(connection, has_one), errors.BadRequest(told)
    if uuid is not None:
        has_it = EXPERIMENTS.c.id.in_(select(CHECKPOINTS.c.experiment_id).where(CHECKPOINTS.c.uuid == uuid))
        told = f"config: searcher.source_checkpoint_uuid: there is no checkpoint {uuid[:80]!r}"
        yield _workspace(connection, has_it), errors.BadRequest(told)


def _workspace(connection: Connection, which: ColumnElement[bool]) -> WorkspaceId | None:
    query = select(PROJECTS.c.workspace_id).join(EXPERIMENTS, EXPERIMENTS.c.project_id == PROJECTS.c.id).where(which)
    found = connection.scalar(query)
    return None if found is None else WorkspaceId(found)
