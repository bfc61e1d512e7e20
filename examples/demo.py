"""`make demo`: a cluster of four nodes on this machine trains a model as a gang, and leaves nothing behind.

Starts `muster up` on a free port with a temporary data directory, submits four data-parallel workers, shows them
live, prints what came out, and takes everything down again: also after Ctrl-C, also when something fails.
"""

import argparse
import contextlib
import importlib.util
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from muster.api import errors, quantity
from muster.sdk import Client, Gang, jobs
from muster.sdk.config import connection
from muster.sdk.following import Ended, Line, Moved, Stuck
from muster.sdk.gangs import Status
from muster.sdk.resources import NODES

HERE = Path(__file__).resolve().parent
START_SECONDS = 30
JOB = "spirals"

_EPOCH = re.compile(r"epoch (\d+)/(\d+) loss (\S+) accuracy (\S+)%")
_DONE = re.compile(r"rank (\d+) done: (\S+) s, (\S+) samples/s")


@dataclass
class Training:
    """What the workers have said so far."""

    status: Status | None = None
    epoch: int = 0
    epochs: int = 0
    loss: float = 0.0
    accuracy: float = 0.0
    history: list[tuple[float, float]] = field(default_factory=list)
    seconds: dict[int, float] = field(default_factory=dict)
    speed: dict[int, float] = field(default_factory=dict)
    other_lines: list[str] = field(default_factory=list)

    def hear(self, rank: int, text: str) -> None:
        if match := _EPOCH.fullmatch(text):
            self.epoch, self.epochs = int(match[1]), int(match[2])
            self.loss, self.accuracy = float(match[3]), float(match[4])
            self.history.append((self.loss, self.accuracy))
        elif match := _DONE.fullmatch(text):
            self.seconds[int(match[1])], self.speed[int(match[1])] = float(match[2]), float(match[3])
        else:
            self.other_lines.append(f"[{rank}] {text}")


@contextlib.contextmanager
def platform(nodes: int) -> Iterator[Client]:
    """A platform of our own, gone afterwards with all that it started."""
    directory = Path(tempfile.mkdtemp(prefix="muster-demo-"))
    log = directory / "up.log"
    command = [sys.executable, "-m", "muster.cli.main", "up", "--nodes", str(nodes), "--port", "0", "--quiet"]
    with log.open("wb") as output:
        # In its own session: a Ctrl-C is for us, and we take the platform down in order.
        process = subprocess.Popen(
            [*command, "--data", str(directory / "data")], stdout=output, stderr=output, start_new_session=True
        )
    try:
        client = _wait_ready(process, directory / "data", log, nodes)
        try:
            yield client
        finally:
            with contextlib.suppress(errors.ApiError):
                jobs.wait_gone(client, jobs.stop(client, JOB, grace_seconds=2), timeout=20)
            client.close()
    finally:
        _end(process, directory)
        shutil.rmtree(directory, ignore_errors=True)


def _wait_ready(process: subprocess.Popen[bytes], data: Path, log: Path, nodes: int) -> Client:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(errors.ApiError):
            client = Client(connection(data=data))
            ready = [node for node in client.list(NODES) if _is_ready(node)]
            if len(ready) == nodes:
                return client
            client.close()
        time.sleep(0.05)
    raise SystemExit(f"the platform did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _is_ready(node: dict) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def _end(process: subprocess.Popen[bytes], directory: Path) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # Pods outlive the agent by design. All of ours are gone unless something failed above; then they go now.
    for left in psutil.process_iter(["cmdline", "cwd"]):
        with contextlib.suppress(psutil.Error):
            if str(directory) in " ".join([*(left.info["cmdline"] or ()), left.info["cwd"] or ""]):
                left.kill()


def worker(client: Client, replicas: int, epochs: int | None) -> Gang:
    """One worker a node: each asks for more than half of what a node has."""
    smallest = min(quantity.parse(node["status"]["allocatable"]["cpu"]).milli for node in client.list(NODES))
    torch = ["--torch"] if importlib.util.find_spec("torch") else []
    return Gang(
        name=JOB,
        command=[
            sys.executable,
            str(HERE / "train_numpy.py"),
            "--epochs",
            str(epochs or (10 if torch else 20)),
            *torch,
        ],
        replicas=replicas,
        cpu=f"{smallest * 6 // 10}m",
        env={**jobs.inherited(), "OMP_NUM_THREADS": "1"},
        workdir=str(HERE),
    )


def follow(client: Client, gang: Gang, console: Console) -> tuple[Training, int]:
    training = Training()
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    task = progress.add_task("epochs", total=None)

    def screen() -> Group:
        progress.update(task, completed=training.epoch, total=training.epochs or None)
        return Group(ranks_table(training), learning(training), progress)

    follower = jobs.follow(client, jobs.submit_gang(client, gang))
    # On a terminal the screen moves; in a pipe each epoch is one line.
    live = Live(console=console, get_renderable=screen, refresh_per_second=8, transient=True)
    with contextlib.ExitStack() as stack:
        stack.callback(follower.close)
        if console.is_terminal:
            stack.enter_context(live)
        while True:
            match follower.next():
                case Line(rank, text):
                    training.hear(rank, text)
                    if not console.is_terminal:
                        console.print(f"[{rank}] {text}", markup=False)
                case Moved(status):
                    training.status = status
                case Stuck(_, pods):
                    jobs.stop_pods(client, pods, gang.namespace)
                case Ended(status, code):
                    training.status = status
                    return training, code


def ranks_table(training: Training) -> Table:
    table = Table("rank", "node", "state", box=None, header_style="bold", pad_edge=False)
    for member in training.status.members if training.status else ():
        colour = {"Running": "green", "Succeeded": "cyan", "Failed": "red"}.get(member.phase, "yellow")
        table.add_row(str(member.rank), member.node or "-", f"[{colour}]{member.phase}[/]")
    return table


def learning(training: Training) -> str:
    if not training.history:
        return "waiting for the first epoch ..."
    marks = "▁▂▃▄▅▆▇█"
    most = max(loss for loss, _ in training.history) or 1.0
    curve = "".join(marks[min(int(loss / most * 8), 7)] for loss, _ in training.history[-60:])
    return f"loss {training.loss:.4f} {curve}   accuracy {training.accuracy:.1f}%"


def result_table(training: Training) -> Table:
    table = Table("rank", "node", "seconds", "samples/s", "exit code", box=None, header_style="bold", pad_edge=False)
    for member in training.status.members if training.status else ():
        table.add_row(
            str(member.rank),
            member.node,
            f"{training.seconds.get(member.rank, 0):.2f}",
            f"{training.speed.get(member.rank, 0):,.0f}",
            str(member.exit_code),
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--epochs", type=int, help="default: 20, or 10 with PyTorch, which takes longer to start")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill cleans up as Ctrl-C does
    console = Console(highlight=False)
    began = time.monotonic()
    try:
        with platform(options.nodes) as client:
            up = time.monotonic() - began
            console.print(
                f"Platform up in {up:.1f} s: {options.nodes} nodes on this machine, {client.connection.server}"
            )
            gang = worker(client, options.nodes, options.epochs)
            using = "PyTorch DDP" if "--torch" in gang.command else "NumPy"
            console.print(
                f"Training on three spirals with {options.nodes} data-parallel workers ({using}), as one gang"
            )
            training, code = follow(client, gang, console)
    except KeyboardInterrupt:
        console.print("interrupted; everything is stopped and removed")
        return 130
    console.print(result_table(training))
    if code:
        console.print("\n".join(training.other_lines[-20:]), markup=False)
        console.print(f"[red]the job failed with exit code {code}[/]")
        return code
    console.print(
        f"Final accuracy [bold green]{training.accuracy:.1f}%[/] on unseen points, loss {training.loss:.4f}; "
        f"{sum(training.speed.values()):,.0f} samples/s together"
    )
    console.print(f"All in {time.monotonic() - began:.1f} s; the platform is stopped and its data removed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
