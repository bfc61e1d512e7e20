"""Names of a pod's peers for processes that share the machine's resolver.

In a container `j-worker-1.j` resolves through a headless Service, and so does `j-master-0` in a PyTorchJob. Where the
node may mount, a pod has an /etc/hosts of its own with them (see `agent.hosts`); elsewhere it has the machine's, which
is not ours to change: so there the names of a pod's peers are replaced by addresses in its command line, ConfigMaps and
Secrets; in its environment they always are, since launchers compare them with the machine's own. Peers are the pods of
its `subdomain` that begin with it, as Volcano's do, and the members of its PyTorchJob. The file `MUSTER_HOSTS_FILE` has
them all, in the format of /etc/hosts. Where a peer listens on another port than it was told (`agent.ports`), the port
after its name is replaced as well, and `X_PORT` where `X_ADDR` names it.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from muster.agent import ports
from muster.agent.environment import Sources
from muster.api import core
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.jobs.pytorch.names import JOB as PYTORCH_JOB
from muster.runtime.clock import Clock

PATIENCE_SECONDS = 15.0
"""How long a pod waits for a peer that it cannot do without: one that a variable names and nothing else. Not for ever,
because the peer may itself wait for this pod."""
MOST_NAMES = 2000
_PAUSE_SECONDS = 0.1
_KEPT_SECONDS = 2.0
_ADDRESS_ENDS = ("ADDR", "ADDRESS", "HOST")
"""Of names of variables: what such a one says is a host, although it may look like any other word."""


class Naming(NamedTuple):
    """How a pod's peers are called."""

    pattern: re.Pattern[str]
    """Groups: the host, the rest of its full name, what separates it from a port, the port."""
    domain: str
    """What follows the host where it is called by its full name; empty where it needs nothing."""


_PORT = r"(?:(:|/| |', )(\d{1,5})(?!\w))?"
"""As in URLs, for /dev/tcp, on command lines and in programs."""


def naming_of(pod: core.Pod) -> Naming | None:
    """None where the pod has no peers."""
    namespace = re.escape(pod.metadata.namespace)
    longer = rf"\.{namespace}(?:\.svc(?:\.cluster\.local)?)?"
    subdomain, job = pod.spec.subdomain, (pod.metadata.labels or {}).get(PYTORCH_JOB)
    if subdomain:
        domain = re.escape(subdomain)
        host, rest = rf"({domain}-[a-z0-9-]*[a-z0-9])", rf"(\.{domain}(?:{longer})?)"
    elif job:
        host, rest = rf"({re.escape(job)}-(?:master|worker)-\d+)", rf"({longer})?"
    else:
        return None
    return Naming(re.compile(rf"(?<![\w.-]){host}{rest}(?![\w-]|\.\w){_PORT}", re.ASCII), subdomain or "")


class Place(NamedTuple):
    """Where a peer is."""

    address: str
    ports: Mapping[int, int] = {}
    """Those that it was told to listen on, and where it does."""


_COMING = Place("")
"""Its agent is about to say where it listens."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Places by host name, as far as they are known, and how to find the names in a text."""

    naming: Naming
    places: Mapping[str, Place] = field(default_factory=dict)

    def in_text(self, text: str, *, keeps_names: bool = False) -> str:
        """`keeps_names`: they resolve where it is read, and only ports may be others."""
        return self.naming.pattern.sub(self._renumbered if keeps_names else self._replaced, text)

    def in_variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        found = {name: self.in_text(value) for name, value in variables.items()}
        for name, value in variables.items():
            match = self.naming.pattern.fullmatch(value) if is_address(name) else None
            place = self.places.get(match[1]) if match is not None else None
            if match is None or place is None or match[4]:
                continue
            found[name] = place.address
            port = f"{name.rpartition('_')[0]}_PORT"
            if _number(variables.get(port)) in place.ports:
                found[port] = str(place.ports[int(variables[port])])
        return found

    def in_sources(self, sources: Sources, *, keeps_names: bool = False) -> Sources:
        maps, secrets = (
            {name: self._in_data(data, keeps_names) for name, data in kind.items()} for kind in _kinds(sources)
        )
        return replace(sources, config_maps=maps, secrets=secrets)

    def hosts_file(self) -> str:
        lines = []
        for host, place in sorted(self.places.items()):
            full = f"{host}.{self.naming.domain} " if self.naming.domain else ""
            lines.append(f"{place.address}\t{full}{host}\n")
        return "".join(lines)

    def _in_data(self, data: Mapping[str, bytes], keeps_names: bool) -> Mapping[str, bytes]:
        return {
            key: self.in_text(_text(value), keeps_names=keeps_names).encode() if _text(value) else value
            for key, value in data.items()
        }

    def _renumbered(self, found: re.Match[str]) -> str:
        host, rest, separator, port = found.groups()
        place = self.places.get(host)
        if place is None or not port:
            return found[0]
        return f"{host}{rest or ''}{separator}{place.ports.get(int(port), port)}"

    def _replaced(self, found: re.Match[str]) -> str:
        host, rest, separator, port = found.groups()
        place = self.places.get(host)
        # A bare word is a host only where a port follows: it may as well be the name of the pod.
        if place is None or not (rest or port):
            return found[0]
        if not port:
            return place.address
        return f"{place.address}{separator}{place.ports.get(int(port), port)}"


def is_address(variable: str) -> bool:
    return variable.rpartition("_")[2] in _ADDRESS_ENDS


def mentioned(naming: Naming, texts: Iterable[str]) -> set[str]:
    return {found[1] for text in texts for found in naming.pattern.finditer(text)}


def texts_of(sources: Sources) -> Iterable[str]:
    return (_text(value) for kind in _kinds(sources) for data in kind.values() for value in data.values())


def named_alone(naming: Naming, variables: Mapping[str, str]) -> set[str]:
    """Hosts that are all that a variable says, but for a port."""
    matches = ((name, naming.pattern.fullmatch(value)) for name, value in variables.items())
    return {
        found[1] for name, found in matches if found is not None and (found[2] or found[3] == ":" or is_address(name))
    }


def literals(container: core.Container) -> dict[str, str]:
    """Variables whose value stands in the pod itself."""
    return {variable.name: variable.value for variable in container.env if variable.value}


def listened(pod: core.Pod) -> set[int]:
    """The ports at which the pod's own environment tells it, and its peers, to look for it."""
    naming = naming_of(pod)
    if naming is None:
        return set()
    own, found = {pod.metadata.name, pod.spec.hostname}, set()
    for container in pod.spec.containers:
        variables = literals(container)
        for name, value in variables.items():
            for match in naming.pattern.finditer(value):
                port = match[4]
                if not port and is_address(name) and match[0] == value:
                    port = variables.get(f"{name.rpartition('_')[0]}_PORT")
                if match[1] in own:
                    found.add(_number(port))
    return found - {0}


class Resolver:
    """`get` reads an object, or None where it is not there."""

    def __init__(self, get: Callable[[Kind, Key], Awaitable[Object | None]], clock: Clock) -> None:
        self._get = get
        self._clock = clock
        self._known: dict[Key, tuple[Place, float]] = {}
        """Places, and until when they are believed."""

    async def find(
        self, pod: core.Pod, hosts: Collection[str], said: Collection[str] = (), needed: Collection[str] = ()
    ) -> dict[str, Place]:
        """Places of the hosts that have one. `said`: those that the pod itself names, in what cannot be changed once it
        runs: they are looked up anew, and waited for where they are about to say where they listen. `needed`: waited
        for until they have a place."""
        give_up_at = self._clock.monotonic() + PATIENCE_SECONDS
        fixed = {*said, *needed}
        wanted = fixed if len(hosts) > MOST_NAMES else {*hosts, *fixed}
        places: dict[str, Place | None] = {}
        while wanted:
            for host in wanted:
                places[host] = await self._place(Key(pod.metadata.namespace, host), pod, is_fresh=host in fixed)
            wanted = {host for host in fixed if places[host] == _COMING or (host in needed and not places[host])}
            if self._clock.monotonic() >= give_up_at:
                break
            if wanted:
                await self._clock.sleep(_PAUSE_SECONDS)
        return {host: place for host, place in places.items() if place and place != _COMING}

    async def _place(self, key: Key, asking: core.Pod, *, is_fresh: bool) -> Place | None:
        known = self._known.get(key)
        now = self._clock.monotonic()
        if known is not None and known[1] > now and not is_fresh:
            return known[0]
        place = await self._read(key, asking)
        if len(self._known) > MOST_NAMES:
            self._known = {name: entry for name, entry in self._known.items() if entry[1] > now}
        if place and place != _COMING:
            self._known[key] = (place, now + _KEPT_SECONDS)
        else:
            self._known.pop(key, None)
        return place

    async def _read(self, key: Key, asking: core.Pod) -> Place | None:
        found = await self._get(core.POD, key)
        if found is None or found.is_terminating:
            return None
        peer = found.read(core.Pod)
        if naming_of(peer) != naming_of(asking) or not peer.spec.node_name:
            return None
        listens = ports.read(peer.status.conditions)
        if listens is None and listened(peer):
            return _COMING
        address = peer.status.pod_ip or await self._node_address(peer.spec.node_name)
        return Place(address, listens or {}) if address else None

    async def _node_address(self, name: str) -> str:
        """For a pod that is bound while its own agent has not said so yet."""
        node = await self._get(core.NODE, Key("", name))
        listed = node.read(core.Node).status.addresses if node is not None else ()
        return next((address.address for address in listed if address.type == "InternalIP"), "")


def _kinds(sources: Sources) -> tuple[Mapping[str, Mapping[str, bytes]], Mapping[str, Mapping[str, bytes]]]:
    return sources.config_maps, sources.secrets


def _number(port: str | None) -> int:
    """0 where it is none."""
    return int(port) if port and port.isascii() and port.isdecimal() and len(port) < 6 else 0


def _text(value: bytes) -> str:
    """Empty where it is none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""
