"""A platform as training code sees it, without a socket: it keeps what it is told, and can be away for a while."""

import io
import tarfile
import threading
from pathlib import Path

from tests.unit.sdk.scripted_transport import ScriptedTransport, refused

from muster.api import raw
from muster.sdk.determined import Determined
from muster.sdk.training_facts import Facts
from muster.sdk.transport import Request

TRIAL, RUN, ALLOCATION = 7, 2, "3.aa.2"


def facts(storage: Path, **more) -> Facts:
    config = {"checkpoint_storage": {"type": "directory", "container_path": str(storage)}}
    return Facts(TRIAL, 3, "3.aa", ALLOCATION, RUN, config=config, **more)


def environment(storage: Path, **more: str) -> dict[str, str]:
    told = facts(storage)
    return {
        "DET_MASTER": "http://scripted",
        "DET_SESSION_TOKEN": "secret",
        "DET_TRIAL_ID": str(TRIAL),
        "DET_EXPERIMENT_ID": "3",
        "DET_TASK_ID": told.task,
        "DET_ALLOCATION_ID": ALLOCATION,
        "DET_TRIAL_RUN_ID": str(RUN),
        "DET_TRIAL_SEED": "11",
        "DET_STEPS_COMPLETED": "40",
        "DET_HPARAMS": '{"lr": 0.1}',
        "DET_EXPERIMENT_CONFIG": raw.encode(told.config).decode(),
        "DET_RUN_DIR": str(storage / "run"),
        **more,
    }


class TrainingPlatform:
    """`away`: so many of the next requests fail below HTTP. `refusals`: by path, what the server answers instead."""

    def __init__(self) -> None:
        self.transport = ScriptedTransport(self._answer)
        self.server = Determined(self.transport)
        self.away = 0
        self.refusals: dict[str, tuple[int, str]] = {}
        self.bad_step = -1
        self.storage: dict[str, str] = {}
        self.batches: list[list[tuple[str, int, dict]]] = []
        self.checkpoints: list[dict] = []
        self.others: dict[str, bytes] = {}
        self.told: list[tuple[str, dict]] = []
        self.stop = threading.Event()

    @property
    def reports(self) -> list[tuple[str, int, dict]]:
        return [report for batch in self.batches for report in batch]

    def said(self, end: str) -> list[dict]:
        return [body for path, body in self.told if path.endswith(end)]

    def keep_elsewhere(self, uuid: str, files: dict[str, bytes]) -> None:
        """A checkpoint that only the server can reach."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for path, content in files.items():
                member = tarfile.TarInfo(path)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        self.others[uuid] = out.getvalue()

    def _answer(self, request: Request):
        if self.away:
            self.away -= 1
            return refused()
        path = request.path.partition("?")[0]
        if path in self.refusals:
            code, message = self.refusals[path]
            return code, {"error": {"code": 9, "reason": "", "error": message}}
        body = raw.decode(request.body) if isinstance(request.body, bytes) else {}
        if path.endswith("/metrics/batch"):
            return self._take(body)
        if path.endswith("/preemption"):
            seconds = float(request.path.rpartition("=")[2])
            return {"preempt": self.stop.wait(min(seconds, 5.0))}
        if path.startswith("/checkpoints/"):
            found = self.others.get(path.rpartition("/")[2])
            return (404, {"error": {"error": "no such checkpoint"}}) if found is None else [found[:700], found[700:]]
        self.told.append((path, body))
        if path.endswith("/checkpoints"):
            self.checkpoints.append(body)
        return {"storageId": 5} if path.endswith("/runs/start") else self._elsewhere(path)

    def _elsewhere(self, path: str):
        """What an experiment that is not managed here is told."""
        if path.endswith("/experiments"):
            return {"experiment": {"id": 9}, "config": {"checkpoint_storage": self.storage}}
        if path.endswith("/trials"):
            return {"trial": {"id": 21, "taskId": "9.x"}}
        return {"trialRunId": 1, "stepsCompleted": 0, "latestCheckpoint": None}

    def _take(self, body):
        assert body["trialId"] == TRIAL
        found = [
            (each["group"], each["metrics"]["stepsCompleted"], each["metrics"]["metrics"]["avgMetrics"])
            for each in body["reports"]
        ]
        assert all(each["metrics"]["trialRunId"] == RUN for each in body["reports"])
        if any(step == self.bad_step for _, step, _ in found):
            return 400, {"error": {"reason": "BadRequest", "error": f"step {self.bad_step} is wrong"}}
        self.batches.append(found)
        return {}
