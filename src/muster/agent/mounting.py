"""Shows directories at absolute paths which only one command sees, and becomes that command.

A standalone script (`python -I -S mounting.py SPEC COMMAND …`) with only the standard library: it must never import
muster. It takes a mount namespace of its own, mounts what the specification lists, and executes the command. Where the
user may not do so, it takes a user namespace as well, in which it is the same user. `python mounting.py probe DIR` ends
with 0 where all of this is permitted.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
import sys

# Not typing.TYPE_CHECKING: this stands between a pod and its start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, TypedDict

    class Mount(TypedDict):
        """`source`: empty for a file system in memory, of `bytes` at most where that is not 0."""

        source: str
        target: str
        is_read_only: bool
        bytes: int

    class Spec(TypedDict):
        mounts: list[Mount]  # whatever is below another comes after it
        cwd: str


_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
_CANNOT = 126
_NOT_FOUND = 127


class Refused(Exception):
    """What could not be done, in words."""


def enter() -> None:
    """A mount namespace of our own. What is mounted outside still appears in it; what we mount stays with us."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _CLONE_NEWNS)
    except PermissionError:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount("none", "/", "", _MS_REC | _MS_SLAVE)


def show(mount: Mount) -> None:
    """Raises Refused."""
    source, target = mount["source"], mount["target"]
    try:
        prepare(target, is_directory=not source or stat.S_ISDIR(os.stat(source).st_mode))
        if not source:
            size = f",size={mount['bytes']}" if mount["bytes"] else ""
            _mount("tmpfs", target, "tmpfs", 0, f"mode=1777{size}")
            return
        _mount(source, target, "", _MS_BIND | _MS_REC)
        if mount["is_read_only"]:
            _mount("none", target, "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _locked(target))
    except OSError as error:
        what = source or "memory"
        raise Refused(f'{what} could not be mounted at "{target}": {error.strerror}') from error


def prepare(path: str, *, is_directory: bool) -> None:
    """See to it that there is something to mount on. Where we may not make it, what is above is first covered by a
    directory of our own, that shows all that was there."""
    if os.path.lexists(path):
        return
    try:
        _make(path, is_directory)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        above = os.path.dirname(path)
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        if above == "/":
            raise
        _cover(above)
        _make(path, is_directory)


def _make(path: str, is_directory: bool) -> None:
    os.makedirs(path if is_directory else os.path.dirname(path), mode=0o755, exist_ok=True)
    if not is_directory:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _cover(path: str) -> None:
    before = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = f"/proc/self/fd/{before}"
        names = os.listdir(found)
        _mount("tmpfs", path, "tmpfs", 0, "mode=755")
        for name in names:
            inside, outside = os.path.join(path, name), os.path.join(found, name)
            mode = os.lstat(outside).st_mode
            if stat.S_ISLNK(mode):
                os.symlink(os.readlink(outside), inside)
                continue
            _make(inside, stat.S_ISDIR(mode))
            _mount(outside, inside, "", _MS_BIND | _MS_REC)
    finally:
        os.close(before)


def _locked(target: str) -> int:
    """Flags that a mount already has: in a user namespace they may not be taken away by changing it."""
    return os.statvfs(target).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _call("mount", *(text.encode() for text in (source, target, kind)), ctypes.c_ulong(flags), data.encode() or None)


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become(spec: Spec, argv: list[str]) -> NoReturn:
    try:
        enter()
        for mount in spec["mounts"]:
            show(mount)
        os.chdir(spec["cwd"])
    except Refused as error:
        _give_up(str(error), _CANNOT)
    except OSError as error:
        _give_up(f"{error.filename or 'a mount namespace'}: {error.strerror}", _CANNOT)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - running commands is the product
    except OSError as error:
        _give_up(f'exec: "{argv[0]}": {error.strerror}', _NOT_FOUND if error.errno == errno.ENOENT else _CANNOT)


def _give_up(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "probe":
        try:
            enter()
            show({"source": "", "target": sys.argv[2], "is_read_only": False, "bytes": 0})
        except (OSError, Refused):
            os._exit(1)
        os._exit(0)
    become(json.loads(sys.argv[1]), sys.argv[2:])
