"""The settings of a platform, as typed sections. A name that Determined's master.yaml has means the same here.

Defaults are what a laptop needs. Fields that hold secrets say so, and are never shown.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import msgspec

from muster.api.raw import JSON

SECRET: Final = "secret"  # noqa: S105  the name of a mark
ADDRESS: Final = "address"
Secret: TypeAlias = Annotated[str, msgspec.Meta(extra={SECRET: True})]
"""Shown as stars."""
Address: TypeAlias = Annotated[str, msgspec.Meta(extra={ADDRESS: True})]
"""A URL that may hold a password, which alone is hidden."""
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Days: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=36_500)]
"""A hundred years at most: what never ends has other ways to say so."""
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that is not a field is a mistake, which the reader names."""


class LogLevel(StrEnum):
    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class Log(Section, frozen=True):
    """The server's own log. Both may be changed while it runs."""

    level: LogLevel = LogLevel.INFO
    color: bool = True


class Tls(Section, frozen=True):
    """Paths of PEM files. `client_ca`: who does not show a certificate that it signed is turned away. `ca`: what
    clients should trust the server by, where that is neither in `cert` nor among what their system trusts."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    ca: str = ""

    @property
    def is_on(self) -> bool:
        return bool(self.cert)


class Tokens(Section, frozen=True):
    """Access tokens. `max_lifespan_days`: none where they may live for ever."""

    default_lifespan_days: Days = 30
    max_lifespan_days: Days | None = None


class OidcClaims(Section, frozen=True):
    """Which claims say what. `groups`: empty where no claim decides about groups; `group_names`: what the provider's
    groups are called here, where not the same."""

    username: str = "preferred_username"
    display_name: str = "name"
    groups: str = ""
    group_names: Mapping[str, str] | None = None


class OidcProvider(Section, frozen=True):
    """`issuer`: its URL. `provision`: whether everybody whom it knows gets an account here. `always_redirect`: whether
    the login page goes there at once."""

    name: str
    issuer: str
    client_id: str
    client_secret: Secret = ""
    scopes: Sequence[str] = ("openid", "profile", "email")
    claims: OidcClaims = OidcClaims()
    provision: bool = True
    always_redirect: bool = False


class Security(Section, frozen=True):
    """`initial_user_password`: of the users that the first start makes; one is made up where none is given, and a blank
    one does only where nobody but this machine reaches the server. `oidc`: who else may vouch for users.
    `trusted_proxies`: the networks of reverse proxies, which are believed about where a request comes from."""

    initial_user_password: Secret | None = None
    session_lifespan_days: Days = 7
    token: Tokens = Tokens()
    tls: Tls = Tls()
    oidc: Sequence[OidcProvider] = ()
    trusted_proxies: Sequence[str] = ()


class Tasks(Section, frozen=True):
    """`python`: what tasks run with; where it is empty, a Python of the node's that has Determined's library.
    `bind_mounts`: paths of the nodes below which tasks may mount what they like. `agent_user`: whom tasks run as, where
    that is not whoever runs the server. The timeouts end what nobody uses, where a configuration says nothing; 0 for
    never. `master_url`: by which tasks reach the server, where not as everybody does. `cpu` and `memory`: what a task
    without slots asks for. `sample_seconds`: how often it is measured what trials use; 0 for never."""

    python: str = ""
    bind_mounts: Sequence[str] = ()
    agent_user: str = ""
    notebook_timeout_seconds: Seconds = 0
    tensorboard_timeout_seconds: Seconds = 300
    shell_timeout_seconds: Seconds = 0
    master_url: str = ""
    cpu: str = "100m"
    memory: str = "128Mi"
    sample_seconds: Seconds = 10


class Proxy(Section, frozen=True):
    """Services of tasks. `port`: where browsers are shown their pages, apart from the API; none where that is at the
    server's own address. `url`: how browsers reach that port, where it is not at the host by which they reach us.
    `by_service`: on a Kubernetes cluster we reach tasks by their Services, instead of the addresses of their pods."""

    port: Port | None = None
    url: str = ""
    by_service: bool = False


class RetentionPolicy(Section, frozen=True):
    """`log_retention_days`: how long after a task's end its log is kept; -1 for ever."""

    log_retention_days: Annotated[int, msgspec.Meta(ge=-1, le=32_767)] = -1


class Webhooks(Section, frozen=True):
    """`signing_key`: by which receivers know that events are ours; where it is empty, one is made up and kept in the
    data directory. `base_url`: of the web page, for links in messages. `allowed_networks`: that are not public, and may
    be called all the same, as in 10.1.0.0/16."""

    signing_key: Secret = ""
    base_url: str = ""
    allowed_networks: Sequence[str] = ()


class PlatformSettings(Section, frozen=True):
    """`url`: what others reach the server by, where that is not the address it listens on. `database`: of the records;
    an SQLite file in the data directory where it is empty. `checkpoint_storage`: of experiments that name none; below
    the data directory where it is empty. `scheduler`, `quota` and `admission` name files."""

    host: str = "127.0.0.1"
    port: Port = 7077
    url: str = ""
    cluster_name: str = ""
    database: Address = ""
    security: Security = Security()
    log: Log = Log()
    task_container_defaults: Mapping[str, JSON] = {}
    checkpoint_storage: Mapping[str, JSON] = {}
    tasks: Tasks = Tasks()
    proxy: Proxy = Proxy()
    retention_policy: RetentionPolicy = RetentionPolicy()
    webhooks: Webhooks = Webhooks()
    scheduler: str = ""
    quota: str = ""
    admission: str = ""
