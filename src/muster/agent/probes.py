"""Probes: questions asked of a running container again and again, and the verdict they add up to.

A verdict changes only after as many answers in a row as the probe's thresholds say. While a container has not passed
its startup probe, its other probes wait.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import aiohttp

from muster.api import core
from muster.runtime.clock import Clock

Ask: TypeAlias = Callable[[core.Probe], Awaitable[bool]]
RunCommand: TypeAlias = Callable[[tuple[str, ...], float], Awaitable[bool]]

_PERIOD_SECONDS = 10
_TIMEOUT_SECONDS = 1
_FAILURE_THRESHOLD = 3
_GOOD_STATUS = range(200, 400)


@dataclass(frozen=True, slots=True)
class Verdict:
    probe: str  # startup, readiness, liveness
    is_good: bool


def of(container: core.Container) -> dict[str, core.Probe]:
    named = {
        "startup": container.startup_probe,
        "readiness": container.readiness_probe,
        "liveness": container.liveness_probe,
    }
    return {name: probe for name, probe in named.items() if probe is not None}


async def watch(name: str, probe: core.Probe, ask: Ask, clock: Clock) -> AsyncIterator[Verdict]:
    """Verdicts as they change. A startup probe ends with its first; a liveness probe with its first failure."""
    await clock.sleep(probe.initial_delay_seconds or 0)
    verdict: bool | None = None if name != "liveness" else True
    in_a_row = 0
    last: bool | None = None
    while True:
        is_good = await ask(probe)
        in_a_row = in_a_row + 1 if is_good == last else 1
        last = is_good
        needed = (probe.success_threshold or 1) if is_good else (probe.failure_threshold or _FAILURE_THRESHOLD)
        if in_a_row >= needed and is_good != verdict:
            verdict = is_good
            yield Verdict(name, is_good)
            if name == "startup" or (name == "liveness" and not is_good):
                return
        await clock.sleep(probe.period_seconds or _PERIOD_SECONDS)


async def ask(probe: core.Probe, container: core.Container, host: str, run: RunCommand) -> bool:
    """Ask once. Anything but a clear yes in time is a no."""
    timeout = float(probe.timeout_seconds or _TIMEOUT_SECONDS)
    try:
        async with asyncio.timeout(timeout):
            if probe.exec is not None:
                return await run(probe.exec.command, timeout)
            if probe.tcp_socket is not None:
                return await _connects(probe.tcp_socket.host or host, _port(probe.tcp_socket.port, container))
            if probe.http_get is not None:
                return await answers(probe.http_get, container, host)
    except (TimeoutError, OSError, ValueError, aiohttp.ClientError):
        return False
    # gRPC health checks need a gRPC library: such a container is taken for healthy, as if it had no probe.
    return True


def _port(port: int | str | None, container: core.Container) -> int:
    if isinstance(port, int):
        return port
    named = {p.name: p.container_port for p in container.ports}
    found = named.get(port)
    return found if found is not None else int(port or 0)


async def _connects(host: str, port: int) -> bool:
    _reader, writer = await asyncio.open_connection(host, port)
    writer.close()
    return True


async def answers(action: core.HTTPGetAction, container: core.Container, host: str) -> bool:
    path = action.path or "/"
    url = f"{(action.scheme or 'HTTP').lower()}://{action.host or host}:{_port(action.port, container)}"
    headers = {header.name: header.value for header in action.http_headers}
    async with (
        aiohttp.ClientSession() as session,
        # The certificate is not checked: kubelets do not either, and the question is whether it answers.
        session.get(url + (path if path.startswith("/") else f"/{path}"), headers=headers, ssl=False) as answer,
    ):
        return answer.status in _GOOD_STATUS
