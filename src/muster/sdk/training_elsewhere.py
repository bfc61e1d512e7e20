"""Training that runs elsewhere, on a laptop or another cluster, and is on record at a platform all the same: as an
experiment of one trial that the platform does not manage. It says every minute that it is alive."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from muster.api import errors, raw
from muster.api.raw import JSON, Document
from muster.sdk import reading, training_calls
from muster.sdk.determined import Determined
from muster.sdk.training_channels import ServerChannel
from muster.sdk.training_checkpoints import PATIENCE_SECONDS
from muster.sdk.training_facts import Facts

_BEAT_SECONDS: Final = 60.0


def begin(server: Determined, config: Document, hparams: Mapping[str, JSON]) -> Facts:
    """Makes the experiment and its trial. Raises ApiError."""
    searcher = {"name": "custom", "metric": "loss", **reading.section(config, "searcher")}
    config = {**config, "hyperparameters": dict(hparams), "searcher": searcher}
    made = server.send("POST", "/experiments", {"config": raw.to_yaml(config), "unmanaged": True, "activate": True})
    experiment = int(raw.dig(made, "experiment", "id"))
    asked = {"experimentId": experiment, "hparams": dict(hparams), "unmanaged": True}
    trial = reading.section(server.send("POST", "/trials", asked), "trial")
    started = server.send("POST", f"/trials/{trial['id']}/start", {"trialId": trial["id"], "resume": False})
    return Facts(
        trial=trial["id"],
        experiment=experiment,
        task=reading.text(trial, "taskId"),
        run=started["trialRunId"],
        steps=started["stepsCompleted"],
        checkpoint=started.get("latestCheckpoint"),
        hparams=hparams,
        config=reading.section(made, "config"),
    )


class Elsewhere(ServerChannel):
    """Its channel, until it has ended."""

    def __init__(self, server: Determined, facts: Facts, scratch: Path) -> None:
        super().__init__(server, facts, scratch, speaks=True)
        self._path = f"/trials/{facts.trial}"
        self._closed = threading.Event()
        threading.Thread(target=self._beat, name="muster-heartbeat", daemon=True).start()

    def close(self, *, has_failed: bool) -> None:
        try:
            super().close(has_failed=has_failed)
        finally:
            self._closed.set()
            state = "STATE_ERROR" if has_failed else "STATE_COMPLETED"
            training_calls.insist(lambda: self._tell(state), "ending the trial", PATIENCE_SECONDS)

    def _beat(self) -> None:
        while not self._closed.wait(_BEAT_SECONDS):
            try:
                self._tell("STATE_RUNNING")
            except errors.ApiError as error:
                training_calls.LOG.warning("the server could not be told that training goes on: %s", error.message)

    def _tell(self, state: str) -> None:
        self._server.send("PATCH", self._path, {"trialId": self._facts.trial, "state": state})
