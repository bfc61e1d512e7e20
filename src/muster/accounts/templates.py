"""Templates: named pieces of configuration that belong to a workspace and that submissions can start from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from muster.accounts import names, workspaces
from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.api.raw import JSON, Document
from muster.records import Database
from muster.records.paging import WHOLE, Page, Window, select_page
from muster.records.tables_accounts import TEMPLATES
from muster.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    workspace: WorkspaceId
    config: Document


@dataclass(frozen=True, slots=True)
class TemplateFilter:
    """`name`: a part of it, in any case. `visible`: the workspaces that may be seen; None for all."""

    name: str = ""
    workspaces: Sequence[int] = ()
    visible: Collection[WorkspaceId] | None = None


class Templates:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, name: str) -> Template:
        """Raises NotFound."""
        return await self._database.read(lambda connection: get(connection, name))

    async def list(self, chosen: TemplateFilter, *, descending: bool = False, window: Window = WHOLE) -> Page[Template]:
        """By name."""

        def read(connection: Connection) -> Page[Template]:
            query = select(TEMPLATES)
            if chosen.name:
                query = query.where(TEMPLATES.c.name.icontains(chosen.name, autoescape=True))
            if chosen.workspaces:
                query = query.where(TEMPLATES.c.workspace_id.in_(chosen.workspaces))
            if chosen.visible is not None:
                query = query.where(TEMPLATES.c.workspace_id.in_(chosen.visible))
            lower = func.lower(TEMPLATES.c.name)
            ordered = (lower.desc(), TEMPLATES.c.name.desc()) if descending else (lower, TEMPLATES.c.name)
            page = select_page(connection, query.order_by(*ordered), window)
            return Page(tuple(map(_template, page.items)), page.start, page.total)

        return await self._database.read(read)

    async def create(self, by: By, wanted: Template, *, instead: bool = False) -> Template:
        """`instead`: of one of that name in that workspace. Raises AlreadyExists, NotFound."""

        def change(connection: Connection) -> Template:
            name = names.checked("name", wanted.name)
            workspaces.get(connection, wanted.workspace)
            place = connection.scalar(select(TEMPLATES.c.workspace_id).where(TEMPLATES.c.name == name))
            if place is None:
                values = {"name": name, "workspace_id": wanted.workspace, "config": wanted.config}
                connection.execute(insert(TEMPLATES).values(values))
            elif instead and place == wanted.workspace:
                connection.execute(update(TEMPLATES).where(TEMPLATES.c.name == name).values(config=wanted.config))
            else:
                raise taken(name)
            note(connection, self._clock.now(), by, Deed("template.create", name))
            return get(connection, name)

        return await self._database.write(change)

    async def set_config(self, by: By, name: str, config: Mapping[str, JSON]) -> Template:
        """Raises NotFound."""

        def change(connection: Connection) -> Template:
            get(connection, name)
            connection.execute(update(TEMPLATES).where(TEMPLATES.c.name == name).values(config=dict(config)))
            note(connection, self._clock.now(), by, Deed("template.change", name))
            return get(connection, name)

        return await self._database.write(change)

    async def rename(self, by: By, name: str, to: str) -> Template:
        """Raises NotFound, AlreadyExists."""

        def change(connection: Connection) -> Template:
            get(connection, name)
            wanted = names.checked("newName", to)
            if wanted != name and connection.scalar(select(TEMPLATES.c.name).where(TEMPLATES.c.name == wanted)):
                raise errors.AlreadyExists(f"newName: there is a template {wanted!r} already")
            connection.execute(update(TEMPLATES).where(TEMPLATES.c.name == name).values(name=wanted))
            note(connection, self._clock.now(), by, Deed("template.rename", name, f"to {wanted}"))
            return get(connection, wanted)

        return await self._database.write(change)

    async def delete(self, by: By, name: str) -> None:
        """Raises NotFound."""

        def change(connection: Connection) -> None:
            get(connection, name)
            connection.execute(delete(TEMPLATES).where(TEMPLATES.c.name == name))
            note(connection, self._clock.now(), by, Deed("template.delete", name))

        await self._database.write(change)


def get(connection: Connection, name: str) -> Template:
    """Raises NotFound."""
    row = connection.execute(select(TEMPLATES).where(TEMPLATES.c.name == name)).one_or_none()
    if row is None:
        raise not_found(name)
    return _template(row)


def not_found(name: str) -> errors.NotFound:
    return errors.NotFound(f"template {name[: names.LONGEST]!r} not found")


def taken(name: str) -> errors.AlreadyExists:
    """Names are the cluster's: that one is taken shows also who may not see by what."""
    return errors.AlreadyExists(f"name: there is a template {name!r} already")


def _template(row: Row[tuple[object, ...]]) -> Template:
    return Template(row.name, WorkspaceId(row.workspace_id), row.config)
