"""A pod's directory on disk: what is read back from it, and how it goes.

Names are relative, so that it can be copied: `pod.json`, `devices.json`, `containers/<name>/<attempt>.*`, `volumes/`,
`work/`, `tmp/`, `hosts`, `etc-hosts`.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from muster.agent.devices import Grant
from muster.api import core
from muster.api.objects import Object

MESSAGE_BYTES = 4096
_decode_grant = msgspec.json.Decoder(Grant).decode


def started_attempts(directory: Path) -> list[int]:
    """Numbers of the attempts that were ever started in a container's directory, in order."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    suffix = ".state.json"
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def saved_object(home: Path) -> Object | None:
    """The pod whose directory this is, as it was last seen; None where it cannot be known."""
    try:
        return Object(core.POD, (home / "pod.json").read_bytes())
    except (OSError, ValueError):
        return None


def save_grant(home: Path, grant: Grant) -> None:
    write_whole(home / "devices.json", msgspec.json.encode(grant))


def saved_grant(home: Path) -> Grant | None:
    """What the pod held; None where that was never written down whole."""
    try:
        return _decode_grant((home / "devices.json").read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def prune(directory: Path, number: int) -> None:
    """Remove what attempts before `number` left in a container's directory: a crash loop must not fill the disk."""
    for name in os.listdir(directory):
        attempt = name.partition(".")[0]
        if attempt.isdecimal() and int(attempt) < number:
            path = directory / name
            if path.is_dir() and not path.is_symlink():  # of the container's own making, where its message belongs
                erase(path)
            else:
                path.unlink(missing_ok=True)


def erase(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    if home.exists():
        # Its processes may have locked directories even against their owner.
        with contextlib.suppress(OSError):
            _unlock(home)
        shutil.rmtree(home, ignore_errors=True)


def _unlock(home: Path) -> None:
    os.chmod(home, 0o700)
    for directory, names, _ in os.walk(home):
        for path in (os.path.join(directory, name) for name in names):
            if not os.path.islink(path):
                os.chmod(path, 0o700)


def erase_all(homes: Iterable[Path]) -> None:
    for home in homes:
        erase(home)


def read_message(path: Path) -> str:
    """The end of what a container left there. It may have left anything: a pipe must not hold us up."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        found = os.fstat(fd)
        is_file = stat.S_ISREG(found.st_mode)
        content = os.pread(fd, MESSAGE_BYTES, max(0, found.st_size - MESSAGE_BYTES)) if is_file else b""
    finally:
        os.close(fd)
    return content.decode(errors="replace")


def write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def write_in_place(path: Path, content: bytes) -> None:
    """For a file that is mounted by itself: whoever has it would not see another that took its name."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(fd, content, 0)
        os.ftruncate(fd, len(content))
    finally:
        os.close(fd)
