"""What routes about commands, notebooks, shells and TensorBoards have in common."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, TypeVar

import msgspec

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.service import UNCATEGORIZED
from muster.accounts.services import AccountServices
from muster.api import errors
from muster.api.raw import JSON, Document
from muster.engines.protocol import Caveat, ResourceState
from muster.records.paging import Page
from muster.server.determined import acting, paging
from muster.server.determined.allocations import TaskState, told_phase
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message
from muster.tasks.allocating import AllocationService
from muster.tasks.commands import Tasks
from muster.tasks.contexts import File
from muster.tasks.submitting import Submission, Submitted
from muster.tasks.task_config import TaskConfig, TaskType
from muster.tasks.task_records import Order, Task, TaskFilter

T = TypeVar("T", bound="TaskMessage")


class FileMessage(Message, frozen=True):
    """`content`: in base64."""

    path: str = ""
    type: int = 48
    content: str = ""
    mtime: int = 0
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


class Launch(Message, frozen=True):
    """`b64_tgz`: a whole context directory as one tar.gz in base64, instead of `files`. `data` is what older clients
    send, and means nothing."""

    config: Mapping[str, JSON] = {}
    template_name: str = ""
    files: Sequence[FileMessage] = ()
    b64_tgz: str = ""
    workspace_id: Id = 0
    data: str = ""


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    ID = "SORT_BY_ID"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    START_TIME = "SORT_BY_START_TIME"
    WORKSPACE_ID = "SORT_BY_WORKSPACE_ID"


_ORDERS: Final[Mapping[SortBy, Order]] = {
    SortBy.UNSPECIFIED: Order.STARTED,
    SortBy.ID: Order.ID,
    SortBy.DESCRIPTION: Order.DESCRIPTION,
    SortBy.START_TIME: Order.STARTED,
    SortBy.WORKSPACE_ID: Order.WORKSPACE,
}


class GetTasks(Paged, frozen=True):
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED
    users: Sequence[str] = ()
    user_ids: Sequence[Id] = ()
    workspace_id: Id = 0


class ContainerState(StrEnum):
    UNSPECIFIED = "STATE_UNSPECIFIED"
    ASSIGNED = "STATE_ASSIGNED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"
    TERMINATED = "STATE_TERMINATED"


class Container(Message, frozen=True):
    """`parent`: the node."""

    id: str
    parent: str
    state: ContainerState
    devices: Sequence[JSON] = ()
    permission_denied: bool = False


class TaskMessage(Message, frozen=True):
    id: str
    description: str
    state: TaskState
    start_time: str
    container: Container | None
    display_name: str
    user_id: int
    username: str
    resource_pool: str
    exit_status: str
    job_id: str
    workspace_id: int


Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Interactive:
    """Of one kind."""

    def __init__(self, kind: TaskType, tasks: Tasks, allocations: AllocationService, accounts: AccountServices) -> None:
        self.kind = kind
        self.tasks = tasks
        self._allocations = allocations
        self._accounts = accounts

    async def place(self, call: Call, task: str) -> WorkspaceId:
        """Which workspace it is in. Raises NotFound, also where it may not be seen."""
        return (await self.tasks.visible(call.caller, task, [self.kind])).workspace

    async def wanted_place(self, call: Call, asked: Launch) -> WorkspaceId:
        return WorkspaceId(asked.workspace_id or UNCATEGORIZED)

    async def list(self, call: Call, asked: GetTasks) -> Page[Task]:
        chosen = TaskFilter(
            types=[self.kind.value],
            usernames=asked.users,
            users=asked.user_ids,
            workspace=asked.workspace_id,
            order=_ORDERS[asked.sort_by],
            is_descending=asked.order_by is OrderBy.DESC,
            window=asked.window,
        )
        return await self.tasks.list(call.caller, chosen)

    def submission(self, asked: Launch) -> Submission:
        return Submission(
            kind=self.kind,
            workspace=WorkspaceId(asked.workspace_id or UNCATEGORIZED),
            config=asked.config,
            template=asked.template_name,
            files=files(asked.files),
            archive=archive(asked.b64_tgz),
        )

    async def launch(self, call: Call, wanted: Submission) -> Submitted:
        return await self.tasks.submit(acting.by(call), wanted)

    async def preview(self, call: Call, wanted: Submission) -> TaskConfig:
        return await self.tasks.submitter.configure(acting.by(call), wanted)

    async def get(self, task: str) -> Task:
        return await self.tasks.get(task, [self.kind])

    async def kill(self, call: Call, task: str) -> Task:
        await self.tasks.kill(acting.by(call), await self.get(task))
        return await self.get(task)

    async def set_priority(self, task: str, priority: int) -> Task:
        await self.tasks.set_priority(await self.get(task), priority)
        return await self.get(task)

    async def may_use(self, call: Call, task: Task) -> bool:
        """Whether they may do with it what its own user may."""
        if call.caller.user == task.user:
            return True
        return await self._accounts.authorizer.allows(call.caller, Permission.EDIT_TASKS, task.workspace)

    def told(self, message: type[T], task: Task, **more: JSON) -> T:
        run = task.allocation
        state = TaskState.QUEUED if run is None else told_phase(run.phase)
        fields: Document = {
            "id": task.id,
            "description": task.description,
            "state": TaskState.TERMINATED if task.ended is not None else state,
            "start_time": acting.time(task.created) or "",
            "container": self._container(task),
            "display_name": task.display_name,
            "user_id": task.user,
            "username": task.username,
            "resource_pool": "" if run is None else run.pool,
            "exit_status": "" if run is None else run.exit_reason,
            "job_id": task.job,
            "workspace_id": task.workspace,
        }
        return message(**fields, **more)

    def _container(self, task: Task) -> Container | None:
        run = task.allocation
        live = None if run is None else self._allocations.state(run.id)
        if live is None or not live.parts:
            return None
        chief = live.parts[0].resource
        known = {state.value: ContainerState[state.value] for state in ResourceState}
        return Container(id=chief.id, parent=chief.node, state=known.get(chief.state.value, ContainerState.UNSPECIFIED))


def files(sent: Sequence[FileMessage]) -> list[File]:
    return [File(file.path, file.type, file.content, file.mode, file.mtime) for file in sent]


def archive(text: str) -> bytes:
    """Raises BadRequest."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.BadRequest(f"b64Tgz: is not base64: {error}") from error


def pagination(page: Page[Task], asked: Paged) -> Pagination:
    return paging.told(page, asked)


def warnings(caveats: Sequence[Caveat]) -> list[str]:
    return [caveat.value for caveat in caveats]
