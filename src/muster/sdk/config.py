"""Where the platform is and what this user set: flags, environment, configuration file, data directory.

First found wins, in this order: what the caller passed, `$MUSTER_SERVER` and its like, the configuration
file (`$XDG_CONFIG_HOME/muster/config.yaml`), the kubeconfig that `muster up` wrote into its data directory.
A Kubernetes cluster takes the place of a platform where its kubeconfig is named; `$KUBECONFIG` alone does not, since
those who have it set for kubectl would reach another cluster than they did.
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from muster.access import kubeconfig as kubeconfigs
from muster.access.kubeconfig import Cluster
from muster.api import errors, raw
from muster.sdk import reading

DEFAULT_PORT = 7077
KUBERNETES_PATH = "/k8s"

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration file: these keys and no others, all optional."""

    data: str = ""
    server: str = ""
    token: str = ""
    kubeconfig: str = ""
    namespace: str = ""
    ca: str = ""
    client_cert: str = ""
    client_key: str = ""
    scheduler: str = ""
    quota: str = ""
    admission: str = ""
    platform: Mapping[str, raw.JSON] = field(default_factory=dict)
    """Of a platform that is started here: see `muster.settings`, which knows its keys."""


@dataclass(frozen=True, slots=True)
class Trust:
    """For servers with TLS. `ca`: a file in PEM, or `ca_text`: its content; where both are empty, the server must have
    a certificate that this system trusts. `cert` and `key`: files, for servers that want to see a certificate."""

    ca: str = ""
    ca_text: str = ""
    cert: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a platform. `server` ends where Kubernetes paths begin. `cluster`: where it is one of Kubernetes,
    which knows by itself how to be let in."""

    server: str
    token: str = ""
    namespace: str = "default"
    trust: Trust = Trust()
    cluster: Cluster | None = None


def settings_path(env: Environment = os.environ) -> Path:
    return Path(env.get("XDG_CONFIG_HOME") or _home(env) / ".config") / "muster" / "config.yaml"


def read_settings(env: Environment = os.environ) -> Settings:
    """The configuration file, or nothing set where there is none. Raises BadRequest that names an unknown key."""
    path = settings_path(env)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise errors.BadRequest(f"cannot read {path}: {error.strerror}") from error
    try:
        documents = raw.decode_yaml(text)
    except errors.BadRequest as error:
        raise errors.BadRequest(f"{path}: {error.message}") from error
    known = [field.name for field in fields(Settings)]
    merged: dict[str, str] = {}
    platform: Mapping[str, raw.JSON] = {}
    for key, value in (item for document in documents for item in document.items()):
        if key not in known:
            raise errors.BadRequest(f"{path}: unknown key {key!r}; known keys are {', '.join(known)}")
        if key == "platform":
            platform = _mapping(value, path)
            continue
        if not isinstance(value, str):
            raise errors.BadRequest(f"{path}: {key}: expected a string, found {raw.type_name(value)}")
        merged[key] = value
    return Settings(**merged, platform=platform)


def _mapping(value: raw.JSON, path: Path) -> Mapping[str, raw.JSON]:
    if not isinstance(value, dict):
        raise errors.BadRequest(f"{path}: platform: expected a mapping of settings, found {raw.type_name(value)}")
    return value


def data_directory(chosen: str | Path | None = None, env: Environment = os.environ) -> Path:
    """The one directory that holds everything the platform keeps. Not created here."""
    found = chosen or env.get("MUSTER_DATA") or read_settings(env).data
    if found:
        return Path(found).expanduser().absolute()
    return Path(env.get("XDG_DATA_HOME") or _home(env) / ".local" / "share") / "muster"


def connection(
    server: str = "",
    token: str = "",
    data: str | Path | None = None,
    env: Environment = os.environ,
    *,
    kubeconfig: str | Path = "",
    context: str = "",
) -> Connection:
    """`kubeconfig`, or a `context` of it or else of kubectl's own: a cluster instead of a platform. Raises Unavailable
    that says how to start a platform where none was found."""
    settings = read_settings(env)
    namespace = env.get("MUSTER_NAMESPACE") or settings.namespace
    if kubeconfig or context:
        _check_alone(server, token, data)
        return _to_cluster(kubeconfig or env.get("MUSTER_KUBECONFIG") or settings.kubeconfig, context, namespace)
    # A server or a data directory named by hand means that platform, whatever the environment points at.
    if not server and not data:
        server, kubeconfig = _chosen(env, settings)
        if kubeconfig:
            return _to_cluster(kubeconfig, "", namespace)
    namespace, trust = namespace or "default", _trust(settings, env)
    if not data:
        token = token or env.get("MUSTER_TOKEN", "") or settings.token
    if server:
        return Connection(server_url(server), token or _secret(server), namespace, trust)
    found = _to_own(data_directory(data, env), namespace, trust)
    return replace(found, token=token or found.token)


def _check_alone(server: str, token: str, data: str | Path | None) -> None:
    for option, given in (("--server", server), ("--token", token), ("--data", data)):
        if given:
            raise errors.BadRequest(f"{option}: is for platforms of our own; a kubeconfig says all about its cluster")


def _chosen(env: Environment, settings: Settings) -> tuple[str, str]:
    """The address of a server, or the kubeconfig of a cluster, or neither."""
    named = env.get("MUSTER_SERVER", ""), env.get("MUSTER_KUBECONFIG", "")
    if all(named):
        raise errors.BadRequest("MUSTER_SERVER and MUSTER_KUBECONFIG are both set: which of the two is meant?")
    if any(named):
        return named
    if settings.server and settings.kubeconfig:
        raise errors.BadRequest(f"{settings_path(env)}: server and kubeconfig: only one of the two can be meant")
    return settings.server, settings.kubeconfig


def _to_cluster(kubeconfig: str | Path, context: str, namespace: str) -> Connection:
    found = kubeconfigs.read(Path(kubeconfig).expanduser() if kubeconfig else None, context)
    return Connection(found.url, namespace=namespace or found.namespace, cluster=found)


def _to_own(directory: Path, namespace: str, trust: Trust) -> Connection:
    """The platform that keeps its data there."""
    try:
        kubeconfig = (directory / "kubeconfig").read_bytes()
    except FileNotFoundError as error:
        raise errors.Unavailable(f"no platform found at {directory}: start one with `muster up`") from error
    except OSError as error:
        raise errors.Unavailable(f"cannot read {directory / 'kubeconfig'}: {error.strerror}") from error
    found = from_kubeconfig(kubeconfig, str(directory / "kubeconfig"))
    known = found.trust
    trust = Trust(trust.ca, "" if trust.ca else known.ca_text, trust.cert or known.cert, trust.key or known.key)
    return replace(found, namespace=namespace, trust=trust)


def _trust(settings: Settings, env: Environment) -> Trust:
    return Trust(
        ca=env.get("MUSTER_CA") or settings.ca,
        cert=env.get("MUSTER_CLIENT_CERT") or settings.client_cert,
        key=env.get("MUSTER_CLIENT_KEY") or settings.client_key,
    )


def from_kubeconfig(text: bytes, source: str) -> Connection:
    """The current context of a kubeconfig that carries a bearer token, as ours does."""
    documents = raw.decode_yaml(text)
    config = documents[0] if documents else {}
    context = _named(config, "contexts", config.get("current-context"), "context")
    cluster = _named(config, "clusters", raw.dig(context, "cluster"), "cluster")
    user = _named(config, "users", raw.dig(context, "user"), "user")
    server = raw.dig(cluster, "server")
    if not isinstance(server, str):
        raise errors.BadRequest(f"{source}: the current context names no server; run `muster up` to write it afresh")
    trust = Trust(
        reading.text(cluster, "certificate-authority"),
        _decoded(reading.text(cluster, "certificate-authority-data"), source),
        reading.text(user, "client-certificate"),
        reading.text(user, "client-key"),
    )
    return Connection(server_url(server), reading.text(user, "token") or _secret(server), trust=trust)


def _decoded(text: str, source: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("ascii")
    except ValueError as error:
        raise errors.BadRequest(f"{source}: certificate-authority-data is not PEM in base64") from error


def server_url(text: str) -> str:
    """`host:7077`, `http://host:7077` and `http://host:7077/k8s` all mean the Kubernetes API of that server.

    A user and password in the URL are left out: what is sent is the token, and the address is shown in messages.
    """
    scheme, _, rest = (text if "://" in text else f"http://{text}").partition("://")
    rest = rest.rpartition("@")[2].rstrip("/")
    if scheme not in ("http", "https") or not rest:
        raise errors.BadRequest(f"{text!r} is not a server address; expected something like http://127.0.0.1:7077")
    return f"{scheme}://{rest}{'' if '/' in rest else KUBERNETES_PATH}"


def _secret(server: str) -> str:
    """The password in a URL: kubectl sends no token over plain HTTP, so our kubeconfig has it there as well."""
    credentials = server.partition("://")[2].rpartition("@")[0]
    return credentials.partition(":")[2]


def _named(config: raw.Document, section: str, name: raw.JSON, inside: str) -> raw.JSON:
    for entry in config.get(section) or ():
        if raw.dig(entry, "name") == name:
            return raw.dig(entry, inside)
    return None


def _home(env: Environment) -> Path:
    return Path(env.get("HOME") or Path.home())
