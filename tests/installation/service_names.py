"""Names of Services, for pods: the part of a cluster's DNS that Muster needs, in the place of CoreDNS.

Answers for NAME.NAMESPACE.svc.cluster.local with the Service's address. Any other name does not exist.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from ipaddress import IPv4Address

from muster.api import core, errors
from muster.api.objects import Key
from muster.store.protocol import Store

_DOMAIN = ["svc", "cluster", "local"]
_HEADER = struct.Struct("!6H")
_AUTHORITATIVE = 0x8580
_NO_SUCH_NAME = 3
_ADDRESS, _INTERNET = 1, 1
_SECONDS = 1


@contextlib.asynccontextmanager
async def answering(store: Store, address: str) -> AsyncIterator[None]:
    """At the usual port of that address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.setblocking(False)
        bound.bind((address, 53))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(_answer_all(store, bound), name="names of services")
            yield
            running.cancel()


async def _answer_all(store: Store, bound: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        asked, sender = await loop.sock_recvfrom(bound, 512)
        labels, end = _name(asked)
        await loop.sock_sendto(bound, _answer(asked, end, await _address(store, labels)), sender)


async def _address(store: Store, labels: Sequence[str]) -> IPv4Address | None:
    if len(labels) != 5 or labels[2:] != _DOMAIN:
        return None
    try:
        found = await store.get(core.SERVICE, Key(labels[1], labels[0]))
    except errors.NotFound:
        return None
    return IPv4Address(found.document()["spec"]["clusterIP"])


def _answer(asked: bytes, end: int, found: IPv4Address | None) -> bytes:
    """`end`: of the name in the question."""
    (kind,) = struct.unpack_from("!H", asked, end)
    records = [found] if found is not None and kind == _ADDRESS else []  # nobody has an address of version 6
    flags = _AUTHORITATIVE | (_NO_SUCH_NAME if found is None else 0)
    header = _HEADER.pack(int.from_bytes(asked[:2]), flags, 1, len(records), 0, 0)
    question = asked[_HEADER.size : end + 4]
    same_name = struct.pack("!H", 0xC000 | _HEADER.size)
    told = [same_name + struct.pack("!HHIH", _ADDRESS, _INTERNET, _SECONDS, 4) + each.packed for each in records]
    return header + question + b"".join(told)


def _name(asked: bytes) -> tuple[list[str], int]:
    """Of the question, and where it ends."""
    labels: list[str] = []
    place = _HEADER.size
    while length := asked[place]:
        labels.append(asked[place + 1 : place + 1 + length].decode().lower())
        place += 1 + length
    return labels, place + 1
