"""Where a Kubernetes cluster is and how to be let in: from kubeconfig files, or from inside of one of its pods.

Files are read as kubectl reads them: several are merged (`KUBECONFIG`), the first that names something wins, and paths
in them are relative to their own file. What is not supported is refused by name: a cluster must not be reached in
another way than its file says.
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from muster.access import trust
from muster.access.credentials import (
    PLUGIN_VERSIONS,
    Credential,
    Credentials,
    FileCredentials,
    Headers,
    Plugin,
    PluginCredentials,
)
from muster.api import errors, raw

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """`url`: the API server's root. `server_name`: the name to expect in its certificate, where that is not the host's.
    `source`: where all this was found, for messages."""

    url: str
    credentials: Credentials
    namespace: str = "default"
    server_name: str = ""
    source: str = ""


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    api_version: str = ""
    args: tuple[str, ...] | None = None
    env: tuple[_Variable, ...] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: _Exec | None = None
    auth_provider: raw.JSON = None
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] | None = None
    as_user_extra: dict[str, tuple[str, ...]] | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context | None = None


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str | None = None
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    """One named thing of a file. `where` is the start of a field's path, for messages."""

    value: T
    file: Path
    where: str

    def wrong(self, name: str, message: str) -> errors.BadRequest:
        return errors.BadRequest(f"{self.file}: {self.where}.{name}: {message}")

    def path(self, text: str) -> Path:
        return self.file.parent / Path(text).expanduser()

    def text(self, name: str, path: str) -> str:
        """What the file holds that a field names."""
        try:
            return self.path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise self.wrong(name, f"{path} cannot be read: {error}") from error

    def content(self, name: str, path: str, data: str) -> str:
        """Of a field that comes in two forms: with the text itself, which wins, or as a file's name."""
        if not data:
            return self.text(name, path) if path else ""
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise self.wrong(f"{name}-data", f"not base64 of a text: {error}") from error


@dataclass(slots=True)
class _Merged:
    """All files together."""

    current: str = ""
    clusters: dict[str, _Entry[_Cluster]] = field(default_factory=dict)
    users: dict[str, _Entry[_User]] = field(default_factory=dict)
    contexts: dict[str, _Entry[_Context]] = field(default_factory=dict)

    def add(self, path: Path, found: _File) -> None:
        self.current = self.current or found.current_context or ""
        for cluster in found.clusters or ():
            where = f"clusters[{cluster.name}].cluster"
            self.clusters.setdefault(cluster.name, _Entry(cluster.cluster or _Cluster(), path, where))
        for user in found.users or ():
            self.users.setdefault(user.name, _Entry(user.user or _User(), path, f"users[{user.name}].user"))
        for context in found.contexts or ():
            where = f"contexts[{context.name}].context"
            self.contexts.setdefault(context.name, _Entry(context.context or _Context(), path, where))


def read(path: Path | None = None, context: str = "", environment: Mapping[str, str] = os.environ) -> Cluster:
    """The cluster of a context, else of the current one. Without a `path` the files are found as kubectl finds them.
    Raises BadRequest that names the file and the field."""
    paths = [path] if path is not None else default_paths(environment)
    found = [known for known in paths if known.exists()]
    listed = ", ".join(map(str, paths))
    if not found:
        raise errors.BadRequest(f"there is no kubeconfig at {listed}: name one with --kubeconfig or KUBECONFIG")
    merged = _Merged()
    for known in found:
        merged.add(known, _read_file(known))
    chosen = context or merged.current
    if not chosen:
        raise errors.BadRequest(f"{listed}: current-context: is not set; name a context ({_names(merged.contexts)})")
    if chosen not in merged.contexts:
        raise errors.BadRequest(f'{listed}: there is no context "{chosen}", only {_names(merged.contexts)}')
    entry = merged.contexts[chosen]
    cluster = _look_up(entry, "cluster", entry.value.cluster, merged.clusters)
    user = _look_up(entry, "user", entry.value.user, merged.users) if entry.value.user else _nobody(entry)
    return _cluster(cluster, user, entry.value.namespace, f'context "{chosen}" of {entry.file}')


def default_paths(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Where kubectl looks."""
    given = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return given or [Path(environment.get("HOME") or Path.home()) / ".kube" / "config"]


def in_cluster(directory: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> Cluster:
    """The cluster in whose pod this process runs, as the pod's service account. Raises BadRequest outside of one."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise errors.BadRequest(
            "this is not a pod of a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
        )
    token, authority = directory / "token", directory / "ca.crt"

    def load() -> Credential:
        return Credential(_bearer(token.read_text().strip()), _context(authority.read_text()))

    try:
        credentials = FileCredentials(load, [token, authority])
        namespace = (directory / "namespace").read_text().strip()
    except (OSError, ValueError) as error:
        raise errors.BadRequest(f"the pod's service account cannot be read: {error}") from error
    address = f"[{host}]" if ":" in host else host
    return Cluster(f"https://{address}:{port}", credentials, namespace, source="the pod's service account")


def _read_file(path: Path) -> _File:
    try:
        documents = raw.decode_yaml(path.read_bytes())
        return msgspec.convert(documents[0] if documents else {}, _File)
    except OSError as error:
        raise errors.BadRequest(f"{path} cannot be read: {error}") from error
    except errors.BadRequest as error:
        raise errors.BadRequest(f"{path}: {error.message}") from error
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise errors.BadRequest(f"{path}: {where.strip('`').removeprefix('$.') or 'the file'}: {message}") from error


def _names(known: Mapping[str, object]) -> str:
    return ", ".join(f'"{name}"' for name in known) or "none at all"


def _look_up(context: _Entry[_Context], name: str, chosen: str, known: Mapping[str, _Entry[T]]) -> _Entry[T]:
    if chosen not in known:
        raise context.wrong(name, f'there is no {name} "{chosen}", only {_names(known)}')
    return known[chosen]


def _nobody(context: _Entry[_Context]) -> _Entry[_User]:
    return _Entry(_User(), context.file, context.where)


def _cluster(cluster: _Entry[_Cluster], user: _Entry[_User], namespace: str, source: str) -> Cluster:
    server = urlsplit(cluster.value.server)
    if server.scheme not in ("http", "https") or not server.hostname:
        raise cluster.wrong("server", f'expected https://HOST[:PORT], found "{cluster.value.server}"')
    if cluster.value.proxy_url:
        raise cluster.wrong("proxy-url", "proxies are not supported")
    if user.value.auth_provider is not None:
        raise user.wrong("auth-provider", "was replaced by plugins (exec) in Kubernetes 1.26")
    url = server._replace(netloc=server.netloc.rpartition("@")[2]).geturl().rstrip("/")
    credentials = _credentials(cluster, user, server)
    return Cluster(url, credentials, namespace or "default", cluster.value.tls_server_name, source)


def _credentials(cluster: _Entry[_Cluster], user: _Entry[_User], server: SplitResult) -> Credentials:
    is_secure = server.scheme == "https"
    if user.value.exec is not None:
        plugin = _plugin(cluster, user, user.value.exec)

        def dress(token: str, certificate: str, key: str) -> Credential:
            tls = _tls(cluster, (certificate, key) if certificate else _certificate(user)) if is_secure else None
            return Credential((*(_bearer(token) if token else ()), *_impersonation(user.value)), tls)

        return PluginCredentials(plugin, dress)

    def load() -> Credential:
        tls = _tls(cluster, _certificate(user)) if is_secure else None
        return Credential((*_authorization(user, server), *_impersonation(user.value)), tls)

    watched = [cluster.path(cluster.value.certificate_authority)] if cluster.value.certificate_authority else []
    own = (user.value.token_file, user.value.client_certificate, user.value.client_key)
    watched += [user.path(name) for name in own if name]
    return FileCredentials(load, [path for path in watched if path.exists()])


def _authorization(user: _Entry[_User], server: SplitResult) -> Headers:
    found = user.value
    if found.token_file:
        return _bearer(user.text("tokenFile", found.token_file).strip())
    if found.token:
        return _bearer(found.token)
    if found.username:
        return _basic(found.username, found.password)
    if server.username:
        return _basic(unquote(server.username), unquote(server.password or ""))
    return ()


def _bearer(token: str) -> Headers:
    return (("Authorization", f"Bearer {token}"),)


def _basic(name: str, password: str) -> Headers:
    return (("Authorization", f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"),)


def _impersonation(user: _User) -> Headers:
    headers = [("Impersonate-User", user.as_)] if user.as_ else []
    headers += [("Impersonate-Uid", user.as_uid)] if user.as_uid else []
    headers += [("Impersonate-Group", group) for group in user.as_groups or ()]
    extra = user.as_user_extra or {}
    return [*headers, *((f"Impersonate-Extra-{key}", value) for key, values in extra.items() for value in values)]


def _plugin(cluster: _Entry[_Cluster], user: _Entry[_User], found: _Exec) -> Plugin:
    if found.api_version not in PLUGIN_VERSIONS:
        raise user.wrong(
            "exec.apiVersion", f'"{found.api_version}" is not supported, only {" and ".join(PLUGIN_VERSIONS)}'
        )
    if found.interactive_mode == "Always":
        raise user.wrong("exec.interactiveMode", "the plugin wants to ask somebody, but nobody is there")
    info: raw.Document | None = None
    if found.provide_cluster_info:
        info = {"server": cluster.value.server, "insecure-skip-tls-verify": cluster.value.insecure_skip_tls_verify}
        authority = _authority(cluster)
        if authority:
            info["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
        if cluster.value.tls_server_name:
            info["tls-server-name"] = cluster.value.tls_server_name
    # Like a shell: a bare name is looked for in PATH, anything else is a path, here relative to the file.
    command = str(user.path(found.command)) if os.sep in found.command else found.command
    variables = {variable.name: variable.value for variable in found.env or ()}
    return Plugin(found.api_version, command, found.args or (), variables, info, found.install_hint)


# TLS


def _authority(cluster: _Entry[_Cluster]) -> str:
    found = cluster.value
    return cluster.content("certificate-authority", found.certificate_authority, found.certificate_authority_data)


def _certificate(user: _Entry[_User]) -> tuple[str, str] | None:
    found = user.value
    certificate = user.content("client-certificate", found.client_certificate, found.client_certificate_data)
    key = user.content("client-key", found.client_key, found.client_key_data)
    if bool(certificate) is not bool(key):
        present, missing = ("client-certificate", "client-key") if certificate else ("client-key", "client-certificate")
        raise user.wrong(missing, f"is missing, though there is a {present}")
    return (certificate, key) if certificate else None


def _tls(cluster: _Entry[_Cluster], certificate: tuple[str, str] | None) -> ssl.SSLContext:
    found = cluster.value
    if found.insecure_skip_tls_verify and (found.certificate_authority or found.certificate_authority_data):
        raise cluster.wrong("insecure-skip-tls-verify", "makes no sense beside a certificate authority")
    try:
        return _context(_authority(cluster), certificate, verify=not found.insecure_skip_tls_verify)
    except (ssl.SSLError, ValueError) as error:
        raise cluster.wrong("certificate-authority or the user's client-certificate", f"not valid: {error}") from error


def _context(authority: str = "", certificate: tuple[str, str] | None = None, *, verify: bool = True) -> ssl.SSLContext:
    context = trust.client_context(authority)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        # Python reads certificates from files only; this one is ours alone and gone at once.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write("\n".join(certificate))
            file.flush()
            context.load_cert_chain(file.name)
    return context
