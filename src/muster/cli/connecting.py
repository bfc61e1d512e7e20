"""A client for the platform that the command line means, and the options that many commands share."""

from collections.abc import Callable
from dataclasses import replace

import click
from click.decorators import FC

from muster.cli.session import Session
from muster.sdk import config
from muster.sdk.client import Client
from muster.sdk.config import Connection


def connection(session: Session) -> Connection:
    return config.connection(
        session.server,
        session.token,
        session.data or None,
        kubeconfig=session.kubeconfig,
        context=session.context,
    )


def connect(session: Session, namespace: str | None = None) -> Client:
    found = connection(session)
    if namespace:
        found = replace(found, namespace=namespace)
    return Client(found)


namespace_option = click.option(
    "-n", "--namespace", metavar="NAME", help="Look there instead of in the usual one. [env: MUSTER_NAMESPACE]"
)


def output_option(*formats: str) -> Callable[[FC], FC]:
    return click.option("-o", "--output", type=click.Choice(formats), help="Print in this format instead.")
