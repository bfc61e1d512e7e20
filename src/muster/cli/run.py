"""`muster run`: a gang from the command line to its exit code."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

import click

from muster.api import errors, raw
from muster.cli import durations, rendering
from muster.cli.connecting import connect, namespace_option
from muster.cli.run_view import PlainView, View, open_view
from muster.cli.session import Session
from muster.sdk import gangs, jobs
from muster.sdk.client import Client
from muster.sdk.following import Ended, Follower, Moved, Stuck
from muster.sdk.gangs import Gang
from muster.sdk.jobs import Submitted
from muster.sdk.log_reading import Line, LogLost

INTERRUPTED = 130
TERMINATED = 143


@dataclass(frozen=True, slots=True)
class _Options:
    command_line: Sequence[str]
    name: str | None
    namespace: str | None
    replicas: int
    gpus: int
    cpu: str
    memory: str
    image: str
    env: Sequence[str]
    workdir: str | None
    timeout: str | None
    queue: str
    detach: bool
    remove: bool

    def gang(self, namespace: str) -> Gang:
        seconds = None if self.timeout is None else max(1, round(durations.parse(self.timeout)))
        # A container has a file system of its own, where nothing of what is here means anything.
        inherited, workdir = ({}, self.workdir or "") if self.image else (jobs.inherited(), self._directory())
        return Gang(
            name=self.name or jobs.new_name(),
            command=self.command_line,
            replicas=self.replicas,
            gpus=self.gpus,
            cpu=self.cpu,
            memory=self.memory,
            image=self.image or gangs.HOST_IMAGE,
            env={**inherited, **dict(map(_pair, self.env))},
            workdir=workdir,
            timeout_seconds=seconds,
            namespace=namespace,
            queue=self.queue,
        )

    def _directory(self) -> str:
        return os.path.abspath(self.workdir or os.getcwd())


def _pair(text: str) -> tuple[str, str]:
    """`K=V`, or `K` for the value it has here."""
    name, equals, value = text.partition("=")
    if not equals:
        if name not in os.environ:
            raise errors.BadRequest(f"--env {name}: it has no value here; write --env {name}=VALUE")
        value = os.environ[name]
    return name, value


class _Terminated(BaseException):
    """SIGTERM arrived. No error, which somebody on the way could take for his own."""


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.argument("command_line", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED, required=True)
@click.option("--name", metavar="NAME", help="What to call the job; a readable random name if not given.")
@namespace_option
@click.option("--replicas", default=1, metavar="N", help="How many copies to run, all at once or none.")
@click.option("--gpus", default=0, metavar="N", help="GPUs for each replica.")
@click.option("--cpu", default="", metavar="CORES", help="Cores for each replica, such as 2 or 500m.")
@click.option("--memory", default="", metavar="SIZE", help="Memory for each replica, such as 8Gi.")
@click.option(
    "--image", default="", metavar="IMAGE", help="Run in a container of this image, on nodes that run containers."
)
@click.option("-e", "--env", multiple=True, metavar="K=V", help="Set a variable; `K` alone passes on its value here.")
@click.option("--workdir", metavar="DIR", help="Where to run; the current directory if not given.")
@click.option("--timeout", metavar="TIME", help="End it after this long, such as 90s or 2h.")
@click.option("--queue", default="", metavar="NAME", help="The queue to wait in.")
@click.option("-d", "--detach", is_flag=True, help="Print its name and return at once.")
@click.option(
    "--rm/--keep", "remove", default=False, help="Remove the job when it has ended, or keep it (the default)."
)
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """Run a command as a job, follow it, exit with its code.

    Each replica is one process on some node, in this directory and with this PATH; with --image a
    container, of which only the image says what is in it. It finds its place in RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT, as torch.distributed expects. The log lines of several replicas
    carry the rank. Ctrl-C asks whether to detach or to stop the job.

    \b
    Examples:
      muster run -- python train.py
      muster run --replicas 4 --gpus 2 -- python train.py --epochs 10
      muster run --name nightly --detach --timeout 2h -- ./nightly.sh
    """
    asked = _Options(**options)
    client = connect(session, asked.namespace)
    gang = asked.gang(client.namespace)
    began = time.monotonic()
    submitted = jobs.submit_gang(client, gang)
    if not submitted.rendezvous.address:
        click.echo(
            "note: where rank 0 will be reached is not known before, so MASTER_ADDR is not set; "
            "set it with --env, or let the ranks meet through a shared file",
            err=True,
        )
    if asked.detach:
        click.echo(gang.name)
        return
    sys.exit(_Attached(client, submitted, asked, began).run())


class _Attached:
    """Follows a job on behalf of a user who may interrupt."""

    def __init__(self, client: Client, submitted: Submitted, asked: _Options, began: float) -> None:
        self._client = client
        self._submitted = submitted
        self._asked = asked
        self._began = began
        self._view: View = PlainView(submitted.name, asked.replicas, began)

    def run(self) -> int:
        try:
            signal.signal(signal.SIGTERM, _on_terminate)
            return self._run()
        except _Terminated:  # when it was all over
            return TERMINATED

    def _run(self) -> int:
        follower = jobs.follow(self._client, self._submitted)
        try:
            self._view = open_view(self._submitted.name, self._asked.replicas, self._began)
            return self._follow(follower)
        except KeyboardInterrupt:  # before there was anything on the screen to ask about
            return self._stop(INTERRUPTED)
        except _Terminated:
            return self._stop(TERMINATED)
        finally:
            self._view.close()
            follower.close()

    def _follow(self, follower: Follower) -> int:
        while True:
            try:
                match follower.next(timeout=None):
                    case Line(rank, text):
                        self._view.line(rank, text)
                    case Moved(status):
                        self._view.moved(status)
                    case LogLost(rank, error):
                        self._view.say(f"the rest of the log of rank {rank} could not be read: {error}")
                    case Stuck(failed, pods):
                        self._view.say(f"rank {failed.rank} failed; stopping the {len(pods)} that still run")
                        jobs.stop_pods(self._client, pods, self._submitted.namespace)
                    case Ended(status, code):
                        self._view.ended(status, code)
                        if self._asked.remove:
                            jobs.stop(self._client, self._submitted.name, self._submitted.namespace)
                        return code
            except KeyboardInterrupt:
                chosen = self._interrupted()
                if chosen is not None:
                    return chosen

    def _interrupted(self) -> int | None:
        """The exit code, or None to go on."""
        if not (rendering.is_terminal(sys.stdin) and rendering.is_terminal(sys.stderr)):
            return self._stop(INTERRUPTED)
        self._view.pause()
        try:
            choice = _ask()
        except (KeyboardInterrupt, EOFError):
            choice = "s"
        if choice == "s":
            return self._stop(INTERRUPTED)
        if choice == "d":
            name = self._submitted.name
            click.echo(f"{name} goes on. Follow it: muster logs -f {name}   Stop it: muster stop {name}", err=True)
            return 0
        self._view.resume()
        return None

    def _stop(self, code: int) -> int:
        signal.signal(signal.SIGTERM, _leave_at_once)  # whoever asks again does not want to wait
        self._view.pause()
        click.echo(f"stopping {self._submitted.name} ...", err=True)
        told = jobs.stop(self._client, self._submitted.name, self._submitted.namespace)
        try:
            jobs.wait_gone(self._client, told, self._submitted.namespace)
            click.echo(f"{self._submitted.name} stopped", err=True)
        except KeyboardInterrupt:
            click.echo("it is still ending; `muster ps` shows when it is gone", err=True)
        return code


def _ask() -> str:
    click.echo("\n[d]etach, [s]top, [c]ontinue? ", nl=False, err=True)
    while True:
        key = click.getchar().lower()
        if key in ("d", "s", "c"):
            click.echo(key, err=True)
            return key


def _on_terminate(_signal: int, _frame: FrameType | None) -> None:
    raise _Terminated


def _leave_at_once(_signal: int, _frame: FrameType | None) -> None:
    os._exit(TERMINATED)
