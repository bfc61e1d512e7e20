"""Calls to the server, with the session of the allocation that this is."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER = "Grpc-Metadata-x-allocation-token"
_TIMEOUT_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0


class Refused(Exception):
    """The server has answered, and will answer the same again."""


class Unreachable(Exception):
    """It has not answered, or could not do it now: another try may go well."""


class Master:
    """For one thread. The connection is kept between calls."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        parts = urlsplit(environ["DET_MASTER"])
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname or "localhost"
        self._port = parts.port or (443 if self._is_secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._token = environ["DET_SESSION_TOKEN"]
        self._certificate = environ.get("DET_MASTER_CERT_FILE", "")
        self._name = environ.get("DET_MASTER_CERT_NAME", "")
        self._connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: object = None) -> bytes:
        """Raises Refused, Unreachable."""
        headers = {_HEADER: f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body).encode()
        is_kept = self._connection is not None
        try:
            status, answer = self._send(method, path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not is_kept:
                raise Unreachable(f"{self._host}:{self._port}: {error}") from error
            return self.call(method, path, body)  # an idle connection may have been closed meanwhile
        if status >= 500 or status == 429:
            raise Unreachable(f"status {status}: {answer[:300]!r}")
        if status >= 300:
            raise Refused(f"{method} {path}: status {status}: {answer[:300].decode(errors='replace')}")
        return answer

    def insist(self, method: str, path: str, body: object = None, seconds: float = 60.0) -> bytes:
        """Tries again for so long. Raises Refused, Unreachable."""
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self.call(method, path, body)
            except Unreachable:
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request(method, self._prefix + path, data, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _connect(self) -> http.client.HTTPConnection:
        if not self._is_secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        if self._certificate == "noverify":
            context = ssl._create_unverified_context()  # noqa: S323 - as whoever runs the cluster has asked
        else:
            context = ssl.create_default_context(cafile=self._certificate or None)
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=context)
        if self._name and self._certificate != "noverify":
            connection.sock = self._named(context)
        return connection

    def _named(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        """The certificate is for another name than the one that we reach it by."""
        plain = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        plain.connect()
        return context.wrap_socket(plain.sock, server_hostname=self._name)
