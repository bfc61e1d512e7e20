"""Ports of a machine that its pods share.

In a network of its own every pod could listen on the same port. Host processes share the machine's, so a pod gets the
port that it was told to listen on only where nobody else has it, else another. Its own environment says which, and a
condition of the pod tells its peers.

Two pods may be given ports long before their processes listen. So a port that was given is also held as a name that the
kernel lets one process of the machine have at a time, and takes back when that process ends: several agents on one
machine never give the same, and none has to tidy up after another.
"""

import contextlib
import random
import socket
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from muster.api import conditions, raw
from muster.api.errors import BadRequest
from muster.api.meta import Condition
from muster.api.raw import Document

CONDITION = "muster.dev/Ports"
"""Of a pod: its message is a JSON object of the ports that it was told to listen on, and where it does. (Not an
annotation: a node may change the status of its pods and nothing else of them.)"""
SPARE = range(15_000, 32_000)
"""Below those that the kernel gives to whoever calls out: one of these would be gone at any moment."""
_TRIES = 500


class NoPort(OSError):
    """All that were tried are in use."""


class Ports:
    """Of one agent; by the uid of the pod that has them."""

    def __init__(self, entropy: random.Random, spare: range = SPARE) -> None:
        self._entropy = entropy
        self._spare = spare
        self._given: dict[str, dict[int, int]] = {}
        self._held: dict[int, socket.socket] = {}

    def give(self, uid: str, wanted: Collection[int], before: Mapping[int, int]) -> Mapping[int, int]:
        """A port for each that is wanted: those that the pod had before, where they are still free. Raises NoPort."""
        given = self._given.setdefault(uid, {})
        for port in wanted:
            if port not in given:
                given[port] = self._take(before.get(port, port))
        return dict(given)

    def restore(self, uid: str, had: Mapping[int, int]) -> None:
        """The pod runs already: whoever listens there is its own."""
        self._given[uid] = dict(had)
        for port in had.values():
            self._hold(port)

    def release(self, uid: str) -> None:
        for port in self._given.pop(uid, {}).values():
            held = self._held.pop(port, None)
            if held is not None:
                held.close()

    def close(self) -> None:
        for uid in list(self._given):
            self.release(uid)

    def _take(self, first: int) -> int:
        for port in self._candidates(first):
            if self._hold(port):
                if _is_free(port):
                    return port
                self._held.pop(port).close()
        raise NoPort(f"no free port: {first} and others of {self._spare.start} to {self._spare.stop} are in use")

    def _candidates(self, first: int) -> Iterator[int]:
        yield first
        for _ in range(_TRIES):
            yield self._entropy.choice(self._spare)

    def _hold(self, port: int) -> bool:
        if port in self._held:
            return False
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            if sys.platform == "linux":
                held.bind(f"\0muster-port-{port}")
        except OSError:
            held.close()
            return False
        self._held[port] = held
        return True


def _is_free(port: int) -> bool:
    """Whether one could listen there on all addresses; connections of an earlier owner that linger do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def announcement(ports: Mapping[int, int]) -> Document:
    """The condition."""
    text = raw.encode({str(port): number for port, number in sorted(ports.items())}).decode()
    return {"type": CONDITION, "status": conditions.TRUE, "reason": "Given", "message": text}


def read(listed: Sequence[Condition]) -> Mapping[int, int] | None:
    """From the pod's conditions. None where they do not say so, or nobody can read it."""
    told = conditions.find(listed, CONDITION)
    if told is None:
        return None
    with contextlib.suppress(BadRequest, ValueError, AttributeError):
        found = {int(port): number for port, number in raw.decode(told.message or "").items()}
        if all(type(number) is int and 0 < number < 65536 for number in found.values()):
            return found
    return None
