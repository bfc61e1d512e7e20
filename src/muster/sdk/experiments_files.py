"""A directory of training code as it is sent along with an experiment.

What `.detignore` of the directory names is left out, in the manner of git: one pattern a line, `#` for remarks, `!`
for what is taken all the same. Nor are the traces of tools sent.
"""

import base64
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from muster.api import errors
from muster.api.raw import Document
from muster.tasks.glue.storages import matching

MOST_BYTES: Final = 95 * 1024 * 1024
IGNORE_FILE: Final = ".detignore"
_NEVER: Final = (".git", "__pycache__", ".ipynb_checkpoints", ".DS_Store")
_FILE, _DIRECTORY = 48, 53
"""The letters of tar's type field."""


def pack(directory: Path) -> list[Document]:
    """Raises BadRequest, TooLarge."""
    if not directory.is_dir():
        raise errors.BadRequest(f"{directory} is not a directory")
    rules = _rules(directory)
    packed: list[Document] = []
    total = 0
    for path in _walk(directory, "", rules):
        place = directory / path
        if not place.is_dir() and not os.access(place, os.R_OK):
            raise errors.BadRequest(f"{place} cannot be read")
        total += 0 if place.is_dir() else place.stat().st_size
        if total > MOST_BYTES:
            raise errors.TooLarge(
                f"{directory} holds more than {MOST_BYTES // 2**20} MiB; name in {directory / IGNORE_FILE} what "
                "training does not need, and keep data elsewhere"
            )
        packed.append(_packed(place, path))
    return packed


def is_ignored(path: str, rules: Sequence[str]) -> bool:
    """The last rule that speaks of it decides."""
    found = False
    for rule in rules:
        is_kept, pattern = rule.startswith("!"), rule.removeprefix("!")
        anywhere = "/" not in pattern.rstrip("/")
        if matching([path], [f"**/{pattern}" if anywhere else pattern.lstrip("/")]):
            found = not is_kept
    return found


def _rules(directory: Path) -> list[str]:
    try:
        lines = (directory / IGNORE_FILE).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _walk(root: Path, inside: str, rules: Sequence[str]) -> Iterator[str]:
    """Directories before what is in them; links to files as what they lead to. Raises BadRequest."""
    for entry in sorted(os.scandir(root / inside), key=lambda entry: entry.name):
        path = f"{inside}/{entry.name}" if inside else entry.name
        if entry.name in _NEVER or is_ignored(path, rules):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield path
            yield from _walk(root, path, rules)
        elif entry.is_file():
            yield path
        elif entry.is_symlink():
            raise errors.BadRequest(
                f"{entry.path} is a link that leads to no file; copy what is behind it, or name it in {IGNORE_FILE}"
            )


def _packed(place: Path, path: str) -> Document:
    about = place.stat()
    is_directory = place.is_dir()
    return {
        "path": path,
        "type": _DIRECTORY if is_directory else _FILE,
        "content": "" if is_directory else base64.b64encode(place.read_bytes()).decode("ascii"),
        "mode": about.st_mode & 0o777,
        "mtime": str(int(about.st_mtime)),
        "uid": 0,
        "gid": 0,
    }
