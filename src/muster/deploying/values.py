"""What of an installation is for its user to choose: the keys of `--set` and of the chart's values.yaml, which are the
same, with their defaults."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from muster.api import raw
from muster.api.ownership import Unlabelled
from muster.api.raw import JSON, Document
from muster.deploying import names
from muster.settings import reading
from muster.settings.reading import Given
from muster.settings.sections import Port, Section

Replicas: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=9)]

_RESOURCES: Mapping[str, JSON] = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}


class Image(Section, frozen=True):
    """`repository`: where your build of deploy/Dockerfile lies. `tag`: the version of this program where it is empty.
    `secrets`: with which it is pulled, each `{name: …}`."""

    repository: str = "muster"
    tag: str = ""
    pull: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    secrets: Sequence[Mapping[str, str]] = ()


class Database(Section, frozen=True):
    """The Secret that holds the address of a PostgreSQL database for the server's records, and the key in it. Without
    it they are in a file on its volume."""

    secret: str = names.DATABASE_SECRET
    key: str = "url"


class Server(Section, frozen=True):
    """`muster serve`: tasks and experiments. `url`: how browsers and `det` reach it, where that is not its Service.
    `storage`: the size of its volume. `settings`: all else that `muster serve --config` takes."""

    enabled: bool = False
    url: str = ""
    storage: str = "20Gi"
    settings: Mapping[str, JSON] = {}
    resources: Mapping[str, JSON] = msgspec.field(default_factory=lambda: dict(_RESOURCES))


class Metrics(Section, frozen=True):
    """`port`: of metrics and probes. `monitor`: whether to make a ServiceMonitor, for Prometheus' operator."""

    port: Port = 8080
    monitor: bool = False


class Webhook(Section, frozen=True):
    """Admission: what fills in and checks jobs and queues when they are made."""

    port: Port = 9443


class Nodes(Section, frozen=True):
    """Where the controllers themselves may run."""

    selector: Mapping[str, str] = {}
    tolerations: Sequence[Mapping[str, JSON]] = ()


class Values(Section, frozen=True):
    """`unlabelled`: whose the objects of Kueue, Volcano and Kubeflow are that have no label `muster.dev/class`.
    `scheduler`: a KubeSchedulerConfiguration. `quota`: Kueue's Configuration. `admission`: Volcano's."""

    image: Image = Image()
    replicas: Replicas = 2
    unlabelled: Unlabelled = Unlabelled.OURS
    server: Server = Server()
    database: Database = Database()
    metrics: Metrics = Metrics()
    webhook: Webhook = Webhook()
    resources: Mapping[str, JSON] = msgspec.field(default_factory=lambda: dict(_RESOURCES))
    nodes: Nodes = Nodes()
    scheduler: Mapping[str, JSON] = {}
    quota: Mapping[str, JSON] = {}
    admission: Mapping[str, JSON] = {}


def read(given: Iterable[Given]) -> Values:
    """The strongest last, over the defaults, as Helm has it: what is said of limits leaves requests alone. Raises
    BadRequest that names the key and where it was found."""
    return reading.merge(Values, [Given("defaults", shown(Values())), *given])


def shown(values: Values) -> Document:
    """As values.yaml has them."""
    return raw.as_object(raw.copy(values))
