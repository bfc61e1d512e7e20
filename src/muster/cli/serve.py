"""`muster serve`."""

import click

from muster.access import kubeconfig
from muster.api import errors, raw
from muster.api.ownership import Ownership, Unlabelled
from muster.assembly import embedded
from muster.assembly import starting as ways
from muster.assembly.configured import ServeSettings
from muster.assembly.platform import Objects, OpenObjects, Started
from muster.assembly.serving_clusters import ClusterObjects
from muster.cli import clusters, configuring, starting
from muster.cli.session import Session
from muster.cli.up import show_banner
from muster.deploying import names
from muster.sdk import config
from muster.settings.sections import PlatformSettings


@click.command()
@click.option("--kubeconfig", metavar="FILE", help="Run tasks on the Kubernetes cluster that this file names.")
@clusters.context_option
@click.option("--in-cluster", is_flag=True, help="Run tasks on the Kubernetes cluster in whose pod this runs.")
@clusters.unlabelled_option
@configuring.options
@starting.data_option
@starting.quiet_option
@starting.verbose_option
@click.pass_obj
def command(
    session: Session, /, data: str | None, quiet: bool, verbose: bool, print_config: bool, **flags: raw.JSON
) -> None:
    """Start the API server and controllers, without a node.

    Machines join with `muster agent`; what it prints says how.

    With a Kubernetes cluster, jobs, queues and nodes are those of the cluster, where `muster controller` must run:
    tasks and experiments become pods there. Accounts and records stay with this server.

    \b
    Examples:
      muster serve --host 0.0.0.0
      muster serve --kubeconfig ~/.kube/config --set url=https://muster.example.org
    """
    platform = configuring.settings(flags)
    if print_config:
        configuring.show(platform)
        return
    settings = ServeSettings(config.data_directory(data or session.data or None), platform)

    def announce(started: Started) -> None:
        if not quiet:
            show_banner(started, settings.data)

    work = ways.serve(settings, announce, _objects(flags, platform))
    starting.until_signalled(work, verbose=verbose, address=f"{platform.host}:{platform.port}")


def _objects(flags: raw.Document, platform: PlatformSettings) -> OpenObjects[Objects]:
    """Where they are. Raises BadRequest."""
    ownership = Ownership(Unlabelled(flags["unlabelled"]))
    is_named = bool(flags["kubeconfig"] or flags["context"])
    if flags["in_cluster"] and is_named:
        raise errors.BadRequest("--in-cluster: there --kubeconfig and --context have no meaning")
    if flags["in_cluster"]:
        cluster = kubeconfig.in_cluster()
        scheme = "https" if platform.security.tls.is_on else "http"
        service = f"{scheme}://{names.SERVER}.{cluster.namespace}.svc:{platform.port}"
        return ClusterObjects(cluster, ownership, service)
    if is_named:
        return ClusterObjects(clusters.configured(flags["kubeconfig"], flags["context"]), ownership)
    return embedded.objects
