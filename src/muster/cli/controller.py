"""`muster controller`."""

from dataclasses import dataclass

import click

from muster.access import kubeconfig
from muster.access.kubeconfig import Cluster
from muster.api import errors, raw
from muster.api.ownership import Ownership, Unlabelled
from muster.assembly import clustered
from muster.assembly.admission import WebhookSettings
from muster.assembly.clustered import ControllerSettings, Running
from muster.cli import clusters, configuring, starting
from muster.deploying import names

_EVERYWHERE = "0.0.0.0"  # noqa: S104  a pod's own address, which the cluster asks by
_HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class _Options:
    kubeconfig: str | None
    context: str
    namespace: str
    unlabelled: str
    host: str | None
    metrics_port: int
    webhook_port: int | None
    webhook_url: str
    pod: str
    scheduler_config: str | None
    quota_config: str | None
    admission_config: str | None
    config: str | None
    quiet: bool
    verbose: bool


@click.command()
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="How to reach the cluster. Without it, and without --context: as the pod that this runs in, else as kubectl.",
)
@clusters.context_option
@click.option(
    "--namespace",
    default=names.NAMESPACE,
    show_default=True,
    metavar="NAME",
    help="Where replicas elect their leader and keep the certificate of the webhooks.",
)
@clusters.unlabelled_option
@click.option("--host", metavar="ADDRESS", help="The address to listen on. [default: all in a pod, else 127.0.0.1]")
@click.option(
    "--metrics-port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Of /metrics, /healthz and /readyz. 0 takes any free port.",
)
@click.option(
    "--webhook-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Answer admission webhooks and what is asked about queues there, over TLS, and register both. Without it new "
    "objects are neither filled in nor checked.",
)
@click.option(
    "--webhook-url",
    default="",
    metavar="URL",
    help="Where the API server reaches that port, if not by the Services of an installation: https://10.0.0.5:9443.",
)
@click.option(
    "--pod",
    default="",
    envvar="MUSTER_POD",
    metavar="NAME",
    help="The pod that this runs in. The leader labels it, and the Service muster-visibility leads there. "
    "[env: MUSTER_POD]",
)
@starting.scheduler_option
@starting.quota_option
@starting.admission_option
@configuring.file_option
@starting.quiet_option
@starting.verbose_option
def command(**options: raw.JSON) -> None:
    """Run the controllers on a Kubernetes cluster.

    Jobs and queues of Volcano and Kueue work on that cluster as they do on a platform of our own: gangs are placed
    whole, quota is shared and borrowed. Pods with `schedulerName: muster` (or `volcano`) are placed by us; all others
    are left to the cluster's own scheduler. Start several: one leads, the others stand by.

    `muster install` makes a cluster run this by itself.

    \b
    Examples:
      muster controller --kubeconfig ~/.kube/config
      muster controller --context lab --unlabelled theirs
      muster controller --webhook-port 9443 --webhook-url https://10.0.0.5:9443
    """
    asked = _Options(**options)
    cluster, is_in_pod = _cluster(asked)
    settings = _settings(asked, is_in_pod)

    def announce(running: Running) -> None:
        if not asked.quiet:
            starting.echo(f"{running.identity} is ready to lead on {cluster.url}")
            starting.echo(f"  metrics  {running.probes}/metrics")

    work = clustered.controller(cluster, settings, announce)
    starting.until_signalled(work, verbose=asked.verbose, address=f"{settings.host}:{asked.metrics_port}")


def _settings(asked: _Options, is_in_pod: bool) -> ControllerSettings:
    """Raises BadRequest that names the option or the file."""
    host = asked.host or (_EVERYWHERE if is_in_pod else _HERE)
    if asked.webhook_url and asked.webhook_port is None:
        raise errors.BadRequest("--webhook-url: needs --webhook-port, on which the webhooks listen")
    if asked.webhook_url and not asked.webhook_url.startswith("https://"):
        raise errors.BadRequest(f"--webhook-url {asked.webhook_url!r}: API servers ask over https:// only")
    webhooks = None
    if asked.webhook_port is not None:
        webhooks = WebhookSettings(host, asked.webhook_port, asked.webhook_url, asked.pod)
    flags = ("scheduler_config", "quota_config", "admission_config", "config")
    return ControllerSettings(
        namespace=asked.namespace,
        ownership=Ownership(Unlabelled(asked.unlabelled)),
        platform=configuring.settings({name: getattr(asked, name) for name in flags}),
        host=host,
        metrics_port=asked.metrics_port,
        webhooks=webhooks,
    )


def _cluster(asked: _Options) -> tuple[Cluster, bool]:
    """And whether this is a pod of it."""
    if not asked.kubeconfig and not asked.context and kubeconfig.SERVICE_ACCOUNT.exists():
        return kubeconfig.in_cluster(), True
    return clusters.configured(asked.kubeconfig, asked.context), False
