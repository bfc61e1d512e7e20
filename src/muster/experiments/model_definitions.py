"""The files that an experiment was made with, looked into without unpacking them."""

import asyncio
import base64
import io
import mimetypes
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from muster.api import errors
from muster.api.meta import Instant
from muster.experiments import task_names
from muster.experiments.states import ExperimentId
from muster.tasks.contexts import Contexts


@dataclass(slots=True)
class Node:
    """A file, or a directory with what is in it."""

    path: str
    is_directory: bool
    size: int = 0
    modified: Instant | None = None
    type: str = ""
    children: "list[Node]" = field(default_factory=list)

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


class ModelDefinitions:
    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts

    async def archive(self, experiment: ExperimentId) -> bytes:
        """A tar.gz; empty where there are no files."""
        return await self._contexts.get(task_names.context(experiment))

    async def tree(self, experiment: ExperimentId) -> Sequence[Node]:
        archive = await self.archive(experiment)
        return await asyncio.to_thread(tree, archive) if archive else ()

    async def file(self, experiment: ExperimentId, path: str) -> str:
        """In base64. Raises NotFound."""
        archive = await self.archive(experiment)
        found = await asyncio.to_thread(content, archive, path) if archive else None
        if found is None:
            raise errors.NotFound(f"experiment {experiment} has no file {path[:200]!r}")
        return base64.b64encode(found).decode()


def tree(archive: bytes) -> Sequence[Node]:
    """Directories that nobody sent by themselves are there, too; in each, what is in it is by name."""
    root = Node("", is_directory=True)
    known = {PurePosixPath("."): root}

    def at(path: PurePosixPath) -> Node:
        if path not in known:
            known[path] = Node(str(path), is_directory=True)
            at(path.parent).children.append(known[path])
        return known[path]

    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        for member in opened:
            node = at(PurePosixPath(member.name))
            node.is_directory, node.modified = member.isdir(), Instant(float(member.mtime))
            if not node.is_directory:
                node.size, node.type = member.size, mimetypes.guess_type(member.name)[0] or "text/plain"
    for node in known.values():
        node.children.sort(key=lambda child: child.name)
    return root.children


def content(archive: bytes, path: str) -> bytes | None:
    """None where there is no such file."""
    wanted = PurePosixPath(path)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        for member in opened:
            if PurePosixPath(member.name) == wanted and member.isreg():
                found = opened.extractfile(member)
                assert found is not None
                return found.read()
    return None
