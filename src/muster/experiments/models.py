"""The registry of models: named, in a workspace, with versions that are checkpoints."""

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, insert, select, update

from muster.accounts import names
from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.experiments import checkpoint_records
from muster.experiments import model_records as records
from muster.experiments.checkpoint_records import CheckpointState
from muster.experiments.model_records import Model, ModelFilter, Patch, Version
from muster.records import Database
from muster.records.paging import Page, Window, select_page
from muster.records.tables_experiments import MODEL_VERSIONS, MODELS
from muster.runtime.clock import Clock


class Models:
    """Everything raises NotFound for a model or a version that is not there."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, name: str) -> Model:
        """By its name, or by its number."""
        return await self._database.read(lambda connection: records.get(connection, name))

    async def list(self, chosen: ModelFilter) -> Page[Model]:
        return await self._database.read(lambda connection: records.listed(connection, chosen))

    async def labels(self, visible: Collection[WorkspaceId] | None, workspace: WorkspaceId | None) -> Sequence[str]:
        """All that are in use, the most used first."""

        def read(connection: Connection) -> Sequence[str]:
            query = select(MODELS.c.labels)
            if visible is not None:
                query = query.where(MODELS.c.workspace_id.in_(visible))
            if workspace is not None:
                query = query.where(MODELS.c.workspace_id == workspace)
            found = [label for labels in connection.scalars(query) for label in labels]
            return sorted(set(found), key=lambda label: (-found.count(label), label))

        return await self._database.read(read)

    async def create(self, by: By, workspace: WorkspaceId, wanted: Patch) -> Model:
        """Raises BadRequest, AlreadyExists."""
        name, now = names.checked("name", wanted.name or ""), self._clock.now()

        def change(connection: Connection) -> Model:
            records.must_take(connection, workspace)
            records.must_be_free(connection, name)
            values = {"description": "", "notes": "", "labels": [], "metadata": {}, **wanted.values(), "name": name}
            connection.execute(
                insert(MODELS).values(
                    {**values, "workspace_id": workspace, "user_id": by.caller.user, "created": now, "modified": now}
                )
            )
            note(connection, now, by, Deed("model.create", name))
            return records.get(connection, name)

        return await self._database.write(change)

    async def patch(self, by: By, name: str, wanted: Patch) -> Model:
        """Raises BadRequest, AlreadyExists, Conflict where it is archived."""
        now = self._clock.now()

        def change(connection: Connection) -> Model:
            found = records.changeable(connection, name)
            if wanted.name is not None and wanted.name != found.name:
                records.must_be_free(connection, names.checked("name", wanted.name))
            if wanted.workspace is not None:
                records.must_take(connection, wanted.workspace)
            records.change(connection, found, {**wanted.values(), "modified": now})
            note(connection, now, by, Deed("model.change", found.name, ", ".join(wanted.values())))
            return records.get(connection, str(found.id))

        return await self._database.write(change)

    async def archive(self, by: By, name: str, *, is_archived: bool) -> None:
        now = self._clock.now()

        def change(connection: Connection) -> None:
            found = records.get(connection, name)
            records.change(connection, found, {"is_archived": is_archived, "modified": now})
            note(connection, now, by, Deed("model.archive" if is_archived else "model.unarchive", found.name))

        await self._database.write(change)

    async def delete(self, by: By, name: str) -> None:
        """Its checkpoints stay."""
        now = self._clock.now()

        def change(connection: Connection) -> None:
            found = records.get(connection, name)
            connection.execute(delete(MODELS).where(MODELS.c.id == found.id))
            note(connection, now, by, Deed("model.delete", found.name))

        await self._database.write(change)

    # Versions

    async def version(self, name: str, number: int) -> Version:
        def read(connection: Connection) -> Version:
            return records.version(connection, records.get(connection, name), number)

        return await self._database.read(read)

    async def versions(self, name: str, *, by_time: bool, descending: bool, window: Window) -> Page[Version]:
        def read(connection: Connection) -> Page[Version]:
            model = records.get(connection, name)
            columns = (MODEL_VERSIONS.c.created if by_time else MODEL_VERSIONS.c.version, MODEL_VERSIONS.c.id)
            ordered = [column.desc() for column in columns] if descending else columns
            query = records.versions().where(MODEL_VERSIONS.c.model_id == model.id).order_by(*ordered)
            page = select_page(connection, query, window)
            return Page(
                tuple(records.told_version(connection, model, row) for row in page.items), page.start, page.total
            )

        return await self._database.read(read)

    async def add_version(
        self, by: By, name: str, checkpoint: str, wanted: Patch, visible: Collection[WorkspaceId] | None = None
    ) -> Version:
        """`visible`: the workspaces whose checkpoints may be seen; None for all. Raises BadRequest, Conflict where the
        model is archived or the checkpoint is not whole."""
        now = self._clock.now()

        def change(connection: Connection) -> Version:
            model = records.changeable(connection, name)
            found = checkpoint_records.get(connection, checkpoint)
            if visible is not None and found.workspace not in visible:
                raise checkpoint_records.not_found(checkpoint)
            if found.state is not CheckpointState.COMPLETED:
                raise errors.Conflict(f"checkpointUuid: checkpoint {found.uuid} is {found.state.value}, not COMPLETED")
            # Counted with the model: the number of a version that was deleted is not given again.
            latest = update(MODELS).where(MODELS.c.id == model.id).returning(MODELS.c.latest_version)
            number = connection.scalar(latest.values(latest_version=MODELS.c.latest_version + 1, modified=now)) or 0
            values = {"name": "", "comment": "", "notes": "", "labels": [], "metadata": {}, **wanted.values()}
            fixed = {
                "model_id": model.id,
                "version": number,
                "checkpoint_uuid": found.uuid,
                "user_id": by.caller.user,
                "created": now,
                "modified": now,
            }
            connection.execute(insert(MODEL_VERSIONS).values({**values, **fixed}))
            note(connection, now, by, Deed("model.version.create", f"{model.name} {number}", found.uuid))
            return records.version(connection, records.get(connection, name), number)

        return await self._database.write(change)

    async def patch_version(self, by: By, name: str, number: int, wanted: Patch) -> Version:
        """Raises BadRequest, Conflict."""
        now = self._clock.now()

        def change(connection: Connection) -> Version:
            model = records.changeable(connection, name)
            found = records.version(connection, model, number)
            row = update(MODEL_VERSIONS).where(MODEL_VERSIONS.c.id == found.id)
            connection.execute(row.values({**wanted.values(), "modified": now}))
            note(connection, now, by, Deed("model.version.change", f"{model.name} {number}"))
            return records.version(connection, model, number)

        return await self._database.write(change)

    async def delete_version(self, by: By, name: str, number: int) -> None:
        """Its checkpoint stays."""
        now = self._clock.now()

        def change(connection: Connection) -> None:
            model = records.changeable(connection, name)
            found = records.version(connection, model, number)
            connection.execute(delete(MODEL_VERSIONS).where(MODEL_VERSIONS.c.id == found.id))
            note(connection, now, by, Deed("model.version.delete", f"{model.name} {number}"))

        await self._database.write(change)
