"""Whether a run is to stop: asked of the server by a thread of its own, which waits there for the answer."""

import threading
from typing import Final

from muster.api import errors
from muster.sdk import training_calls
from muster.sdk.determined import Determined

_POLL_SECONDS: Final = 45
"""How long the server may take to say no; less than a transport waits for a reply."""
_ACKNOWLEDGE_SECONDS: Final = 900.0


class StopSignal:
    """`speaks`: whether this process says, for all of the run's, that the signal was seen. `pause`: seconds before the
    first further try where the server cannot be reached."""

    def __init__(
        self,
        server: Determined,
        allocation: str,
        *,
        speaks: bool,
        pause: float = training_calls.FIRST_PAUSE_SECONDS,
    ) -> None:
        self._server = server
        self._path = f"/allocations/{allocation}/signals"
        self._speaks = speaks
        self._pause = pause
        self._came = threading.Event()
        self._closed = threading.Event()
        self._is_watched = False

    def has_come(self) -> bool:
        """The first call asks the server and waits for its answer; later ones only look."""
        if not self._is_watched:
            self._is_watched = True
            self._ask(0)
            if not self._came.is_set():
                threading.Thread(target=self._watch, name="muster-stop-signal", daemon=True).start()
        return self._came.is_set()

    def acknowledge(self) -> None:
        """Without it the run would count as one that has finished by itself when it exits, and not be taken up again.
        Raises ApiError where nobody hears it for long."""
        if not self._speaks:
            return
        self._speaks = False
        path = f"{self._path}/ack_preemption"
        training_calls.insist(
            lambda: self._server.send("POST", path), "acknowledging that the run is to stop", _ACKNOWLEDGE_SECONDS
        )

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        pause = self._pause
        while not self._came.is_set() and not self._closed.is_set():
            if self._ask(_POLL_SECONDS):
                pause = self._pause
            else:
                self._closed.wait(pause)
                pause = min(2 * pause, training_calls.LONGEST_PAUSE_SECONDS)

    def _ask(self, seconds: int) -> bool:
        """Whether there was an answer."""
        try:
            answer = self._server.get(f"{self._path}/preemption", {"timeout_seconds": seconds})
        except (errors.Unauthorized, errors.Forbidden):
            self._came.set()  # another run has taken this one's place
        except errors.ApiError as error:
            training_calls.LOG.warning("it is not known now whether to stop, training goes on: %s", error.message)
            return False
        else:
            if answer.get("preempt") is True:
                self._came.set()
        return True
