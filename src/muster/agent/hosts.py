"""A pod's own /etc/hosts, for pods that have peers or aliases and a view of the file system of their own.

A name that a program makes up itself resolves there: all pods of a machine share its network, so a peer's address is
that of its node. What the machine's own file says holds as well.
"""

from muster.agent.peers import Peers
from muster.api import core

PATH = "/etc/hosts"


def lines(pod: core.Pod, said: Peers | None) -> str:
    """What is to stand before the machine's own lines, of which the first that has a name counts. Empty where the pod
    needs no other than those."""
    peers = _of_peers(pod, said) if said is not None else ()
    aliases = (f"{alias.ip}\t{' '.join(alias.hostnames)}\n" for alias in pod.spec.host_aliases)
    return "".join((*peers, *aliases))


def _of_peers(pod: core.Pod, said: Peers) -> list[str]:
    """With all the names that a cluster's DNS would answer to."""
    found = []
    for host, place in sorted(said.places.items()):
        full = f"{host}.{said.naming.domain}" if said.naming.domain else host
        inside = f"{full}.{pod.metadata.namespace}"
        names = dict.fromkeys((full, host, inside, f"{inside}.svc", f"{inside}.svc.cluster.local"))
        found.append(f"{place.address}\t{' '.join(names)}\n")
    return found
