"""The modules of `tasks.glue` as files for a pod, in a ConfigMap that is named after what is in it.

All tasks of one version share it; one that runs keeps the version that it was started with.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

from muster.api import core, errors
from muster.api.objects import Key
from muster.api.raw import Document
from muster.store.protocol import Create, Store, write_one

PACKAGE: Final = "det_glue"
_MAIN: Final = f"from {PACKAGE}.running import main\n\nmain()\n"
_HOOK: Final = "startup-hook.sh"
_CERTIFICATE: Final = "master.crt"
_CUSTOM: Final = "sitecustomize.py"
"""Python loads one of that name from any directory that it looks in: it has one of its own, which not all see."""
_LONGEST_HASH: Final = 16


@dataclass(frozen=True, slots=True)
class GlueFiles:
    """`name`: of the ConfigMap. `files`: by the path that each has in the pod."""

    name: str
    files: Mapping[str, str]

    def volume(self) -> Document:
        items = [{"key": _key(path), "path": path} for path in sorted(self.files)]
        return {"configMap": {"name": self.name, "items": items}}

    @property
    def certificate(self) -> str:
        """Its path in the directory; empty where there is none."""
        return _CERTIFICATE if _CERTIFICATE in self.files else ""

    async def place(self, store: Store, namespace: str) -> None:
        """So that pods of the namespace can have them."""
        key = Key(namespace, self.name)
        try:
            await store.get(core.CONFIG_MAP, key)
            return
        except errors.NotFound:
            pass
        document: Document = {
            "metadata": {"name": self.name, "namespace": namespace},
            "immutable": True,
            "data": {_key(path): text for path, text in self.files.items()},
        }
        try:
            await write_one(store, Create(core.CONFIG_MAP, document))
        except errors.AlreadyExists:
            return


def read(startup_hook: str = "", certificate: str = "") -> GlueFiles:
    """`startup_hook`: a script of the administrators' that goes before every task. `certificate`: in PEM, what tasks
    trust the server by."""
    files: dict[str, str] = {"__main__.py": _MAIN}
    for found in resources.files("muster.tasks.glue").iterdir():
        if found.name == _CUSTOM:
            files[f"unmounted/{_CUSTOM}"] = found.read_text()
        elif found.name.endswith(".py"):
            files[f"{PACKAGE}/{found.name}"] = found.read_text()
        elif found.name.endswith(".sh"):
            files[found.name] = found.read_text()
    if startup_hook:
        files[_HOOK] = startup_hook
    if certificate:
        files[_CERTIFICATE] = certificate
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path}\0{files[path]}\0".encode())
    return GlueFiles(f"determined-glue-{digest.hexdigest()[:_LONGEST_HASH]}", files)


def _key(path: str) -> str:
    """Keys of a ConfigMap have no slashes."""
    return path.replace("/", ".")
