"""`muster agent`."""

from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path

import click

from muster.access import kubeconfig
from muster.agent import tokens
from muster.api import errors, raw
from muster.assembly import joining, joining_clusters
from muster.assembly.joining import AgentSettings
from muster.assembly.joining_clusters import KubeletSettings
from muster.assembly.machines import NodeSettings
from muster.cli import starting
from muster.cli.session import Session
from muster.sdk import config, trusting

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class _Options:
    server: str | None
    token: str | None
    kubeconfig: Path | None
    context: str
    client_ca: Path | None
    name: str
    fake_gpus: int
    labels: tuple[str, ...]
    host: str | None
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
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Join a Kubernetes cluster instead, in a kubelet's place.",
)
@click.option("--context", default="", metavar="NAME", help="Which context of the kubeconfig, if not the current one.")
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Who signs the certificate with which the cluster's API server asks for logs, if the cluster does not say.",
)
@click.option("--name", default="", metavar="NAME", help="What to call the node; the host's name if not given.")
@starting.fake_gpus_option
@starting.label_option
@click.option(
    "--host",
    metavar="ADDRESS",
    help="The address of this machine, where the server fetches logs. "
    f"[default: {_LOOPBACK}; on a cluster, the one it speaks from]",
)
@click.option(
    "--print-token", is_flag=True, help="Print the token that lets only the node of that --name join, and exit."
)
@starting.data_option
@starting.quiet_option
@starting.verbose_option
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """Join this machine to a platform, or to a Kubernetes cluster, as a node.

    Jobs that run go on when the agent stops, and are found again when it starts.

    \b
    Examples:
      muster agent --server http://head:7077 --token $TOKEN --host 10.0.0.5 --label topology/rack=r1
      muster agent --token $TOKEN --name gpu-7 --print-token
      muster agent --kubeconfig ~/.kube/config --name gpu-7
    """
    asked = _Options(**options)
    if asked.print_token:
        click.echo(_token_of(asked.name, asked.token or session.token or ""))
        return
    work = _of_platform(asked, session) if asked.kubeconfig is None else _of_cluster(asked, session)
    starting.until_signalled(work, verbose=asked.verbose, address=asked.host or _LOOPBACK)


def _of_platform(asked: _Options, session: Session) -> Coroutine[object, object, None]:
    found = config.connection(asked.server or session.server, asked.token or session.token)
    if found.cluster is not None:
        raise errors.BadRequest(f"{found.cluster.source} is a cluster: to join it, name its file with --kubeconfig")
    if not found.token:
        raise errors.BadRequest("a node needs a token: pass the content of the server's node-token file with --token")
    settings = AgentSettings(
        server=found.server,
        token=found.token,
        data=_data(asked, session),
        node=_node(asked),
        host=asked.host or _LOOPBACK,
        tls=trusting.context(found.server, found.trust),
    )
    return joining.agent(settings, lambda name: _announce(asked, f"{name} joins {found.server}"))


def _of_cluster(asked: _Options, session: Session) -> Coroutine[object, object, None]:
    if asked.server or asked.token:
        raise errors.BadRequest("--kubeconfig: a node joins a cluster or a platform; leave out --server and --token")
    cluster = kubeconfig.read(asked.kubeconfig, asked.context)
    settings = KubeletSettings(
        cluster=cluster,
        data=_data(asked, session),
        node=_node(asked),
        host=asked.host or "",
        client_ca=_content("--client-ca", asked.client_ca),
    )
    return joining_clusters.agent(settings, lambda name: _announce(asked, f"{name} joins {cluster.url}"))


def _node(asked: _Options) -> NodeSettings:
    return NodeSettings(fake_gpus=asked.fake_gpus, name=asked.name, labels=starting.parse_labels(asked.labels))


def _data(asked: _Options, session: Session) -> Path:
    return config.data_directory(asked.data or session.data or None)


def _content(option: str, path: Path | None) -> str | None:
    try:
        return None if path is None else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.BadRequest(f"{option}: cannot read {path}: {error}") from error


def _announce(asked: _Options, text: str) -> None:
    if not asked.quiet:
        starting.echo(text)


def _token_of(node: str, cluster_token: str) -> str:
    if not node or not cluster_token:
        raise errors.BadRequest("--print-token: needs --name, of the node, and --token, the server's node-token")
    return tokens.own(cluster_token, node)
