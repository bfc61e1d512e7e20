"""For nodes that cannot show a task a `/run/determined` of its own: Determined's library looks for its facts there, and
nowhere else. Python loads this before anything else, where a task's PYTHONPATH says so; it has the library look in
`$DET_RUN_DIR` as soon as that is loaded.
"""

from __future__ import annotations

import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_FILES = {
    "ClusterInfo": "cluster.json",
    "TrialInfo": "trial.json",
    "RendezvousInfo": "rendezvous.json",
    "ResourcesInfo": "resources.json",
}


class _Finder:
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if name != "determined._info":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_move(module: ModuleType) -> None:
                load(module)
                _move(module)

            spec.loader.exec_module = load_and_move  # type: ignore[method-assign]
        return spec


def _move(module: ModuleType) -> None:
    for name, file in _FILES.items():
        found = getattr(module, name)
        path = os.path.join(os.environ["DET_RUN_DIR"], "info", file)
        found._from_file.__func__.__defaults__ = (path,)
        found._to_file.__defaults__ = (path,)


if os.environ.get("DET_RUN_DIR"):
    sys.meta_path.insert(0, _Finder())
