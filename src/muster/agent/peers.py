"""Names of a pod's peers for processes that share the machine's resolver.

In a container `j-worker-1.j` resolves through a headless Service. Host processes have the machine's /etc/hosts, which
is not ours to change. So the names of a pod's peers (pods of its `subdomain` that begin with it, as Volcano's do) are
replaced by addresses: in the container's environment, command line, ConfigMaps and Secrets. The file
`MUSTER_HOSTS_FILE` has them all, in the format of /etc/hosts.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from muster.agent.environment import Sources
from muster.api import core
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock

PATIENCE_SECONDS = 15.0
"""How long a pod waits for a peer that it cannot do without: one that a variable names and nothing else. Not for ever,
because the peer may itself wait for this pod."""
MOST_NAMES = 2000
_PAUSE_SECONDS = 0.1
_KEPT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Peers:
    """Addresses by host name, as far as they are known, and how to find the names in a text."""

    pattern: re.Pattern[str]
    addresses: Mapping[str, str]

    def in_text(self, text: str) -> str:
        return self.pattern.sub(lambda found: self.addresses.get(found[1], found[0]), text)

    def in_sources(self, sources: Sources) -> Sources:
        return Sources(*({name: self._in_data(data) for name, data in kind.items()} for kind in _kinds(sources)))

    def _in_data(self, data: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {key: self.in_text(_text(value)).encode() if _text(value) else value for key, value in data.items()}

    def hosts_file(self, subdomain: str) -> str:
        return "".join(f"{address}\t{host}.{subdomain} {host}\n" for host, address in sorted(self.addresses.items()))


def pattern_of(pod: core.Pod) -> re.Pattern[str] | None:
    """None where the pod has no such peers."""
    subdomain = pod.spec.subdomain
    if not subdomain:
        return None
    domain, namespace = re.escape(subdomain), re.escape(pod.metadata.namespace)
    longer = rf"(?:\.{namespace}(?:\.svc(?:\.cluster\.local)?)?)?"
    return re.compile(rf"(?<![\w.-])({domain}-[a-z0-9-]*[a-z0-9])\.{domain}{longer}(?![\w-]|\.\w)", re.ASCII)


def mentioned(pattern: re.Pattern[str], texts: Iterable[str]) -> set[str]:
    return {host for text in texts if "." in text for host in pattern.findall(text)}


def texts_of(sources: Sources) -> Iterable[str]:
    return (_text(value) for kind in _kinds(sources) for data in kind.values() for value in data.values())


def named_alone(pattern: re.Pattern[str], texts: Iterable[str]) -> set[str]:
    """Hosts that are all that a text says, but for a port."""
    matches = (pattern.match(text) for text in texts)
    return {
        found[1] for found in matches if found is not None and re.fullmatch(r"(:\d+)?", found.string[found.end() :])
    }


class Resolver:
    """`get` reads an object, or None where it is not there."""

    def __init__(self, get: Callable[[Kind, Key], Awaitable[Object | None]], clock: Clock) -> None:
        self._get = get
        self._clock = clock
        self._known: dict[Key, tuple[str, float]] = {}
        """Addresses, and until when they are believed."""

    async def find(self, pod: core.Pod, hosts: Collection[str], needed: Collection[str]) -> dict[str, str]:
        """Addresses of the hosts that have one; after a wait where a needed one has none yet."""
        give_up_at = self._clock.monotonic() + PATIENCE_SECONDS
        wanted = needed if len(hosts) > MOST_NAMES else {*hosts, *needed}
        found = await self._look(pod, wanted)
        while not found.keys() >= set(needed) and self._clock.monotonic() < give_up_at:
            await self._clock.sleep(_PAUSE_SECONDS)
            found |= await self._look(pod, set(needed) - found.keys())
        return found

    async def _look(self, pod: core.Pod, hosts: Collection[str]) -> dict[str, str]:
        found = {}
        for host in hosts:
            address = await self._address(Key(pod.metadata.namespace, host), pod.spec.subdomain or "")
            if address:
                found[host] = address
        return found

    async def _address(self, key: Key, subdomain: str) -> str:
        known = self._known.get(key)
        now = self._clock.monotonic()
        if known is not None and known[1] > now:
            return known[0]
        address = await self._read(key, subdomain)
        if len(self._known) > MOST_NAMES:
            self._known = {name: entry for name, entry in self._known.items() if entry[1] > now}
        if address:
            self._known[key] = (address, now + _KEPT_SECONDS)
        return address

    async def _read(self, key: Key, subdomain: str) -> str:
        found = await self._get(core.POD, key)
        peer = found.read(core.Pod) if found is not None else core.Pod()
        if found is None or found.is_terminating or peer.spec.subdomain != subdomain or not peer.spec.node_name:
            return ""
        if peer.status.pod_ip:
            return peer.status.pod_ip
        # It is bound, and its own agent has not said so yet.
        node = await self._get(core.NODE, Key("", peer.spec.node_name))
        listed = node.read(core.Node).status.addresses if node is not None else ()
        return next((address.address for address in listed if address.type == "InternalIP"), "")


def _kinds(sources: Sources) -> tuple[Mapping[str, Mapping[str, bytes]], Mapping[str, Mapping[str, bytes]]]:
    return sources.config_maps, sources.secrets


def _text(value: bytes) -> str:
    """Empty where it is none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""
