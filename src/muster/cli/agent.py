"""`muster agent`."""

from dataclasses import dataclass

import click

from muster.agent import tokens
from muster.api import errors, raw
from muster.assembly import joining
from muster.assembly.joining import AgentSettings
from muster.assembly.machines import NodeSettings
from muster.cli import starting
from muster.cli.session import Session
from muster.sdk import config, trusting


@dataclass(frozen=True, slots=True)
class _Options:
    server: str | None
    token: str | None
    name: str
    fake_gpus: int
    labels: tuple[str, ...]
    host: str
    print_token: bool
    data: str | None
    quiet: bool
    verbose: bool


@click.command()
@click.option("--server", metavar="URL", help="The platform to join. [env: MUSTER_SERVER]")
@click.option(
    "--token",
    metavar="TOKEN",
    help="The node token, which the server keeps as `node-token` in its data; or the one of this node alone.",
)
@click.option("--name", default="", metavar="NAME", help="What to call the node; the host's name if not given.")
@starting.fake_gpus_option
@starting.label_option
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address of this machine, where the server fetches logs."
)
@click.option(
    "--print-token", is_flag=True, help="Print the token that lets only the node of that --name join, and exit."
)
@starting.data_option
@starting.quiet_option
@starting.verbose_option
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """Join this machine to a platform as a node.

    Jobs that run go on when the agent stops, and are found again when it starts.

    \b
    Examples:
      muster agent --server http://head:7077 --token $TOKEN --host 10.0.0.5 --label topology/rack=r1
      muster agent --token $TOKEN --name gpu-7 --print-token
    """
    asked = _Options(**options)
    if asked.print_token:
        click.echo(_token_of(asked.name, asked.token or session.token or ""))
        return
    found = config.connection(asked.server or session.server, asked.token or session.token)
    if not found.token:
        raise errors.BadRequest("a node needs a token: pass the content of the server's node-token file with --token")
    settings = AgentSettings(
        server=found.server,
        token=found.token,
        data=config.data_directory(asked.data or session.data or None),
        node=NodeSettings(fake_gpus=asked.fake_gpus, name=asked.name, labels=starting.parse_labels(asked.labels)),
        host=asked.host,
        tls=trusting.context(found.server, found.trust),
    )

    def announce(name: str) -> None:
        if not asked.quiet:
            starting.echo(f"{name} joins {found.server}")

    work = joining.agent(settings, announce)
    starting.until_signalled(work, verbose=asked.verbose, address=asked.host)


def _token_of(node: str, cluster_token: str) -> str:
    if not node or not cluster_token:
        raise errors.BadRequest("--print-token: needs --name, of the node, and --token, the server's node-token")
    return tokens.own(cluster_token, node)
