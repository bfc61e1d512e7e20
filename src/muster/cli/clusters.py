"""The options by which commands find a Kubernetes cluster, and tell what in it is ours."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path

import click
from click.decorators import FC

from muster.access import kubeconfig
from muster.access.kubeconfig import Cluster
from muster.api.ownership import Unlabelled
from muster.deploying import names

_OPTIONS = (
    click.option(
        "--kubeconfig", default="", metavar="FILE", help="How to reach the cluster. [default: as kubectl finds it]"
    ),
    click.option("--context", default="", metavar="NAME", help="The context in it. [default: the current one]"),
    click.option(
        "-n",
        "--namespace",
        default=names.NAMESPACE,
        show_default=True,
        metavar="NAME",
        help="Where Muster's controllers run.",
    ),
)


context_option = click.option(
    "--context", default="", metavar="NAME", help="Another context of that file than the current one."
)
unlabelled_option = click.option(
    "--unlabelled",
    default=Unlabelled.OURS.value,
    show_default=True,
    type=click.Choice([each.value for each in Unlabelled]),
    help="Whose are objects of Kueue, Volcano and Kubeflow without the label muster.dev/class? `theirs` where their "
    "own controllers run as well.",
)


def configured(file: str | None, context: str) -> Cluster:
    """The one that a kubeconfig names; without a file the one that kubectl finds."""
    return kubeconfig.read(Path(file).expanduser() if file else None, context)


def options(command: FC) -> FC:
    decorators: tuple[Callable[[FC], FC], ...] = _OPTIONS
    return reduce(lambda decorated, decorator: decorator(decorated), reversed(decorators), command)
