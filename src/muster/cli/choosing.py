"""Which job is meant: by name, by KIND/NAME, and where several have the name, by asking."""

import sys
from collections.abc import Sequence
from typing import Protocol, TypeVar

import click

from muster.cli import rendering
from muster.sdk import finding, queues
from muster.sdk.client import Client
from muster.sdk.dialects import Job
from muster.sdk.queues import Queue


class _Named(Protocol):
    @property
    def shown(self) -> str: ...


Found = TypeVar("Found", bound=_Named)


def job(client: Client, what: str) -> Job:
    """Raises NotFound; Ambiguous where nobody is there to ask."""
    try:
        return finding.find(client, what)
    except finding.Ambiguous as error:
        if not _is_someone_there():
            raise
        return ask(what, error.found)


def queue(client: Client, what: str) -> Queue:
    """Raises NotFound; AmbiguousQueue where nobody is there to ask."""
    try:
        return queues.find(client, what)
    except queues.AmbiguousQueue as error:
        if not _is_someone_there():
            raise
        return ask(what, error.found)


def _is_someone_there() -> bool:
    return rendering.is_terminal(sys.stdin) and rendering.is_terminal(sys.stderr)


def ask(name: str, found: Sequence[Found]) -> Found:
    click.echo(f"Several are called {name}:", err=True)
    for number, entry in enumerate(found, 1):
        click.echo(f"  {number}  {entry.shown}", err=True)
    chosen: int = click.prompt("Which one", type=click.IntRange(1, len(found)), err=True)
    return found[chosen - 1]
