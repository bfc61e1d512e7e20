"""The registry of models."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from muster.accounts.authorizing import Authorizer, Hidden
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.service import UNCATEGORIZED
from muster.accounts.workspaces import WorkspaceFilter, Workspaces
from muster.api import errors
from muster.api.raw import JSON
from muster.experiments import model_records as records
from muster.experiments.model_records import ModelFilter, ModelOrder, Patch
from muster.experiments.models import Models
from muster.server.determined import acting, checkpoints, paging
from muster.server.determined.checkpoints import Checkpoint
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    NAME = "SORT_BY_NAME"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    CREATION_TIME = "SORT_BY_CREATION_TIME"
    LAST_UPDATED_TIME = "SORT_BY_LAST_UPDATED_TIME"
    NUM_VERSIONS = "SORT_BY_NUM_VERSIONS"
    WORKSPACE = "SORT_BY_WORKSPACE"


class SortVersionsBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    VERSION = "SORT_BY_VERSION"
    CREATION_TIME = "SORT_BY_CREATION_TIME"


_ORDERS: Final[Mapping[SortBy, ModelOrder]] = {
    SortBy.UNSPECIFIED: ModelOrder.CREATED,
    SortBy.NAME: ModelOrder.NAME,
    SortBy.DESCRIPTION: ModelOrder.DESCRIPTION,
    SortBy.CREATION_TIME: ModelOrder.CREATED,
    SortBy.LAST_UPDATED_TIME: ModelOrder.MODIFIED,
    SortBy.NUM_VERSIONS: ModelOrder.VERSIONS,
    SortBy.WORKSPACE: ModelOrder.WORKSPACE,
}


class Model(Message, frozen=True):
    id: int
    name: str
    description: str
    notes: str
    labels: Sequence[str]
    metadata: Mapping[str, JSON]
    archived: bool
    num_versions: int
    creation_time: str
    last_updated_time: str
    user_id: int
    username: str
    workspace_id: int


class ModelVersion(Message, frozen=True):
    id: int
    version: int
    model: Model
    checkpoint: Checkpoint
    name: str
    comment: str
    notes: str
    labels: Sequence[str]
    metadata: Mapping[str, JSON]
    creation_time: str
    last_updated_time: str
    user_id: int
    username: str


class ModelReply(Message, frozen=True):
    model: Model


class VersionReply(Message, frozen=True):
    model_version: ModelVersion


class GetModels(Paged, frozen=True):
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED
    name: str = ""
    description: str = ""
    labels: Sequence[str] = ()
    archived: bool | None = None
    users: Sequence[str] = ()
    user_ids: Sequence[Id] = ()
    workspace_ids: Sequence[Id] = ()
    workspace_names: Sequence[str] = ()
    id: Id = 0


class GetModelsReply(Message, frozen=True):
    models: Sequence[Model]
    pagination: Pagination


class GetLabels(Message, frozen=True):
    workspace_id: Id = 0


class GetLabelsReply(Message, frozen=True):
    labels: Sequence[str]


class ModelNamed(Message, frozen=True):
    model_name: str = ""


class _Described(Message, frozen=True):
    """What models and versions have alike. Null leaves it as it is."""

    name: str | None = None
    notes: str | None = None
    labels: Sequence[str] | None = None
    metadata: Mapping[str, JSON] | None = None


class PostModel(_Described, frozen=True):
    """Where it belongs is told by number or by name; else nowhere in particular."""

    description: str | None = None
    workspace_id: Id = 0
    workspace_name: str = ""


class PatchModel(PostModel, frozen=True):
    model_name: str = ""


class MoveModel(ModelNamed, frozen=True):
    destination_workspace_id: Id = 0


class GetVersions(Paged, frozen=True):
    model_name: str = ""
    sort_by: SortVersionsBy = SortVersionsBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED


class GetVersionsReply(Message, frozen=True):
    model: Model
    model_versions: Sequence[ModelVersion]
    pagination: Pagination


class VersionNamed(ModelNamed, frozen=True):
    model_version_num: Id = 0


class PostVersion(_Described, frozen=True):
    model_name: str = ""
    checkpoint_uuid: str = ""
    comment: str | None = None


class PatchVersion(_Described, frozen=True):
    model_name: str = ""
    model_version_num: Id = 0
    comment: str | None = None


_OfModel: TypeAlias = ModelNamed | GetVersions | PatchModel | PostVersion | PatchVersion
N = TypeVar("N", bound=_OfModel)


class _Models:
    def __init__(self, models: Models, workspaces: Workspaces, authorizer: Authorizer) -> None:
        self._models = models
        self._workspaces = workspaces
        self._authorizer = authorizer

    # Where

    async def place(self, call: Call, asked: _OfModel) -> WorkspaceId:
        found = await self._models.get(asked.model_name)
        if not await self._authorizer.allows(call.caller, Permission.VIEW_MODELS, found.workspace):
            raise Hidden(records.not_found(asked.model_name).message)
        return found.workspace

    async def new_place(self, call: Call, asked: PostModel) -> WorkspaceId:
        return await self._workspace(call, asked.workspace_id, asked.workspace_name) or WorkspaceId(UNCATEGORIZED)

    async def _workspace(self, call: Call, id: int, name: str) -> WorkspaceId | None:
        if id and name:
            raise errors.BadRequest("workspaceName: name the workspace by its number or by its name, not by both")
        if not name:
            return WorkspaceId(id) if id else None
        visible = await self._authorizer.workspaces(call.caller, Permission.VIEW_WORKSPACE)
        page = await self._workspaces.list(call.caller.user, WorkspaceFilter(exact_name=name, visible=visible))
        if not page.items:
            raise errors.NotFound(f"workspaceName: there is no workspace {name[:80]!r}")
        return page.items[0].id

    async def _moved(self, call: Call, id: int, name: str) -> WorkspaceId | None:
        """A model may go only where whoever moves it could have made it."""
        found = await self._workspace(call, id, name)
        if found is not None:
            await self._authorizer.check(call.caller, Permission.EDIT_MODELS, found)
        return found

    # Models

    async def list(self, call: Call, asked: GetModels) -> GetModelsReply:
        page = await self._models.list(
            ModelFilter(
                id=asked.id,
                name=asked.name,
                description=asked.description,
                labels=asked.labels,
                usernames=asked.users,
                users=asked.user_ids,
                workspaces=asked.workspace_ids,
                workspace_names=asked.workspace_names,
                is_archived=asked.archived,
                visible=await self._authorizer.workspaces(call.caller, Permission.VIEW_MODELS),
                order=_ORDERS[asked.sort_by],
                is_descending=asked.order_by is OrderBy.DESC,
                window=asked.window,
            )
        )
        return GetModelsReply(models=[_told(model) for model in page.items], pagination=paging.told(page, asked))

    async def labels(self, call: Call, asked: GetLabels) -> GetLabelsReply:
        visible = await self._authorizer.workspaces(call.caller, Permission.VIEW_MODELS)
        workspace = WorkspaceId(asked.workspace_id) if asked.workspace_id else None
        return GetLabelsReply(labels=await self._models.labels(visible, workspace))

    async def get(self, call: Call, asked: ModelNamed) -> ModelReply:
        return ModelReply(model=_told(await self._models.get(asked.model_name)))

    async def create(self, call: Call, asked: PostModel) -> ModelReply:
        workspace = await self.new_place(call, asked)
        return ModelReply(model=_told(await self._models.create(acting.by(call), workspace, _patch(asked))))

    async def patch(self, call: Call, asked: PatchModel) -> ModelReply:
        workspace = await self._moved(call, asked.workspace_id, asked.workspace_name)
        changed = await self._models.patch(acting.by(call), asked.model_name, _patch(asked, workspace))
        return ModelReply(model=_told(changed))

    async def move(self, call: Call, asked: MoveModel) -> Nothing:
        workspace = await self._moved(call, asked.destination_workspace_id, "")
        if workspace is None:
            raise errors.BadRequest("destinationWorkspaceId: must name a workspace")
        await self._models.patch(acting.by(call), asked.model_name, Patch(workspace=workspace))
        return Nothing()

    async def archive(self, call: Call, asked: ModelNamed) -> Nothing:
        await self._models.archive(acting.by(call), asked.model_name, is_archived=True)
        return Nothing()

    async def unarchive(self, call: Call, asked: ModelNamed) -> Nothing:
        await self._models.archive(acting.by(call), asked.model_name, is_archived=False)
        return Nothing()

    async def delete(self, call: Call, asked: ModelNamed) -> Nothing:
        await self._models.delete(acting.by(call), asked.model_name)
        return Nothing()

    # Versions

    async def versions(self, call: Call, asked: GetVersions) -> GetVersionsReply:
        model = await self._models.get(asked.model_name)
        page = await self._models.versions(
            asked.model_name,
            by_time=asked.sort_by is SortVersionsBy.CREATION_TIME,
            descending=asked.order_by is OrderBy.DESC,
            window=asked.window,
        )
        told = [await self._version(call, version) for version in page.items]
        return GetVersionsReply(model=_told(model), model_versions=told, pagination=paging.told(page, asked))

    async def version(self, call: Call, asked: VersionNamed) -> VersionReply:
        found = await self._models.version(asked.model_name, asked.model_version_num)
        return VersionReply(model_version=await self._version(call, found))

    async def add_version(self, call: Call, asked: PostVersion) -> VersionReply:
        visible = await self._authorizer.workspaces(call.caller, Permission.VIEW_EXPERIMENTS)
        wanted = _version_patch(asked)
        made = await self._models.add_version(acting.by(call), asked.model_name, asked.checkpoint_uuid, wanted, visible)
        return VersionReply(model_version=await self._version(call, made))

    async def patch_version(self, call: Call, asked: PatchVersion) -> VersionReply:
        changed = await self._models.patch_version(
            acting.by(call), asked.model_name, asked.model_version_num, _version_patch(asked)
        )
        return VersionReply(model_version=await self._version(call, changed))

    async def delete_version(self, call: Call, asked: VersionNamed) -> Nothing:
        await self._models.delete_version(acting.by(call), asked.model_name, asked.model_version_num)
        return Nothing()

    async def _version(self, call: Call, found: records.Version) -> ModelVersion:
        where = found.checkpoint.workspace
        is_open = await self._authorizer.allows(call.caller, Permission.EDIT_EXPERIMENTS, where)
        return ModelVersion(
            id=found.id,
            version=found.number,
            model=_told(found.model),
            checkpoint=checkpoints.told(found.checkpoint, is_open=is_open),
            name=found.name,
            comment=found.comment,
            notes=found.notes,
            labels=found.labels,
            metadata=found.metadata,
            creation_time=acting.time(found.created) or "",
            last_updated_time=acting.time(found.modified) or "",
            user_id=found.user,
            username=found.username,
        )


def _told(found: records.Model) -> Model:
    return Model(
        id=found.id,
        name=found.name,
        description=found.description,
        notes=found.notes,
        labels=found.labels,
        metadata=found.metadata,
        archived=found.is_archived,
        num_versions=found.version_count,
        creation_time=acting.time(found.created) or "",
        last_updated_time=acting.time(found.modified) or "",
        user_id=found.user,
        username=found.username,
        workspace_id=found.workspace,
    )


def _patch(asked: PostModel, workspace: WorkspaceId | None = None) -> Patch:
    return Patch(
        name=asked.name,
        description=asked.description,
        notes=asked.notes,
        labels=asked.labels,
        metadata=None if asked.metadata is None else dict(asked.metadata),
        workspace=workspace,
    )


def _version_patch(asked: PostVersion | PatchVersion) -> Patch:
    return Patch(
        name=asked.name,
        comment=asked.comment,
        notes=asked.notes,
        labels=asked.labels,
        metadata=None if asked.metadata is None else dict(asked.metadata),
    )


def routes(models: Models, workspaces: Workspaces, authorizer: Authorizer) -> Sequence[Route]:
    handlers, here = _Models(models, workspaces, authorizer), "/api/v1/models"
    each = f"{here}/{{modelName}}"
    one = f"{each}/versions/{{modelVersionNum}}"
    create = Rule(Permission.EDIT_MODELS, handlers.new_place)

    def view(_request: type[N]) -> Rule[N]:
        return Rule(Permission.VIEW_MODELS, handlers.place)

    def edit(_request: type[N]) -> Rule[N]:
        return Rule(Permission.EDIT_MODELS, handlers.place)

    return (
        route("GET", here, GetModels, GetModelsReply, known(), handlers.list),
        route("POST", here, PostModel, ModelReply, create, handlers.create),
        route("GET", "/api/v1/model/labels", GetLabels, GetLabelsReply, known(), handlers.labels),
        route("GET", each, ModelNamed, ModelReply, view(ModelNamed), handlers.get),
        route("PATCH", each, PatchModel, ModelReply, edit(PatchModel), handlers.patch),
        route("DELETE", each, ModelNamed, Nothing, edit(ModelNamed), handlers.delete),
        route("POST", f"{each}/archive", ModelNamed, Nothing, edit(ModelNamed), handlers.archive),
        route("POST", f"{each}/unarchive", ModelNamed, Nothing, edit(ModelNamed), handlers.unarchive),
        route("POST", f"{each}/move", MoveModel, Nothing, edit(MoveModel), handlers.move),
        route("GET", f"{each}/versions", GetVersions, GetVersionsReply, view(GetVersions), handlers.versions),
        route("POST", f"{each}/versions", PostVersion, VersionReply, edit(PostVersion), handlers.add_version),
        route("GET", one, VersionNamed, VersionReply, view(VersionNamed), handlers.version),
        route("PATCH", one, PatchVersion, VersionReply, edit(PatchVersion), handlers.patch_version),
        route("DELETE", one, VersionNamed, Nothing, edit(VersionNamed), handlers.delete_version),
    )
