"""The secrets by which nodes and the server know each other, all made from the one that the cluster has for them.

The cluster's token lets a machine join under any name. A node's own token, which has its name in it, lets it speak for
itself and for no other node; with what is made from that in turn the server asks the node for logs. Whoever learns the
secret of one node, or of its log endpoint, can make none of the others from it.
"""

import hmac
from base64 import urlsafe_b64encode

from muster.api import errors


def of_node(cluster: str, name: str) -> str:
    """`cluster`: the cluster's token."""
    return f"{name}.{_derived(cluster, f'node {name}')}"


def node_of(cluster: str, token: str) -> str | None:
    """Which node's own the token is; None where it is nobody's."""
    name = token.rpartition(".")[0]
    is_right = bool(name) and hmac.compare_digest(of_node(cluster, name).encode(), token.encode())
    return name if is_right else None


def own(given: str, name: str) -> str:
    """The token of the node of that name. `given`: the cluster's, or its own already. Raises BadRequest for one that is
    another node's."""
    of, dot, _ = given.rpartition(".")
    if not dot:  # the cluster's has none
        return of_node(given, name)
    if of != name:
        raise errors.BadRequest(f"--token: it is the one of node {of!r}, and this node is called {name!r}")
    return given


def for_logs(own: str) -> str:
    """What the server must carry to read the logs of the node's pods, and what they use. `own`: the node's own
    token."""
    return _derived(own, "logs")


def _derived(secret: str, purpose: str) -> str:
    made = hmac.digest(secret.encode(), purpose.encode(), "sha256")
    return urlsafe_b64encode(made).rstrip(b"=").decode()
