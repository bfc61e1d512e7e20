"""How training code speaks to its server: as the task that it is, and with patience."""

import logging
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from muster.api import errors
from muster.sdk import trusting
from muster.sdk.config import Trust
from muster.sdk.determined import Determined
from muster.sdk.transport import HttpTransport

LOG: Final = logging.getLogger("muster.training")
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 15.0
_ALLOCATION_HEADER: Final = "Grpc-Metadata-x-allocation-token"
_PASSING: Final = (errors.Unavailable, errors.Timeout, errors.TooManyRequests, errors.InternalError)
"""Another try may go well. What we tell can all be told twice."""
T = TypeVar("T")


def of_task(env: Mapping[str, str]) -> Determined:
    """With the session of the allocation that this process is part of."""
    server, certificate = env["DET_MASTER"], env.get("DET_MASTER_CERT_FILE", "")
    name = env.get("DET_MASTER_CERT_NAME", "") if certificate != "noverify" else ""
    transport = HttpTransport(server, trusting.fixed(tls=_tls(server, certificate)), name=name)
    return Determined(transport, {_ALLOCATION_HEADER: f"Bearer {env['DET_SESSION_TOKEN']}"})


def _tls(server: str, certificate: str) -> ssl.SSLContext | None:
    if certificate != "noverify" or not server.startswith("https://"):
        return trusting.context(server, Trust(ca=certificate))
    made = ssl.create_default_context()  # as whoever runs the cluster has asked
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def is_passing(error: errors.ApiError) -> bool:
    return isinstance(error, _PASSING)


def insist(call: Callable[[], T], what: str, seconds: float, pause: float = FIRST_PAUSE_SECONDS) -> T:
    """Tries again for so long where the server cannot be reached. Raises ApiError."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except errors.ApiError as error:
            if not is_passing(error) or time.monotonic() + pause > deadline:
                raise
            LOG.warning("%s: trying again: %s", what, error.message)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
