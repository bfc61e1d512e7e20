"""Where a target is: at the address of its pod, or at the one that the name of its Service has now.

A name is looked up once, here, and what was found is both checked and asked: nobody can lead us elsewhere in between.
"""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeAlias

from muster.server.proxy import refusing
from muster.server.proxy.refusing import NotServing
from muster.tasks.proxies import Target

Resolve: TypeAlias = Callable[[str], Awaitable[str]]
"""The address that has a name. Raises OSError."""
_SERVICE: Final = ".svc"
_log = logging.getLogger(__name__)


async def resolved(name: str) -> str:
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


async def located(target: Target, resolve: Resolve = resolved) -> Target:
    """At an address that may be asked. Raises NotFound, NotServing."""
    if target.address.endswith(_SERVICE):
        try:
            target = replace(target, address=await resolve(target.address))
        except OSError as error:
            raise NotServing(f"the Service of task {target.task} is not known yet, or not any more.") from error
    if not _may_be_asked(target.address):
        _log.warning("task %s has the address %s, which is refused", target.task, target.address)
        raise refusing.not_found(target.task)
    return target


def _may_be_asked(address: str) -> bool:
    """Whatever the table says: some are nobody's pod. Cloud machines tell their secrets at a link-local address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    inner = getattr(found, "ipv4_mapped", None) or found
    is_special = inner.is_link_local or inner.is_multicast or inner.is_unspecified
    return not is_special and (inner.is_loopback or not inner.is_reserved)
