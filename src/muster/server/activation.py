"""Sockets that systemd has opened for us, and telling it that we are ready."""

import os
import socket
from collections.abc import Mapping, MutableMapping
from typing import Final

from muster.api import errors

_FIRST: Final = 3
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def passed_sockets(environment: MutableMapping[str, str], pid: int) -> list[socket.socket]:
    """Those that were passed to this process; none where systemd did not. They are taken out of the environment, so
    that no child takes them for its own. Raises BadRequest for what is no listening TCP socket."""
    told, count = environment.get("LISTEN_PID"), environment.get("LISTEN_FDS")
    if told != str(pid) or not count:
        return []
    for name in _VARIABLES:
        environment.pop(name, None)
    if not count.isascii() or not count.isdigit():
        raise errors.BadRequest(f"LISTEN_FDS, which systemd sets: expected a number, found {count!r}")
    return [_listening(descriptor) for descriptor in range(_FIRST, _FIRST + int(count))]


def _listening(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        found = socket.socket(fileno=descriptor)
    except OSError as error:
        raise errors.BadRequest(f"file {descriptor}, which systemd passed, is no socket: {error.strerror}") from error
    is_tcp = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
    if not is_tcp or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        found.close()
        raise errors.BadRequest(f"socket {descriptor}, which systemd passed, does not listen on TCP: use ListenStream=")
    return found


def notify_ready(environment: Mapping[str, str]) -> None:
    """For units of Type=notify. Nothing where nobody wants to know."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.sendall(b"READY=1")
