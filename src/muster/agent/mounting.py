"""A view of the file system that only one process and its children have.

Keepers load this beside themselves (see `agent.keeper`), so it has only the standard library and must never import
muster. It is a script as well: `python mounting.py probe DIR` ends with 0 where the machine permits all of this, and
`python mounting.py join PID CWD USER COMMAND …` executes a command in the view of a process that has one.

Nothing is made on the machine itself. Where a mount point does not exist, the directory that should have it is covered
by one in memory that shows all that was there, each entry mounted from where it was. What is written beside those
entries goes with the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import stat
import sys

# Not typing.TYPE_CHECKING: every keeper carries the memory of what the launcher has imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn, TypedDict

    class Mount(TypedDict):
        """`source`: empty for a file system in memory, of `bytes` at most where that is not 0."""

        source: str
        target: str
        is_read_only: bool
        bytes: int

    class User(TypedDict):
        uid: int
        gid: int
        groups: list[int]


_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_UNBINDABLE, _MS_SLAVE = 1, 32, 4096, 16384, 1 << 17, 1 << 19
_MNT_DETACH = 2
_STAGE = "/tmp"  # noqa: S108 - nothing is put there: a new root is put together on top of it
_CANNOT, _NOT_FOUND = 126, 127
_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """What could not be done, in words."""


def enter() -> None:
    """A mount namespace of our own; where the user may not have one, in a user namespace in which he is who he was.
    What is mounted outside still appears in it, what we mount stays with us. Raises Refused."""
    user, group = os.geteuid(), os.getegid()
    try:
        try:
            _call("unshare", _CLONE_NEWNS)
        except PermissionError:
            _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
            maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
            for name, text in maps:
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        _mount("none", "/", "", _MS_REC | _MS_SLAVE)
    except OSError as error:
        raise Refused(f"a mount namespace: {error.strerror}") from error


def show(mounts: list[Mount]) -> None:
    """Whatever is below another comes after it. Raises Refused."""
    targets = [os.path.realpath(mount["target"]) for mount in mounts]
    covers: set[int] = set()
    for mount, target in zip(mounts, targets, strict=True):
        if not _is_inner(target, targets):
            with _telling(mount):
                _reserve(target, covers, is_directory=os.path.isdir(mount["source"] or "/"))
    # By descriptor from here on: a mount may hide where the others come from. No earlier: a new root has new mounts.
    sources = []
    for mount in mounts:
        with _telling(mount):
            sources.append(os.open(mount["source"] or "/", os.O_PATH | os.O_CLOEXEC))
    for mount, target, source in zip(mounts, targets, sources, strict=True):
        with _telling(mount):
            if _is_inner(target, targets):
                _make_inside(target, covers, is_directory=stat.S_ISDIR(os.fstat(source).st_mode))
            _put(mount, target, f"/proc/self/fd/{source}")
        os.close(source)


@contextlib.contextmanager
def _telling(mount: Mount) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = mount["source"] or "memory"
        raise Refused(f'{what} could not be mounted at "{mount["target"]}": {error.strerror}') from error


def _is_inner(target: str, targets: list[str]) -> bool:
    return any(target.startswith(f"{other}/") for other in targets)


def _put(mount: Mount, target: str, source: str) -> None:
    if not mount["source"]:
        size = f",size={mount['bytes']}" if mount["bytes"] else ""
        _mount("tmpfs", target, "tmpfs", 0, f"mode=1777{size}")
        return
    _mount(source, target, "", _MS_BIND | _MS_REC)
    if mount["is_read_only"]:
        _mount("none", target, "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _locked(target))


def open_way(home: str, uid: int, groups: list[int]) -> None:
    """Where the user may not enter what is above `home`, all of that is covered by empty directories, which lead there
    and nowhere else. Raises Refused."""
    blocked = None
    try:
        blocked = next((place for place in _above(home) if not _may_enter(place, uid, groups)), None)
        if blocked is None:
            return
        enter()
        with _opened(home) as place:
            _mount("tmpfs", blocked, "tmpfs", 0, "mode=755")
            os.makedirs(home, mode=0o755)
            _mount(place, home, "", _MS_BIND | _MS_REC)
    except OSError as error:
        raise Refused(
            f"user {uid} may not enter {blocked or home}, nor can that be helped: {error.strerror}"
        ) from error


def _above(path: str) -> list[str]:
    """From the root down."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts))]


def _may_enter(directory: str, uid: int, groups: list[int]) -> bool:
    found = os.stat(directory)
    if uid in (0, found.st_uid):
        return uid == 0 or bool(found.st_mode & stat.S_IXUSR)
    return bool(found.st_mode & (stat.S_IXGRP if found.st_gid in groups else stat.S_IXOTH))


def become(user: User) -> None:
    """For good. Raises OSError."""
    os.get_exec_path()  # it imports what it needs: later the user may have no way to our interpreter's files
    os.setgroups(user["groups"])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])


# Mount points


def _reserve(path: str, covers: set[int], *, is_directory: bool) -> None:
    """See to it that there is something to mount on. `covers`: devices of the directories that are ours."""
    if os.path.exists(path):
        return
    above = os.path.dirname(path)
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    if os.stat(above).st_dev not in covers:
        covers.add(_cover(above))
    _make(path, is_directory)


def _make_inside(path: str, covers: set[int], *, is_directory: bool) -> None:
    """The same below what was mounted already: it is the pod's own, and so is what is made there."""
    if os.path.exists(path):
        return
    try:
        _make(path, is_directory)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        _reserve(path, covers, is_directory=is_directory)


def _make(path: str | bytes, is_directory: bool) -> None:
    os.makedirs(path if is_directory else os.path.dirname(path), mode=0o755, exist_ok=True)
    if not is_directory:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _cover(path: str) -> int:
    """Puts a directory of ours in its place. Returns the device that it is."""
    if path == "/":
        _cover_root()
    else:
        with _opened(path) as before:
            entries = _entries(before)
            _lay(path, os.stat(path))
            for entry in entries:
                _show_entry(entry, entry.path, path)
    return os.stat(path).st_dev


def _cover_root() -> None:
    """Nothing can be mounted in its place: another root is put together elsewhere, and we move there."""
    entries = _entries(b"/")
    with _opened(_STAGE) as under:
        _lay(_STAGE, os.stat("/"))
        _mount("none", _STAGE, "", _MS_UNBINDABLE)  # else it would be part of what it shows
        for entry in entries:
            _show_entry(entry, under if entry.path == os.fsencode(_STAGE) else entry.path, _STAGE)
    _become_root(_STAGE)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[bytes]:
    """A name that it keeps when something is mounted over it."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}".encode()
    finally:
        os.close(fd)


def _entries(directory: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except PermissionError:
        return []  # whoever may not look there misses nothing


def _lay(path: str, like: os.stat_result) -> None:
    _mount("tmpfs", path, "tmpfs", 0, f"mode={stat.S_IMODE(like.st_mode):o}")
    with contextlib.suppress(OSError):  # in a user namespace there may be no such user
        os.chown(path, like.st_uid, like.st_gid)


def _show_entry(entry: os.DirEntry[bytes], source: bytes, place: str) -> None:
    inside = os.fsencode(place) + b"/" + entry.name
    with contextlib.suppress(FileNotFoundError):  # it has gone meanwhile
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), inside)
            return
        if entry.is_dir(follow_symlinks=False):
            os.mkdir(inside, 0o755)
        else:
            os.close(os.open(inside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        _mount(source, inside, "", _MS_BIND | _MS_REC)


def _become_root(place: str) -> None:
    """Not chroot, which would not let the command have user namespaces of its own."""
    old = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(place)
        _call("pivot_root", b".", b".")
        os.fchdir(old)
        _call("umount2", b".", _MNT_DETACH)
    finally:
        os.close(old)
    os.chdir("/")


def _locked(target: str) -> int:
    """Flags that a mount already has: in a user namespace they may not be taken away by changing it."""
    return os.statvfs(target).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)


def _mount(source: str | bytes, target: str | bytes, kind: str, flags: int, data: str = "") -> None:
    texts = (os.fsencode(source), os.fsencode(target), kind.encode())
    _call("mount", *texts, ctypes.c_ulong(flags), data.encode() or None)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# The script


def _probe(directory: str) -> NoReturn:
    """A mount point that is there, and one that only a new root can have."""
    nowhere = f"/muster-{os.getpid()}"
    try:
        enter()
        show([{"source": "", "target": path, "is_read_only": False, "bytes": 0} for path in (directory, nowhere)])
    except (OSError, Refused):
        os._exit(1)
    os._exit(0)


def _join(pid: str, cwd: str, user: str, argv: list[str]) -> NoReturn:
    """`user`: as JSON; empty for ourselves."""
    try:
        for name in ("user", "mnt"):
            if not os.path.samefile(f"/proc/{pid}/ns/{name}", f"/proc/self/ns/{name}"):
                fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
                _call("setns", fd, 0)
        if user:
            become(json.loads(user))
        os.chdir(cwd)
    except OSError as error:
        _give_up(f"{error.filename or 'the view of process ' + pid}: {error.strerror}", _CANNOT)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - running commands is the product
    except OSError as error:
        _give_up(f"{argv[0]}: {error.strerror}", _NOT_FOUND if error.errno == errno.ENOENT else _CANNOT)


def _give_up(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "probe":
        _probe(sys.argv[2])
    _join(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
