"""Removes checkpoints, or some of their files, where they are kept, and tells the server what is left."""

from __future__ import annotations

import contextlib
import json
import sys

from .calls import Master
from .storages import SHARED_PATH, StorageError, opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_TOLD = 200
"""At once: what was told is not removed again after a crash."""
_TERMINATION_LOG = "/dev/termination-log"
"""On nodes that are not ours."""


def main(environ: Mapping[str, str]) -> int:
    """The exit code. Raises Refused, Unreachable."""
    wanted = json.loads(environ["DET_REMOVAL"])
    master = Master(environ)
    try:
        storage = opened(wanted["storage"], None if environ.get("MUSTER_UNMOUNTED") else SHARED_PATH)
        for directory in wanted["directories"]:
            storage.delete(directory)
            _say(f"removed {directory}")
        uuids = wanted["uuids"]
        for start in range(0, len(uuids), _MOST_TOLD):
            left = {uuid: storage.delete(uuid, wanted["globs"]) for uuid in uuids[start : start + _MOST_TOLD]}
            _tell(master, left)
    except StorageError as error:
        sys.stderr.write(f"ERROR: {error}\n")
        _leave_word(environ, str(error))
        return 1
    return 0


def _leave_word(environ: Mapping[str, str], text: str) -> None:
    """Where the node looks for it: it becomes the reason that whoever waits for us is told."""
    with contextlib.suppress(OSError), open(environ.get("MUSTER_TERMINATION_LOG") or _TERMINATION_LOG, "w") as file:
        file.write(text)


def _tell(master: Master, left: dict[str, dict[str, int]]) -> None:
    told = [
        {"uuid": uuid, "resources": {"resources": {path: str(size) for path, size in files.items()}}}
        for uuid, files in left.items()
    ]
    master.insist("PATCH", "/api/v1/checkpoints", {"checkpoints": told})
    for uuid, files in left.items():
        _say(f"removed checkpoint {uuid}" if not files else f"{len(files)} files of checkpoint {uuid} are left")


def _say(text: str) -> None:
    sys.stdout.write(f"INFO: {text}\n")
