"""What a request to a Kubernetes API server carries to be let in, kept fresh.

Tokens and certificates in files are rotated under us, and a plugin's answer ends at a time that it names. So nobody
keeps a credential: each request asks for the current one, which costs nothing until something has changed. Clients of
every kind use this, so nothing here needs an event loop.
"""

import logging
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import msgspec

from muster.api import errors, raw, timestamps
from muster.api.raw import Document

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0  # between two looks at the files: kubelets renew tokens many minutes before their end
_EARLY_SECONDS = 30.0  # a plugin is asked again this long before the end of what it gave
_PLUGIN_SECONDS = 60.0
_MOST_STDERR = 400

Headers: TypeAlias = Sequence[tuple[str, str]]
Now: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Credential:
    """`headers` of every request; a name may come twice. `tls`: whom to believe, who we are; None over plain HTTP."""

    headers: Headers = ()
    tls: ssl.SSLContext | None = None


class Credentials(Protocol):
    """May be used from many threads."""

    def known(self) -> Credential | None:
        """The current one; None where somebody has to be asked for it."""
        ...

    def current(self) -> Credential:
        """The same, but asks, which may take a minute. Raises Unauthorized, or Unavailable."""
        ...

    def forget(self, credential: Credential) -> None:
        """The server does not take it any more."""
        ...


Stamp: TypeAlias = tuple[tuple[int, int], ...]
Load: TypeAlias = Callable[[], Credential]


class FileCredentials:
    """What `load` makes of `files`, made again when one of them has changed."""

    def __init__(self, load: Load, files: Sequence[Path] = (), *, now: Now = time.monotonic) -> None:
        self._load = load
        self._files = files
        self._now = now
        self._stamp = _stamp(files)
        self._credential = load()
        self._look_at = now() + _LOOK_SECONDS

    def known(self) -> Credential:
        if self._files and self._now() >= self._look_at:
            self._look()
        return self._credential

    def current(self) -> Credential:
        return self.known()

    def forget(self, credential: Credential) -> None:
        if credential is self._credential:
            self._look_at = self._now()

    def _look(self) -> None:
        self._look_at = self._now() + _LOOK_SECONDS
        try:
            stamp = _stamp(self._files)
            if stamp != self._stamp:
                self._credential = self._load()
                self._stamp = stamp
        except (OSError, errors.ApiError) as error:
            # Files are often replaced in several steps; what was read before may still be good.
            _log.warning("credentials could not be read again: %s", error)


def _stamp(files: Sequence[Path]) -> Stamp:
    found = [path.stat() for path in files]
    return tuple((info.st_mtime_ns, info.st_ino) for info in found)


PLUGIN_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A program that prints an `ExecCredential`. `hint`: what to tell those who do not have it."""

    version: str
    command: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    cluster: Document | None = None
    hint: str = ""


class _PluginStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _PluginAnswer(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    status: _PluginStatus = _PluginStatus()


_answer_decoder = msgspec.json.Decoder(_PluginAnswer)
Dress: TypeAlias = Callable[[str, str, str], Credential]
"""Makes a credential of a token, a certificate and its key, each of which may be empty."""


class PluginCredentials:
    """What the plugin said last, until that ends."""

    def __init__(self, plugin: Plugin, dress: Dress, *, now: Now = time.time) -> None:
        self._plugin = plugin
        self._dress = dress
        self._now = now
        self._answer: _Answer | None = None
        # A plugin may ask a person, or a service that counts: one at a time, and the others take what it gets.
        self._turn = threading.Lock()

    def known(self) -> Credential | None:
        answer = self._answer
        if answer is None or (answer.ends_at is not None and self._now() >= answer.ends_at):
            return None
        return answer.credential

    def current(self) -> Credential:
        with self._turn:
            found = self.known()
            if found is None:
                said = _ask(self._plugin)
                found = self._dress(said.token, said.client_certificate_data, said.client_key_data)
                self._answer = _Answer(found, _end(self._plugin, said))
            return found

    def forget(self, credential: Credential) -> None:
        # Many requests find out at once: what was renewed for the first of them is good for the others.
        if self._answer is not None and credential is self._answer.credential:
            self._answer = None


@dataclass(frozen=True, slots=True)
class _Answer:
    credential: Credential
    ends_at: float | None


def _end(plugin: Plugin, answer: _PluginStatus) -> float | None:
    if not answer.expiration_timestamp:
        return None
    try:
        return timestamps.parse(answer.expiration_timestamp) - _EARLY_SECONDS
    except timestamps.BadTimestamp as error:
        message = f"the credential plugin {plugin.command}: status.expirationTimestamp: {error}"
        raise errors.Unauthorized(message) from error


def _ask(plugin: Plugin) -> _PluginStatus:
    spec: Document = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    asked = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": raw.encode(asked).decode()}
    try:
        done = subprocess.run(
            [plugin.command, *plugin.arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PLUGIN_SECONDS,
            check=False,
        )
    except OSError as error:
        hint = f"\n{plugin.hint}" if plugin.hint else ""
        raise errors.Unauthorized(f"the credential plugin {plugin.command} cannot be run: {error}{hint}") from error
    except subprocess.TimeoutExpired as error:
        raise errors.Unavailable(f"the credential plugin {plugin.command} took over {_PLUGIN_SECONDS:.0f} s") from error
    if done.returncode:
        said = done.stderr[-_MOST_STDERR:].decode(errors="replace").strip()
        raise errors.Unavailable(f"the credential plugin {plugin.command} ended with {done.returncode}: {said}")
    return _read_answer(plugin, done.stdout)


def _read_answer(plugin: Plugin, out: bytes) -> _PluginStatus:
    try:
        answer = _answer_decoder.decode(out)
    except msgspec.DecodeError as error:
        message = f"the credential plugin {plugin.command} printed no ExecCredential: {error}"
        raise errors.Unauthorized(message) from error
    if answer.api_version != plugin.version:
        message = f"the credential plugin {plugin.command} answered in {answer.api_version!r}, not {plugin.version}"
        raise errors.Unauthorized(message)
    status = answer.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise errors.Unauthorized(f"the credential plugin {plugin.command} gave neither a token nor a certificate")
    return status
