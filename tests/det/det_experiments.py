"""Experiments as tests look at them: created by the client from a directory of `tests/det/experiments`, watched through
the API."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.det.det_client import Det
from tests.det.det_platform import DetPlatform, eventually
from tests.det.det_tasks import Watcher

MODELS = Path(__file__).parent / "experiments"
COMPLETED, CANCELED, ERROR, PAUSED = (f"STATE_{name}" for name in ("COMPLETED", "CANCELED", "ERROR", "PAUSED"))
OVER = {COMPLETED, CANCELED, ERROR}


def trained(**hparams: Any) -> dict[str, Any]:
    """The configuration of one trial of `core`."""
    return {
        "name": "trained",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss"},
        "hyperparameters": {"steps": 2, "scale": 1.0, **hparams},
        "max_restarts": 0,
    }


def shell(line: str) -> dict[str, Any]:
    """The configuration of one trial that is a line for the shell."""
    return {
        "name": "a line",
        "entrypoint": line,
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
    }


@dataclass(frozen=True)
class Lab:
    watch: Watcher

    @property
    def det(self) -> Det:
        return self.watch.det

    @property
    def platform(self) -> DetPlatform:
        return self.watch.platform

    def create(self, config: Mapping[str, Any], *options: str, model: str = "core") -> int:
        """Its id."""
        out = self.det("experiment", "create", self.written(config), str(MODELS / model), *options).out
        found = re.search(r"Created experiment (\d+)", out)
        assert found, out
        return int(found.group(1))

    def written(self, config: Mapping[str, Any]) -> str:
        """JSON is YAML."""
        return self.det.write("experiment.yaml", json.dumps(config))

    def completed(self, config: Mapping[str, Any], *options: str, model: str = "core", seconds: float = 40.0) -> int:
        """One that has run to its end: its id."""
        experiment = self.create(config, *options, model=model)
        self.until(experiment, COMPLETED, seconds)
        return experiment

    def experiment(self, experiment: int) -> dict[str, Any]:
        found: dict[str, Any] = self.watch.get(f"experiments/{experiment}")["experiment"]
        return found

    def state(self, experiment: int) -> str:
        state: str = self.experiment(experiment)["state"]
        return state

    def until(self, experiment: int, state: str, seconds: float = 40.0) -> None:
        """What it ended with instead fails the test with its logs."""

        def reached() -> bool:
            found = self.state(experiment)
            assert found == state or found not in OVER, f"{found}:\n{self.all_logs(experiment)}"
            return found == state

        eventually(reached, seconds=seconds)

    def paused(self, experiment: int) -> None:
        """Pauses it, until what it runs has saved its work and ended."""
        self.det("experiment", "pause", str(experiment))
        self.until(experiment, PAUSED)
        eventually(lambda: self.running() == 0, seconds=40)

    def running(self) -> int:
        """All that has slots, or waits for some."""
        return len(self.watch.get("tasks")["allocationIdToSummary"])

    def trials(self, experiment: int) -> list[dict[str, Any]]:
        """In the order in which they were made."""
        found = self.watch.get(f"experiments/{experiment}/trials?limit=1000")["trials"]
        return sorted(found, key=lambda trial: int(trial["id"]))

    def first_trial(self, experiment: int) -> int:
        return int(eventually(lambda: self.trials(experiment))[0]["id"])

    def trial(self, trial: int) -> dict[str, Any]:
        found: dict[str, Any] = self.watch.get(f"trials/{trial}")["trial"]
        return found

    def checkpoints(self, experiment: int, state: str = "") -> list[dict[str, Any]]:
        """By steps."""
        query = f"?states={state}" if state else ""
        found = self.watch.get(f"experiments/{experiment}/checkpoints{query}")["checkpoints"]
        return sorted(found, key=lambda checkpoint: int(checkpoint["metadata"].get("steps_completed", 0)))

    def logs(self, trial: int) -> str:
        text, _, _ = self.det("trial", "logs", str(trial)).out.partition("Trial log stream ended")
        return text

    def all_logs(self, experiment: int) -> str:
        return "\n".join(self.logs(int(trial["id"])) for trial in self.trials(experiment))

    def until_logged(self, trial: int, word: str, seconds: float = 30.0) -> str:
        def said() -> str:
            text = self.logs(trial)
            return text if word in text else ""

        text: str = eventually(said, seconds=seconds)
        return text

    def metrics(self, trial: int, group: str) -> list[dict[str, Any]]:
        """Reports of a trial that count, in order."""
        answer = self.watch.http("GET", f"trials/metrics/trial_metrics?trialIds={trial}&group={group}")
        assert answer.status == 200, answer.text
        pages = [json.loads(line)["result"]["metrics"] for line in answer.text.splitlines() if line]
        return [report for page in pages for report in page]

    def end_all(self) -> None:
        """Whatever has become of a test, the next one finds the cluster empty."""
        for found in self.watch.get("experiments?limit=1000")["experiments"]:
            if found["state"] not in OVER:
                self.watch.http("POST", f"experiments/{found['id']}/kill")
        self.watch.end_all()


def of_steps(checkpoints: Sequence[Mapping[str, Any]]) -> list[int]:
    return [int(found["metadata"]["steps_completed"]) for found in checkpoints]
