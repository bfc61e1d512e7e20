"""The options by which commands find a Kubernetes cluster."""

from collections.abc import Callable
from functools import reduce

import click
from click.decorators import FC

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


def options(command: FC) -> FC:
    decorators: tuple[Callable[[FC], FC], ...] = _OPTIONS
    return reduce(lambda decorated, decorator: decorator(decorated), reversed(decorators), command)
