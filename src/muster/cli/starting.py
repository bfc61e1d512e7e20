"""What `up`, `serve` and `agent` share: options, logging, signals, and errors of the operating system in words."""

import asyncio
import errno
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence

import click
import uvloop

from muster.api import errors, fields
from muster.assembly.logging_live import Console
from muster.runtime import collector

data_option = click.option(
    "--data", metavar="DIR", help="Where everything is kept. [env: MUSTER_DATA; default: ~/.local/share/muster]"
)
fake_gpus_option = click.option(
    "--fake-gpus",
    default=0,
    type=click.IntRange(min=0),
    metavar="N",
    help="Pretend each node has N GPUs, to try things.",
)
label_option = click.option("--label", "labels", multiple=True, metavar="K=V", help="Put a label on the node.")
scheduler_option = click.option(
    "--scheduler-config",
    metavar="FILE",
    help="A KubeSchedulerConfiguration: profiles, plugins, extenders. [key in the configuration file: scheduler]",
)
quota_option = click.option(
    "--quota-config",
    metavar="FILE",
    help="Kueue's Configuration: feature gates, fair sharing, resources. [key in the configuration file: quota]",
)
admission_option = click.option(
    "--admission-config",
    metavar="FILE",
    help="Volcano's admission configuration: resource groups. [key in the configuration file: admission]",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only problems.")
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Print what it does.")


def parse_labels(pairs: Sequence[str]) -> dict[str, str]:
    """Raises BadRequest that names the pair."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not fields.is_qualified_name(key) or not fields.is_label_value(value):
            raise errors.BadRequest(f"--label {pair!r}: write it as key=value, for example --label topology/rack=r1")
        found[key] = value
    return found


def until_signalled(work: Coroutine[object, object, None], *, verbose: bool, address: str = "") -> None:
    """Runs until SIGINT or SIGTERM, then lets the work end in order. A second signal ends it at once."""
    console = logging.StreamHandler()
    console.setFormatter(Console(console.stream))
    console.setLevel(logging.NOTSET if verbose else logging.WARNING)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[console])
    collector.calm()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_cancelled_by_signal(work))
    except (OSError, ExceptionGroup) as raised:
        error = _only(raised)
        if isinstance(error, errors.ApiError):
            raise error from raised
        if not isinstance(error, OSError):
            raise
        if error.errno == errno.EADDRINUSE:
            raise errors.Unavailable(
                f"{address} is in use; is a platform running already? Choose another with --port, or --port 0"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EADDRNOTAVAIL, errno.EPERM):
            raise errors.Unavailable(f"cannot start: {error}") from error
        raise


def _only(error: Exception) -> Exception:
    """What a group of one holds: task groups wrap whatever stops them."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _cancelled_by_signal(work: Coroutine[object, object, None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        task.cancel()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise


def echo(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()
