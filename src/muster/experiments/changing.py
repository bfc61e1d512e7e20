"""Changes experiments that are there: their names, their place, what they may use; and lets ended ones go on."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, update

from muster.accounts import names, policies
from muster.accounts.audit import By, Deed, note
from muster.accounts.permissions import Permission
from muster.accounts.policies import Workload
from muster.accounts.projects import ProjectId
from muster.accounts.services import AccountServices
from muster.api import errors
from muster.api.raw import JSON, Document
from muster.experiments import course_records, creating, experiment_records, labels, searches
from muster.experiments.config import parsing, yaml_text
from muster.experiments.config.overriding import overridden
from muster.experiments.contract import ExperimentPatch
from muster.experiments.course_records import Kept
from muster.experiments.creating import Creator
from muster.experiments.experiment import LimitChanged
from muster.experiments.experiment_records import Experiment
from muster.experiments.registry import Conductors
from muster.experiments.states import ENDED, ExperimentId, ExperimentState
from muster.records import Database
from muster.records.tables_tasks import TASKS
from muster.runtime.clock import Clock
from muster.store.protocol import Store
from muster.tasks import priorities

_CONTINUED: Final = ("single", "random", "grid")
"""What these try does not depend on how others fared."""


@dataclass(frozen=True, slots=True)
class Services:
    database: Database
    clock: Clock
    store: Store
    accounts: AccountServices
    creator: Creator
    conductors: Conductors


class Changer:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._policy_handlers: list[Callable[[], None]] = []

    def on_policy_change(self, handler: Callable[[], None]) -> None:
        """Told when another number of checkpoints is to be kept, once that is durable. It must not raise."""
        self._policy_handlers.append(handler)

    async def get(self, experiment: ExperimentId) -> Experiment:
        """Raises NotFound."""
        return await self._services.database.read(lambda connection: experiment_records.get(connection, experiment))

    # Going on after the end

    async def continue_(self, by: By, experiment: ExperimentId, override: str) -> Experiment:
        """Raises NotFound, BadRequest, Conflict."""
        found = await self.get(experiment)
        _must_continue(found)
        wanted = overridden(found.config, yaml_text.read(override, "overrideConfig"))
        config = await self._services.creator.reconfigured(found, wanted)

        def change(connection: Connection) -> None:
            _must_continue(experiment_records.get(connection, experiment))
            before = course_records.load(connection, experiment).kept
            values = {
                **creating.columns(config),
                "state": ExperimentState.ACTIVE.value,
                "search": Kept(continued=before.continued + 1).encoded(),
                "error": "",
                "ended": None,
            }
            experiment_records.change(connection, experiment, values)
            self._note(connection, by, "experiment.continue", experiment)

        await self._services.database.write(change)
        self._services.conductors.begin(experiment)
        return await self.get(experiment)

    # Where it is

    async def archive(self, by: By, experiment: ExperimentId, *, is_archived: bool) -> None:
        """Raises NotFound, Conflict."""

        def change(connection: Connection) -> None:
            found = experiment_records.get(connection, experiment)
            if found.state not in ENDED:
                raise errors.Conflict(f"experiment {experiment} is {found.state}: only one that has ended is archived")
            experiment_records.change(connection, experiment, {"is_archived": is_archived})
            self._note(connection, by, "experiment.archive" if is_archived else "experiment.unarchive", experiment)

        await self._services.database.write(change)

    async def move(self, by: By, experiment: ExperimentId, project: ProjectId) -> None:
        """With its trials and their tasks. Raises NotFound, BadRequest, Forbidden, Conflict."""
        wanted = await self._services.accounts.projects.get(project)
        await self._services.accounts.authorizer.check(by.caller, Permission.CREATE_EXPERIMENTS, wanted.workspace)

        def change(connection: Connection) -> None:
            found = experiment_records.get(connection, experiment)
            if found.is_archived:
                raise errors.Conflict(f"experiment {experiment} is archived: unarchive it to move it")
            creating.must_take(connection, found.project)
            to = creating.must_take(connection, project)
            config = {**found.config, "workspace": to.workspace_name, "project": to.name}
            experiment_records.change(connection, experiment, {"project_id": to.id, "config": config})
            connection.execute(update(TASKS).where(TASKS.c.job_id == found.job).values(workspace_id=to.workspace))
            self._note(connection, by, "experiment.move", experiment, f"to project {to.id}")

        await self._services.database.write(change)
        self._services.conductors.refresh(experiment)

    # What it says and may

    async def patch(self, by: By, experiment: ExperimentId, wanted: ExperimentPatch) -> Experiment:
        """Raises NotFound, BadRequest."""
        _check(wanted)
        resources = _resources(wanted)
        found = await self.get(experiment)
        if resources:
            applying = await self._services.accounts.policies.applying(Workload.EXPERIMENT, found.workspace)
            policies.check_change({"resources": resources}, applying)

        def change(connection: Connection) -> None:
            before = experiment_records.get(connection, experiment)
            values = _patched(before, wanted, resources)
            experiment_records.change(connection, experiment, values)
            fields = ", ".join(sorted(name for name in values if name != "config"))
            self._note(connection, by, "experiment.change", experiment, fields)

        await self._services.database.write(change)
        if _saved(wanted):
            for handler in self._policy_handlers:
                handler()
        if wanted.priority is not None:
            await self._set_priority(experiment, wanted.priority)
        if "max_slots" in resources:
            most = searches.most_at_once(wanted.max_slots, found.slots_per_trial)
            await self._services.conductors.tell(experiment, LimitChanged(most))
        return await self.get(experiment)

    async def _set_priority(self, experiment: ExperimentId, priority: int) -> None:
        """Of what runs or waits now; what comes later reads it in the records."""
        course = self._services.conductors.course(experiment)
        for found in [] if course is None else list(course.trials.values()):
            with contextlib.suppress(errors.NotFound):
                await priorities.set_priority(self._services.store, found.task, priority)

    def _note(self, connection: Connection, by: By, action: str, experiment: ExperimentId, detail: str = "") -> None:
        note(connection, self._services.clock.now(), by, Deed(action, str(experiment), detail))


def _must_continue(found: Experiment) -> None:
    """Raises BadRequest, Conflict."""
    if found.is_unmanaged:
        raise errors.BadRequest(f"experiment {found.id} runs elsewhere: it is continued there")
    if found.searcher_type not in _CONTINUED:
        raise errors.BadRequest(
            f"experiment {found.id} searches by {found.searcher_type}, which cannot go on after its end: fork it"
        )
    if found.is_archived:
        raise errors.Conflict(f"experiment {found.id} is archived: unarchive it to continue it")
    if found.state not in ENDED:
        raise errors.Conflict(f"experiment {found.id} is {found.state}: only one that has ended can be continued")
    if found.state is ExperimentState.COMPLETED and found.searcher_type != "single":
        raise errors.Conflict(f"experiment {found.id} has tried all that it was to try: there is nothing to continue")


def _check(wanted: ExperimentPatch) -> None:
    """Raises BadRequest."""
    if wanted.name is not None:
        names.checked("name", wanted.name, longest=parsing.LONGEST_NAME)
    for field, text in (("description", wanted.description), ("notes", wanted.notes)):
        if text is not None:
            names.checked_text(field, text)
    if wanted.labels is not None:
        if len(wanted.labels) > labels.MOST:
            raise errors.BadRequest(f"labels: at most {labels.MOST}, found {len(wanted.labels)}")
        for place, label in enumerate(wanted.labels):
            names.checked(f"labels[{place}]", label, longest=labels.LONGEST)
    if wanted.priority is not None and not 1 <= wanted.priority <= 99:
        raise errors.BadRequest(f"resources.priority: must be from 1 to 99, found {wanted.priority}")
    if wanted.weight is not None and not 0 < wanted.weight <= 1e6:
        raise errors.BadRequest(f"resources.weight: must be above 0 and at most a million, found {wanted.weight}")
    if wanted.max_slots is not None and not 0 <= wanted.max_slots < 2**31:
        raise errors.BadRequest(f"resources.maxSlots: must be a number of slots, found {wanted.max_slots}")
    for field, number in _saved(wanted).items():
        if not 0 <= number < 2**31:
            raise errors.BadRequest(f"checkpointStorage.{field}: must be a number of checkpoints, found {number}")


def _saved(wanted: ExperimentPatch) -> Mapping[str, int]:
    given = {
        "save_experiment_best": wanted.save_experiment_best,
        "save_trial_best": wanted.save_trial_best,
        "save_trial_latest": wanted.save_trial_latest,
    }
    return {name: value for name, value in given.items() if value is not None}


def _resources(wanted: ExperimentPatch) -> Document:
    given: Document = {"priority": wanted.priority, "weight": wanted.weight, "max_slots": wanted.max_slots}
    found: Document = {name: value for name, value in given.items() if value is not None}
    return {**found, "max_slots": None} if wanted.is_unlimited else found


def _patched(before: Experiment, wanted: ExperimentPatch, resources: Document) -> dict[str, object]:
    """Columns, and the configuration, which says the same."""
    told: Mapping[str, JSON | None] = {
        "name": wanted.name,
        "description": wanted.description,
        "labels": None if wanted.labels is None else list(dict.fromkeys(wanted.labels)),
    }
    values: dict[str, object] = {name: value for name, value in told.items() if value is not None}
    config = {
        **before.config,
        **values,
        "resources": {**before.config.get("resources", {}), **resources},
        "checkpoint_storage": {**before.config.get("checkpoint_storage", {}), **_saved(wanted)},
    }
    if wanted.notes is not None:
        values["notes"] = wanted.notes
    if _saved(wanted):
        values["is_untidy"] = True
    return {**values, **resources, "config": config}
