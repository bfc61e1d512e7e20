"""Where the platform is and what this user set: flags, environment, configuration file, data directory.

First found wins, in this order: what the caller passed, `$MUSTER_SERVER` and `$MUSTER_TOKEN`, the configuration
file (`$XDG_CONFIG_HOME/muster/config.yaml`), the kubeconfig that `muster up` wrote into its data directory.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

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
    namespace: str = ""
    scheduler: str = ""
    quota: str = ""
    admission: str = ""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a platform. `server` ends where Kubernetes paths begin."""

    server: str
    token: str = ""
    namespace: str = "default"


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
    for key, value in (item for document in documents for item in document.items()):
        if key not in known:
            raise errors.BadRequest(f"{path}: unknown key {key!r}; known keys are {', '.join(known)}")
        if not isinstance(value, str):
            raise errors.BadRequest(f"{path}: {key}: expected a string, found {raw.type_name(value)}")
        merged[key] = value
    return Settings(**merged)


def data_directory(chosen: str | Path | None = None, env: Environment = os.environ) -> Path:
    """The one directory that holds everything the platform keeps. Not created here."""
    found = chosen or env.get("MUSTER_DATA") or read_settings(env).data
    if found:
        return Path(found).expanduser().absolute()
    return Path(env.get("XDG_DATA_HOME") or _home(env) / ".local" / "share") / "muster"


def scheduler_configuration(chosen: str | None = None, env: Environment = os.environ) -> Path | None:
    """The KubeSchedulerConfiguration of a platform that is started here; None for the usual scheduler."""
    return _file(chosen or read_settings(env).scheduler)


def quota_configuration(chosen: str | None = None, env: Environment = os.environ) -> Path | None:
    """Kueue's Configuration for a platform that is started here; None where the defaults are meant."""
    return _file(chosen or read_settings(env).quota)


def admission_configuration(chosen: str | None = None, env: Environment = os.environ) -> Path | None:
    """Volcano's admission configuration for a platform that is started here; None without resource groups."""
    return _file(chosen or read_settings(env).admission)


def _file(found: str) -> Path | None:
    return Path(found).expanduser().absolute() if found else None


def connection(
    server: str = "", token: str = "", data: str | Path | None = None, env: Environment = os.environ
) -> Connection:
    """Raises Unavailable that says how to start a platform where none was found."""
    settings = read_settings(env)
    namespace = env.get("MUSTER_NAMESPACE") or settings.namespace or "default"
    token = token or env.get("MUSTER_TOKEN", "") or settings.token
    # A data directory named by hand means that platform, whatever the environment points at.
    if not data:
        server = server or env.get("MUSTER_SERVER", "") or settings.server
    if server:
        return Connection(server_url(server), token or _secret(server), namespace)
    directory = data_directory(data, env)
    try:
        kubeconfig = (directory / "kubeconfig").read_bytes()
    except FileNotFoundError as error:
        raise errors.Unavailable(f"no platform found at {directory}: start one with `muster up`") from error
    except OSError as error:
        raise errors.Unavailable(f"cannot read {directory / 'kubeconfig'}: {error.strerror}") from error
    found = from_kubeconfig(kubeconfig, str(directory / "kubeconfig"))
    return Connection(found.server, found.token, namespace)


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
    return Connection(server_url(server), reading.text(user, "token") or _secret(server))


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
