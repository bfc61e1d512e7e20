"""What tables of a project can show, for web pages."""

from collections.abc import Sequence
from enum import StrEnum

from muster.accounts import projects as books
from muster.accounts.authorizing import Authorizer, Hidden
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.projects import ProjectId, Projects
from muster.experiments import project_columns
from muster.experiments.filters import ColumnType
from muster.experiments.project_columns import Location
from muster.records import Database
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Route, Rule, route


class TableType(StrEnum):
    UNSPECIFIED = "TABLE_TYPE_UNSPECIFIED"
    EXPERIMENT = "TABLE_TYPE_EXPERIMENT"
    RUN = "TABLE_TYPE_RUN"


class ProjectNamed(Message, frozen=True):
    id: Id = 0


class GetColumns(ProjectNamed, frozen=True):
    table_type: TableType = TableType.UNSPECIFIED


class Column(Message, frozen=True):
    column: str
    display_name: str
    location: Location
    type: ColumnType


class ColumnsReply(Message, frozen=True):
    columns: Sequence[Column]


class Range(Message, frozen=True):
    metrics_name: str
    min: float
    max: float


class RangesReply(Message, frozen=True):
    ranges: Sequence[Range]


class GetMetadata(Message, frozen=True):
    project_id: Id = 0
    key: str = ""


class MetadataReply(Message, frozen=True):
    values: Sequence[str]


class _Views:
    def __init__(self, projects: Projects, database: Database, authorizer: Authorizer) -> None:
        self._projects = projects
        self._database = database
        self._authorizer = authorizer

    async def place(self, call: Call, asked: ProjectNamed) -> WorkspaceId:
        return await self._place(call, asked.id)

    async def metadata_place(self, call: Call, asked: GetMetadata) -> WorkspaceId:
        return await self._place(call, asked.project_id)

    async def _place(self, call: Call, project: int) -> WorkspaceId:
        found = await self._projects.get(project)
        if not await self._authorizer.allows(call.caller, Permission.VIEW_WORKSPACE, found.workspace):
            raise Hidden(books.not_found(project).message)
        return found.workspace

    async def columns(self, call: Call, asked: GetColumns) -> ColumnsReply:
        project, is_of_runs = ProjectId(asked.id), asked.table_type is TableType.RUN
        found = await self._database.read(
            lambda connection: project_columns.columns(connection, project, is_of_runs=is_of_runs), is_long=True
        )
        columns = [
            Column(column=each.name, display_name=each.title, location=each.location, type=each.type) for each in found
        ]
        return ColumnsReply(columns=columns)

    async def ranges(self, call: Call, asked: ProjectNamed) -> RangesReply:
        project = ProjectId(asked.id)
        found = await self._database.read(
            lambda connection: project_columns.ranges(connection, project), is_long=True
        )  # fmt: skip
        return RangesReply(
            ranges=[Range(metrics_name=each.name, min=each.least, max=each.greatest) for each in found]
        )  # fmt: skip

    async def metadata(self, call: Call, asked: GetMetadata) -> MetadataReply:
        project, key = ProjectId(asked.project_id), asked.key
        found = await self._database.read(
            lambda connection: project_columns.metadata_values(connection, project, key), is_long=True
        )
        return MetadataReply(values=found)


def routes(projects: Projects, database: Database, authorizer: Authorizer) -> Sequence[Route]:
    on, each = _Views(projects, database, authorizer), "/api/v1/projects/{id}"
    columns: Rule[GetColumns] = Rule(Permission.VIEW_EXPERIMENTS, on.place)
    ranges: Rule[ProjectNamed] = Rule(Permission.VIEW_EXPERIMENTS, on.place)
    metadata: Rule[GetMetadata] = Rule(Permission.VIEW_EXPERIMENTS, on.metadata_place)
    values = "/api/v1/projects/{projectId}/metadata/{key}"
    return (
        route("GET", values, GetMetadata, MetadataReply, metadata, on.metadata),
        route("GET", f"{each}/columns", GetColumns, ColumnsReply, columns, on.columns),
        route("GET", f"{each}/experiments/metric-ranges", ProjectNamed, RangesReply, ranges, on.ranges),
    )
