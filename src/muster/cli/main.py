"""The entry point: finds the command, runs it, and turns what goes wrong into one line and an exit code.

Every command lives in its own module, imported when it is used: `muster --help` must answer
at once, so this module may import click and nothing slower.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence

import click

from muster.cli.groups import Group
from muster.cli.session import Session

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Start a platform": {
        "up": "Start a whole platform on this machine.",
        "serve": "Start the API server and controllers, without a node.",
        "agent": "Join this machine to a platform, or to a Kubernetes cluster, as a node.",
    },
    "On a Kubernetes cluster": {
        "install": "Install Muster's controllers on a Kubernetes cluster.",
        "uninstall": "Remove Muster's controllers from a Kubernetes cluster.",
        "doctor": "Examine a cluster, or this machine, and say what is missing.",
        "controller": "Run the controllers on a Kubernetes cluster.",
    },
    "Run jobs": {
        "run": "Run a command as a job, follow it, exit with its code.",
        "submit": "Submit jobs of any kind from files, and follow them.",
        "ps": "List jobs of every kind: state, pods, queue, and why they wait.",
        "logs": "Print the logs of a pod or of a whole job.",
        "why": "Tell why a job, pod or workload waits.",
        "suspend": "Suspend jobs: their pods end, they stay.",
        "resume": "Resume suspended jobs.",
        "restart": "Run jobs again from their beginning.",
        "scale": "Change how many pods a job has.",
        "stop": "Stop jobs of any kind and remove them.",
    },
    "Search hyperparameters": {
        "exp": "Run experiments and hyperparameter searches.",
    },
    "See and shape the cluster": {
        "nodes": "Show nodes and how full they are.",
        "queues": "Show queues: who waits, and how much of their quota is used.",
        "queue": "Make, open, close and delete queues.",
        "sim": "Simulate a cluster in virtual time.",
    },
    "Work with objects": {
        "apply": "Create or change objects from files.",
        "get": "List objects, or print one.",
        "describe": "Show all about one object, with its events.",
        "delete": "Delete objects.",
        "decisions": "Print the scheduler's log of decisions, or decide them again.",
        "version": "Print the versions of this program and the server.",
    },
}
"""Sections of `muster --help`: each command with the first line of its help (a test keeps the two equal)."""

ALIASES: Mapping[str, str] = {"cancel": "stop"}
_TAKE_CLUSTERS = ("install", "uninstall", "doctor", "controller", "agent", "serve")
"""Commands that have options --kubeconfig and --context of their own: given before the command, they mean the same."""


class LazyGroup(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in self.list_commands(ctx):
            return None
        found = importlib.import_module(f"muster.cli.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(section.items()), col_max=12)


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"muster {importlib.import_module('muster.version').VERSION}")
        ctx.exit()


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
New here? Start a platform in one terminal and run something in another:
  muster up
  muster run --replicas 2 -- python -c 'import os; print("rank", os.environ["RANK"])'
""",
)
@click.option("--server", metavar="URL", help="The platform's address. [env: MUSTER_SERVER]")
@click.option("--token", metavar="TOKEN", help="The token to present there. [env: MUSTER_TOKEN]")
@click.option("--data", metavar="DIR", help="The data directory of a platform on this machine. [env: MUSTER_DATA]")
@click.option(
    "--kubeconfig", metavar="FILE", help="A Kubernetes cluster instead, as this file says. [env: MUSTER_KUBECONFIG]"
)
@click.option("--context", metavar="NAME", help="Another context than the current one, of that file or of kubectl's.")
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Print the version."
)
@click.pass_context
def muster(ctx: click.Context, /, **options: str | None) -> None:
    """One platform for AI training clusters, from a laptop to a cluster."""
    ctx.obj = Session(*(options[name] or "" for name in Session._fields))
    given = {name: options[name] for name in ("kubeconfig", "context") if options[name]}
    ctx.default_map = {command: given for command in _TAKE_CLUSTERS}


def main() -> None:
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: Sequence[str]) -> int:
    """Runs the command line and returns the exit code; prints what went wrong."""
    try:
        code = muster.main(args=list(arguments), prog_name="muster", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see `{context.command_path} --help`" if context else ""
        print(f"error: {error.format_message().rstrip('.')}{hint}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if os.environ.get("MUSTER_DEBUG"):
            raise
        return int(importlib.import_module("muster.cli.reporting").report(error))


if __name__ == "__main__":
    main()
