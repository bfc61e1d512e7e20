"""Files of the data directory that nobody but its owner may read."""

import contextlib
import os
import secrets
from pathlib import Path

from muster.api import errors


def make_private(directory: Path) -> None:
    """Raises Unavailable where it cannot be made."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)  # tokens, and the secrets of everybody's jobs
    except OSError as error:
        is_other = isinstance(error, FileExistsError | NotADirectoryError)
        why = "it is not a directory" if is_other else error.strerror
        raise errors.Unavailable(f"cannot keep data in {directory}: {why}; choose another place with --data") from error


def token(path: Path) -> str:
    """The secret in the file, made on first use."""
    with contextlib.suppress(FileNotFoundError):
        found = path.read_text().strip()
        if found:
            return found
    made = secrets.token_urlsafe(32)
    write_private(path, made + "\n")
    return made


def write_private(path: Path, text: str) -> None:
    """Replaces the file in one step, never readable by others in between."""
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)
