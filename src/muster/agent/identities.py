"""Under whom a container runs: what its security context asks for, and what belongs to it then.

Only an agent that is root can run programs as somebody else. One that is not leaves groups that are asked for alone:
all that its pods have is its own anyway. Where it should be another user, its keeper says that it cannot (see
`agent.keeper`).
"""

import os
import pwd
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from muster.agent.environment import ConfigMissing
from muster.agent.runtime import Identity
from muster.api import core

_HIGHEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine. `groups`: all that it is in."""

    name: str
    gid: int
    groups: Sequence[int]
    home: str


Accounts: TypeAlias = Callable[[int], Account | None]


@dataclass(frozen=True, slots=True)
class Agent:
    """Who the agent itself is."""

    uid: int
    gid: int

    @property
    def is_root(self) -> bool:
        return self.uid == 0


def own() -> Agent:
    return Agent(os.geteuid(), os.getegid())


def account_of(uid: int) -> Account | None:
    """None where the machine does not know the user."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return None
    return Account(found.pw_name, found.pw_gid, os.getgrouplist(found.pw_name, found.pw_gid), found.pw_dir)


def of(spec: core.PodSpec, container: core.Container, agent: Agent, accounts: Accounts = account_of) -> Identity | None:
    """None: the agent's own. What the container says goes before what its pod says. Raises ConfigMissing."""
    pod, own = spec.security_context or core.PodSecurityContext(), container.security_context or core.SecurityContext()
    user, group = _either(own.run_as_user, pod.run_as_user), _either(own.run_as_group, pod.run_as_group)
    extra = [*pod.supplemental_groups, *([] if pod.fs_group is None else [pod.fs_group])]
    for number in (user, group, *extra):
        if number is not None and not 0 <= number <= _HIGHEST:
            raise ConfigMissing(f"securityContext: {number} is no number that a user or a group can have")
    uid = agent.uid if user is None else user
    if uid == 0 and _either(own.run_as_non_root, pod.run_as_non_root):
        raise ConfigMissing("container has runAsNonRoot and would run as root: name another user in runAsUser")
    if uid == agent.uid and group in (None, agent.gid) and not (extra and agent.is_root):
        return None
    account = accounts(uid)
    gid = _usual_group(uid, agent, account) if group is None else group
    groups = tuple(dict.fromkeys([gid, *(account.groups if account is not None else ()), *extra]))
    return Identity(uid, gid, groups, *(("", "") if account is None else (account.name, account.home)))


def _either(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _usual_group(uid: int, agent: Agent, account: Account | None) -> int:
    """Of a stranger not root's, as containers have it: here that group has rights on the machine."""
    if uid == agent.uid:
        return agent.gid
    return uid if account is None else account.gid


def variables(identity: Identity, work: Path) -> Mapping[str, str]:
    """As a login would set them. Who has no home of its own is at home where it works."""
    name = identity.name or str(identity.uid)
    home = identity.home if identity.home and os.path.isdir(identity.home) else str(work.absolute())
    return {"HOME": home, "USER": name, "LOGNAME": name}


# What belongs to it


def give(identity: Identity, directories: Sequence[Path], file: Path) -> None:
    """What the agent has made for it; `file` is made here."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    for path in (*directories, file):
        os.chown(path, identity.uid, identity.gid, follow_symlinks=False)


def give_volumes(spec: core.PodSpec, paths: Mapping[str, Path], identity: Identity | None) -> None:
    """To the group that `fsGroup` names, else to who runs there. Not what is the machine's own, as of hostPath."""
    group = spec.security_context.fs_group if spec.security_context is not None else None
    for volume in spec.volumes:
        if volume.host_path is not None:
            continue
        path, is_shown = paths[volume.name], volume.empty_dir is None and volume.persistent_volume_claim is None
        if group is not None and is_shown:
            _show(path, group)
        elif group is not None:
            _share(path, group)
        elif identity is not None and not is_shown and path.stat().st_uid == os.geteuid():
            os.chown(path, identity.uid, identity.gid)


def _share(directory: Path, group: int) -> None:
    """Itself alone: what is inside was made there by its members, and may lead anywhere."""
    os.chown(directory, -1, group)
    mode = stat.S_IMODE(directory.stat().st_mode)
    os.chmod(directory, mode | stat.S_ISGID | stat.S_IRWXG)  # noqa: S103 - that is what the group is named for


def _show(directory: Path, group: int) -> None:
    """All that is inside, which only the agent writes."""
    for place, _, files in os.walk(directory):
        for path in (place, *(os.path.join(place, name) for name in files)):
            mode = stat.S_IMODE(os.stat(path).st_mode)
            os.chown(path, -1, group)
            os.chmod(path, mode | (mode & (stat.S_IRUSR | stat.S_IXUSR)) >> 3)
