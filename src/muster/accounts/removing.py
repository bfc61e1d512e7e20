"""Deleting workspaces and projects: a request marks them, and what lives there is removed in the background.

A restart goes on where it was: the mark is in the records.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from sqlalchemy import Connection, delete, select, update

from muster.accounts import projects, workspaces
from muster.accounts.audit import By, Deed, note
from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import WorkspaceId
from muster.accounts.projects import ProjectId
from muster.accounts.workspaces import State
from muster.api import errors
from muster.records import Database
from muster.records.tables_accounts import PROJECTS, WORKSPACES
from muster.runtime.clock import Clock

_log = logging.getLogger(__name__)
_AT_LEAST_EVERY: Final = 60.0
_MARK: Final = {"state": State.DELETING.value, "error_message": ""}


class Occupant(Protocol):
    """What keeps things in workspaces and projects that are more than records: tasks that run, files."""

    async def is_in(self, workspace: WorkspaceId, project: ProjectId | None) -> bool:
        """Whether there is anything to remove. `project`: only there; None for the whole workspace."""
        ...

    async def vacate(self, workspace: WorkspaceId, project: ProjectId | None) -> None:
        """Removes it all, and returns when it is gone. Done again after a restart."""
        ...


class Remover:
    def __init__(
        self, database: Database, clock: Clock, authorizer: Authorizer, occupants: Sequence[Occupant] = ()
    ) -> None:
        self._database = database
        self._clock = clock
        self._authorizer = authorizer
        self._occupants = occupants
        self._asked = asyncio.Event()

    async def delete_workspace(self, by: By, workspace: WorkspaceId) -> bool:
        """Whether it is gone already. Asked again meanwhile, it changes nothing. Raises NotFound, BadRequest."""

        def mark(connection: Connection) -> bool:
            found = workspaces.get(connection, workspace)
            if found.state is State.DELETING:
                return False
            workspaces.must_be_mutable(found)
            connection.execute(update(WORKSPACES).where(WORKSPACES.c.id == workspace).values(_MARK))
            connection.execute(update(PROJECTS).where(PROJECTS.c.workspace_id == workspace).values(_MARK))
            note(connection, self._clock.now(), by, Deed("workspace.delete", found.name))
            return not found.projects

        is_empty = await self._database.write(mark)
        if is_empty and not await self._is_occupied(workspace, None):
            await self._remove_workspace(workspace)
            return True
        self._asked.set()
        return False

    async def delete_project(self, by: By, project: ProjectId) -> bool:
        """As `delete_workspace`."""

        def mark(connection: Connection) -> WorkspaceId | None:
            found = projects.get(connection, project)
            if found.state is State.DELETING:
                return None
            projects.must_be_mutable(found)
            connection.execute(update(PROJECTS).where(PROJECTS.c.id == project).values(_MARK))
            note(connection, self._clock.now(), by, Deed("project.delete", found.name))
            return found.workspace

        workspace = await self._database.write(mark)
        if workspace is not None and not await self._is_occupied(workspace, project):
            await self._remove_project(project)
            return True
        self._asked.set()
        return False

    async def run(self) -> None:
        """For ever. Removes what is marked, also what was marked before."""
        while True:
            self._asked.clear()
            await self.remove_marked()
            try:
                async with asyncio.timeout(_AT_LEAST_EVERY):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def remove_marked(self) -> None:
        marked_projects, marked_workspaces = await self._database.read(_marked)
        for project, workspace in marked_projects:
            if workspace not in marked_workspaces:
                await self._vacate(workspace, project)
        for workspace in marked_workspaces:
            await self._vacate(workspace, None)

    async def _vacate(self, workspace: WorkspaceId, project: ProjectId | None) -> None:
        try:
            for occupant in self._occupants:
                await occupant.vacate(workspace, project)
            if project is None:
                await self._remove_workspace(workspace)
            else:
                await self._remove_project(project)
        except Exception as error:  # of an occupant: told to whoever waits, and the others go on
            what = f"workspace {workspace}" if project is None else f"project {project}"
            _log.exception("deleting %s failed", what)
            told = (
                error.message if isinstance(error, errors.ApiError) else f"{type(error).__name__}: see the server's log"
            )
            await self._database.write(lambda connection: _failed(connection, workspace, project, told))

    async def _is_occupied(self, workspace: WorkspaceId, project: ProjectId | None) -> bool:
        for occupant in self._occupants:
            if await occupant.is_in(workspace, project):
                return True
        return False

    async def _remove_workspace(self, workspace: WorkspaceId) -> None:
        await self._database.write(lambda c: c.execute(delete(WORKSPACES).where(WORKSPACES.c.id == workspace)))
        self._authorizer.forget()

    async def _remove_project(self, project: ProjectId) -> None:
        await self._database.write(lambda c: c.execute(delete(PROJECTS).where(PROJECTS.c.id == project)))


def _marked(connection: Connection) -> tuple[list[tuple[ProjectId, WorkspaceId]], list[WorkspaceId]]:
    is_project, is_workspace = PROJECTS.c.state == State.DELETING.value, WORKSPACES.c.state == State.DELETING.value
    found = connection.execute(select(PROJECTS.c.id, PROJECTS.c.workspace_id).where(is_project))
    return (
        [(ProjectId(row.id), WorkspaceId(row.workspace_id)) for row in found],
        [WorkspaceId(id) for id in connection.scalars(select(WORKSPACES.c.id).where(is_workspace))],
    )


def _failed(connection: Connection, workspace: WorkspaceId, project: ProjectId | None, why: str) -> None:
    values = {"state": State.DELETE_FAILED.value, "error_message": why}
    if project is None:
        connection.execute(update(WORKSPACES).where(WORKSPACES.c.id == workspace).values(values))
        connection.execute(update(PROJECTS).where(PROJECTS.c.workspace_id == workspace).values(values))
    else:
        connection.execute(update(PROJECTS).where(PROJECTS.c.id == project).values(values))
