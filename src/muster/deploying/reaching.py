"""The way to a cluster for those who install, remove and examine: they see all objects, whoever looks after them."""

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from muster.access import kubeconfig
from muster.access.kubeconfig import Cluster
from muster.api import raw, status
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.ownership import Ownership
from muster.api.raw import Document
from muster.api.selectors import LabelSelector
from muster.store import wire
from muster.store.connection import Connection
from muster.store.kubernetes import KubernetesStore


@dataclass(frozen=True, slots=True)
class _Everybodys(Ownership):
    def narrow(self, kind: Kind, labels: LabelSelector) -> LabelSelector:
        del kind
        return labels

    def label(self, kind: Kind, document: Document) -> Document:
        del kind
        return document


def cluster(path: str, context: str) -> Cluster:
    """As kubectl finds it where `path` is empty. Raises BadRequest that names the file and the field."""
    return kubeconfig.read(Path(path).expanduser() if path else None, context)


def store(found: Cluster) -> KubernetesStore:
    """Use as an async context manager."""
    return KubernetesStore(found, owned=_Everybodys())


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """`at`: what the server's clock showed when it answered."""

    text: str
    minor: int
    at: Instant | None


async def version(found: Cluster) -> ServerVersion:
    """Raises Unavailable where nobody answers, and what an answer of 400 and above stands for."""
    async with Connection(found.url, found.credentials, server_name=found.server_name) as connection:
        response = await connection.ask(wire.Request("GET", "/version"))
    if response.status >= 400:
        raise status.to_error({"message": response.body[:200].decode(errors="replace")}, response.status)
    document = raw.decode_object(response.body)
    minor = str(document.get("minor", "")).rstrip("+")
    return ServerVersion(
        str(document.get("gitVersion", "")),
        int(minor) if minor.isdigit() else 0,
        _date(response.headers.get("Date", "")),
    )


def _date(text: str) -> Instant | None:
    try:
        return Instant(parsedate_to_datetime(text).timestamp())
    except ValueError:
        return None
