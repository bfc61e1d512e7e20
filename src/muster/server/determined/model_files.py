"""The files that experiments were made with."""

import base64
from collections.abc import Sequence
from typing import TypeVar

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.experiments.model_definitions import ModelDefinitions, Node
from muster.experiments.places import Places
from muster.experiments.states import ExperimentId
from muster.server.determined import acting
from muster.server.determined.experiments import ExperimentNamed
from muster.server.determined.routing import Call, Message, Route, Rule, route


class ArchiveReply(Message, frozen=True):
    """A tar.gz in base64; empty where there are no files."""

    b64_tgz: str


class FileNode(Message, frozen=True):
    path: str
    name: str
    modified_time: str | None
    content_length: int
    is_dir: bool
    content_type: str
    files: "Sequence[FileNode]"


class TreeReply(Message, frozen=True):
    files: Sequence[FileNode]


class GetFile(ExperimentNamed, frozen=True):
    path: str = ""


class FileReply(Message, frozen=True):
    """In base64."""

    file: str


N = TypeVar("N", bound=ExperimentNamed)


class _ModelFiles:
    def __init__(self, definitions: ModelDefinitions, places: Places) -> None:
        self._definitions = definitions
        self._places = places

    async def place(self, call: Call, asked: ExperimentNamed) -> WorkspaceId:
        return await self._places.of_experiment(call.caller, asked.experiment_id)

    async def archive(self, call: Call, asked: ExperimentNamed) -> ArchiveReply:
        found = await self._definitions.archive(ExperimentId(asked.experiment_id))
        return ArchiveReply(b64_tgz=base64.b64encode(found).decode())

    async def tree(self, call: Call, asked: ExperimentNamed) -> TreeReply:
        found = await self._definitions.tree(ExperimentId(asked.experiment_id))
        return TreeReply(files=[_told(node) for node in found])

    async def file(self, call: Call, asked: GetFile) -> FileReply:
        return FileReply(file=await self._definitions.file(ExperimentId(asked.experiment_id), asked.path))


def _told(node: Node) -> FileNode:
    return FileNode(
        path=node.path,
        name=node.name,
        modified_time=acting.time(node.modified),
        content_length=node.size,
        is_dir=node.is_directory,
        content_type=node.type,
        files=[_told(child) for child in node.children],
    )


def routes(definitions: ModelDefinitions, places: Places) -> Sequence[Route]:
    on, each = _ModelFiles(definitions, places), "/api/v1/experiments/{experimentId}"

    def view(_request: type[N]) -> Rule[N]:
        return Rule(Permission.VIEW_EXPERIMENTS, on.place)

    return (
        route("GET", f"{each}/model_def", ExperimentNamed, ArchiveReply, view(ExperimentNamed), on.archive),
        route("GET", f"{each}/file_tree", ExperimentNamed, TreeReply, view(ExperimentNamed), on.tree),
        route("POST", f"{each}/file", GetFile, FileReply, view(GetFile), on.file),
    )
