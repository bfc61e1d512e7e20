"""What the containers of a pod are given: environment, command line, volumes, the addresses of their peers.

Volumes and the files of addresses are kept up to date while the pod runs. An environment stays as it was when the
container started.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from muster.agent import devices, directories, environment, hosts, identities, peers, ports, volumes
from muster.agent.devices import Grant
from muster.agent.environment import ConfigMissing, Facts, Sources
from muster.agent.peers import Peers, Place, Resolver
from muster.agent.ports import Ports
from muster.agent.runtime import NO_LIMITS, Attempt, Identity, Launch, Limits, Mount
from muster.agent.volumes import Shown
from muster.api import core, quantity
from muster.api.objects import Object
from muster.api.raw import Document
from muster.runtime.recording import EventType

_UNMOUNTED = (
    "volumes do not appear at their mountPath on this node, because the agent may not mount: run it as root, or permit "
    "it user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0). Until then "
    "programs find them through $MUSTER_VOLUME_<NAME>"
)


@dataclass(frozen=True, slots=True)
class Supplies:
    """What of its node a pod is given to work with."""

    host_ip: str
    base: Mapping[str, str]  # environment that every container starts from
    allocatable: Mapping[str, int]
    fetch: Callable[[core.Pod], Awaitable[Sources]]
    find_claims: Callable[[core.Pod], Awaitable[Mapping[str, Path]]]  # raises NotMounted
    resolver: Resolver
    ports: Ports
    announce: Callable[[Object, Document], Awaitable[None]]  # adds a condition to the pod
    can_mount: Callable[[], Awaitable[bool]]  # whether containers may have mounts of their own
    record: Callable[[Object, EventType, str, str], None]  # an Event about the pod


@dataclass(frozen=True, slots=True)
class Wanted:
    """One attempt of one container that is to start."""

    container: core.Container
    attempt: Attempt
    message_path: Path
    grant: Grant


class Preparation:
    """Of one pod."""

    def __init__(self, home: Path, supplies: Supplies) -> None:
        self._home = home
        self._supplies = supplies
        self._shown: dict[str, Shown] = {}
        """What each volume was last seen to hold."""
        self._hosts = ""
        self._etc_hosts = ""
        self._claims: Mapping[str, Path] | None = None
        """Where they are stays the same while the pod is there."""
        self._latest: tuple[int, Sources, Peers | None] | None = None
        """What was last shown while the pod ran."""
        self._mentions: tuple[Sources, set[str]] | None = None
        """Who is mentioned in the pod and its sources: to look for that in them once a second would be a waste."""

    async def launch(self, found: Object, wanted: Wanted) -> Launch:
        """Raises ConfigMissing, ApiError or OSError."""
        pod, container, supplies = found.read(core.Pod), wanted.container, self._supplies
        known = await self._listen(found, pod)
        sources = await supplies.fetch(pod)
        said = await self._peers(pod, sources, known, container)
        paths = await self._materialise(pod, sources, said)
        work, temporary = self._home / "work", self._home / "tmp"
        for directory in (work, temporary):
            directory.mkdir(parents=True, exist_ok=True)
        volumes.link(container, paths, work)
        identity = self._hand_over(pod, wanted, paths, (work, temporary))
        self._write_hosts(pod, said)
        can_mount = await supplies.can_mount() if self._has_mounts(container) else False
        base = {
            **supplies.base,
            "TMPDIR": str(temporary.absolute()),
            "HOSTNAME": pod.spec.hostname or found.key.name,
            "MUSTER_TERMINATION_LOG": str(wanted.message_path.absolute()),
            **devices.visibility(wanted.grant, container.name),
            **{volumes.variable(volume): str(path.absolute()) for volume, path in paths.items()},
            **({} if identity is None else identities.variables(identity, work)),
        }
        if said is not None:
            base["MUSTER_HOSTS_FILE"] = str((self._home / "hosts").absolute())
        if not can_mount and _is_mounting(container):
            base[volumes.UNMOUNTED] = "1"
            supplies.record(found, "Warning", "Unmounted", _UNMOUNTED)
        facts = Facts(pod, supplies.host_ip, supplies.allocatable)
        env = environment.variables(container, facts, said.in_sources(sources) if said is not None else sources, base)
        if said is not None:
            env = said.in_variables(env)
        argv = environment.command(container, env)
        return Launch(
            attempt=wanted.attempt,
            name=f"{found.uid}-{container.name}",
            argv=[said.in_text(word, keeps_names=can_mount) for word in argv] if said is not None else argv,
            env=env,
            cwd=work / container.working_dir if container.working_dir else work,
            limits=limits_of(container),
            mounts=self._mounts(pod, container, paths, env) if can_mount else (),
            identity=identity,
            home=self._home,
        )

    def _hand_over(
        self, pod: core.Pod, wanted: Wanted, paths: Mapping[str, Path], directories: Sequence[Path]
    ) -> Identity | None:
        """Under whom it runs; what it was given is theirs then."""
        agent = identities.own()
        identity = identities.of(pod.spec, wanted.container, agent)
        if agent.is_root:
            identities.give_volumes(pod.spec, paths, identity)
        if agent.is_root and identity is not None:
            identities.give(identity, directories, wanted.message_path)
        return identity

    async def refresh(self, found: Object) -> None:
        """Show what has changed since. What has gone meanwhile, or cannot be shown, stays as it was. Raises ApiError or
        OSError."""
        pod = found.read(core.Pod)
        sources = await self._supplies.fetch(pod)
        said = await self._peers(pod, sources, ports.read(pod.status.conditions) or {})
        latest = (found.revision, sources, said)
        if latest == self._latest:
            return
        self._write_hosts(pod, said)
        with contextlib.suppress(ConfigMissing):
            paths = await self._materialise(pod, sources, said)
            if identities.own().is_root:
                identities.give_volumes(pod.spec, paths, None)
        self._latest = latest

    async def _listen(self, found: Object, pod: core.Pod) -> Mapping[int, int]:
        """Where the pod is to listen, for its peers to read before any of them needs it."""
        wanted = peers.listened(pod)
        if not wanted:
            return {}
        before = ports.read(pod.status.conditions)
        given = self._supplies.ports.give(found.uid, sorted(wanted), before or {})
        if given != before:
            await self._supplies.announce(found, ports.announcement(given))
        return given

    async def _peers(
        self, pod: core.Pod, sources: Sources, own_ports: Mapping[int, int], starting: core.Container | None = None
    ) -> Peers | None:
        """Those that its containers hear of; None where it has none. What the one that starts cannot do without is
        waited for."""
        naming = peers.naming_of(pod)
        if naming is None:
            return None
        own = pod.spec.hostname or pod.metadata.name
        if self._mentions is None or self._mentions[0] != sources:
            hosts = peers.mentioned(naming, [*peers.texts_of(sources), *_own_texts(pod)]) - {own}
            self._mentions = (sources, hosts)
        said: set[str] = set()
        needed: set[str] = set()
        if starting is not None:
            said = peers.mentioned(naming, _own_texts(pod)) - {own}
            needed = peers.named_alone(naming, peers.literals(starting)) - {own}
        found = await self._supplies.resolver.find(pod, self._mentions[1], said, needed)
        return Peers(naming, {**found, own: Place(self._supplies.host_ip, own_ports)})

    async def _materialise(self, pod: core.Pod, sources: Sources, said: Peers | None) -> dict[str, Path]:
        if self._claims is None:
            self._claims = await self._supplies.find_claims(pod)
        shown = sources
        if said is not None:
            shown = said.in_sources(sources, keeps_names=await self._supplies.can_mount())
        facts = Facts(pod, self._supplies.host_ip, self._supplies.allocatable)
        return volumes.materialise(self._home / "volumes", facts, shown, self._shown, self._claims)

    def _has_mounts(self, container: core.Container) -> bool:
        return bool(self._etc_hosts) or _is_mounting(container)

    def _mounts(
        self, pod: core.Pod, container: core.Container, paths: Mapping[str, Path], env: Mapping[str, str]
    ) -> list[Mount]:
        found = volumes.mounts(container, pod.spec, paths, env, self._home.absolute())
        if self._etc_hosts and all(mount.target != hosts.PATH for mount in found):
            found.append(Mount(self._etc_hosts_path, hosts.PATH))
        return found

    @property
    def _etc_hosts_path(self) -> Path:
        return self._home / "etc-hosts"

    def _write_hosts(self, pod: core.Pod, said: Peers | None) -> None:
        listed = said.hosts_file() if said is not None else ""
        if listed != self._hosts:
            directories.write_whole(self._home / "hosts", listed.encode())
            self._hosts = listed
        own = hosts.lines(pod, said)
        if own:
            own += _machine_hosts()
        if own != self._etc_hosts:
            directories.write_in_place(self._etc_hosts_path, own.encode())
            self._etc_hosts = own


def _machine_hosts() -> str:
    try:
        return Path(hosts.PATH).read_text(errors="replace")
    except OSError:
        return ""


def _is_mounting(container: core.Container) -> bool:
    return any(PurePosixPath(mount.mount_path).is_absolute() for mount in container.volume_mounts)


def _own_texts(pod: core.Pod) -> Iterator[str]:
    """What stands in the pod itself."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        yield from (*peers.literals(container).values(), *container.command, *container.args)


def is_followed(spec: core.PodSpec) -> bool:
    """Whether anything that the pod was given may change while it runs."""
    return any(
        source is not None
        for volume in spec.volumes
        for source in (volume.config_map, volume.secret, volume.downward_api, volume.projected)
    )


def limits_of(container: core.Container) -> Limits:
    listed = container.resources.limits if container.resources is not None else None
    if not listed:
        return NO_LIMITS
    memory, cpu = listed.get("memory"), listed.get("cpu")
    return Limits(
        memory_bytes=quantity.parse(memory).units if memory is not None else None,
        cpu_milli=quantity.parse(cpu).milli if cpu is not None else None,
    )
