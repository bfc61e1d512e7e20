"""Tasks as tests look at them: started by the client, watched through the API and in the node's process table."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
from tests.det.det_client import Det
from tests.det.det_platform import Answer, DetPlatform, eventually

ENDED = "STATE_TERMINATED"


@dataclass(frozen=True)
class Watcher:
    """One user's view. `token` is of a session of that user."""

    platform: DetPlatform
    det: Det
    token: str

    def get(self, path: str) -> Any:
        answer = self.http("GET", path)
        assert answer.status == 200, answer.text
        return answer.json

    def http(self, method: str, path: str, body: Any = None) -> Answer:
        return self.platform.http(method, f"/api/v1/{path}", token=self.token, body=body)

    def command(self, script: str, *options: str) -> str:
        """A command that goes on by itself: its id."""
        return self.det("cmd", "run", "-d", *options, script).lines[-1]

    def start(self, kind: str, *options: str) -> str:
        return self.det(kind, "start", "-d", *options).lines[-1]

    def task(self, identity: str) -> Any:
        return self.get(f"tasks/{identity}")["task"]

    def state(self, kind: str, identity: str) -> str:
        state: str = self.get(f"{kind}s/{identity}")[kind]["state"]
        return state

    def exit_status(self, identity: str) -> str:
        status: str = self.get(f"commands/{identity}")["command"]["exitStatus"]
        return status

    def until_state(self, kind: str, identity: str, state: str, seconds: float = 30.0) -> None:
        eventually(lambda: self.state(kind, identity) == state, seconds=seconds)

    def until_ready(self, identity: str, seconds: float = 60.0) -> None:
        def ready() -> bool:
            task = self.task(identity)
            assert task["endTime"] is None, self.logs(identity)
            return any(each["isReady"] for each in task["allocations"])

        eventually(ready, seconds=seconds)

    def until_ended(self, identity: str, seconds: float = 30.0) -> None:
        eventually(lambda: self.task(identity)["endTime"], seconds=seconds)

    def logs(self, identity: str, *options: str) -> str:
        """Without the client's own last words."""
        text, _, _ = self.det("task", "logs", identity, *options).out.partition("Task log stream ended")
        return text

    def until_logged(self, identity: str, word: str, seconds: float = 30.0) -> str:
        return eventually(_with(word, lambda: self.logs(identity)), seconds=seconds)  # type: ignore[no-any-return]

    def end_all(self) -> None:
        """Also what a failed test has left behind: the next one finds the cluster empty."""
        kinds = ("command", "notebook", "shell", "tensorboard")
        for kind in kinds:
            for task in self.get(f"{kind}s")[f"{kind}s"]:
                if task["state"] != ENDED:
                    self.http("POST", f"{kind}s/{task['id']}/kill")
        eventually(lambda: not self.get("tasks")["allocationIdToSummary"], seconds=40)


def _with(word: str, read: Callable[[], str]) -> Callable[[], str | None]:
    def found() -> str | None:
        text = read()
        return text if word in text else None

    return found


def new_mark() -> str:
    """A word that is in the command line of one task's processes, and nowhere else."""
    return f"mark-{uuid.uuid4().hex}"


def processes_of_task(identity: str) -> list[psutil.Process]:
    """All that know that they belong to it: its program, and what is around it."""
    found = []
    for process in psutil.process_iter(["environ", "ppid"]):
        if (process.info["environ"] or {}).get("DET_TASK_ID") == identity:
            found.append(process)
    return found


def processes(mark: str) -> list[psutil.Process]:
    """What runs with it on this machine's nodes. The client that sent it has ended."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(mark in word for word in process.info["cmdline"] or ()):
            found.append(process)
    return found
