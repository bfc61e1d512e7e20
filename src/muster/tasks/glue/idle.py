"""Tells the server, every now and then, that a notebook is in use, though nobody asks anything of it."""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.request
from datetime import datetime, timezone

from .calls import Master, Refused, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_PERIOD_SECONDS = 30.0


def is_busy(kind: str, kernels: list[dict[str, object]], terminals: list[dict[str, object]], since: float) -> bool:
    """`since`: whatever was active later than that is. By kind: anything that is there, kernels that somebody has open,
    or kernels that compute."""
    if kind == "activity":
        recent = [each for each in (*kernels, *terminals) if _time(each.get("last_activity")) > since]
        return bool(recent) or any(kernel.get("execution_state") == "busy" for kernel in kernels)
    if kind == "kernel_connections":
        return any(_count(kernel.get("connections")) > 0 for kernel in kernels)
    return bool(kernels or terminals)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _time(text: object) -> float:
    try:
        found = datetime.strptime(str(text)[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)  # noqa: UP017
    except ValueError:
        return 0.0
    return found.timestamp()


def _ask(environ: Mapping[str, str], what: str) -> list[dict[str, object]]:
    address = environ.get("DET_POD_IP") or "127.0.0.1"
    url = f"http://{address}:{environ['NOTEBOOK_PORT']}/proxy/{environ['DET_TASK_ID']}/api/{what}"
    request = urllib.request.Request(url, headers={"Authorization": f"token {environ['DET_NOTEBOOK_TOKEN']}"})
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own
        found = json.load(answer)
    return found if isinstance(found, list) else []


def main(environ: Mapping[str, str]) -> None:
    master = Master(environ)
    path = f"/api/v1/notebooks/{environ['DET_TASK_ID']}/report_idle"
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(_PERIOD_SECONDS)
        with contextlib.suppress(OSError, ValueError, Refused, Unreachable):
            since = time.time() - 2 * _PERIOD_SECONDS
            kind = environ.get("NOTEBOOK_IDLE_TYPE", "")
            busy = is_busy(kind, _ask(environ, "kernels"), _ask(environ, "terminals"), since)
            master.call("PUT", path, {"idle": not busy})
