"""TLS of the server: a context from PEM files, which follows them when they are renewed; what clients trust."""

import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.api import errors
from muster.runtime.clock import Clock

_log = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 30.0
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; all those of 1.3 are good."""


@dataclass(frozen=True, slots=True)
class Files:
    """`client_ca`: None where clients need no certificate of their own."""

    cert: Path
    key: Path
    client_ca: Path | None = None


def server_context(files: Files) -> ssl.SSLContext:
    """Raises BadRequest that names the file which will not do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    _load(context, files)
    if files.client_ca is not None:
        _readable("security.tls.client_ca", files.client_ca)
        try:
            context.load_verify_locations(files.client_ca)
        except ssl.SSLError as error:
            told = f"security.tls.client_ca: {files.client_ca} holds no certificate: {error}"
            raise errors.BadRequest(told) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Renewal:
    """Connections that are made after the files have changed see the new certificate; nobody is disconnected."""

    def __init__(self, context: ssl.SSLContext, files: Files, clock: Clock) -> None:
        self._context = context
        self._files = files
        self._clock = clock
        self._seen = self._stamp()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        found = self._stamp()
        if found == self._seen:
            return
        try:
            # Tried apart first: a key that does not match would leave the context in use with half of the new pair.
            server_context(self._files)
            _load(self._context, self._files)
        except errors.BadRequest as error:
            _log.error("the renewed certificate is not used: %s", error.message)
            return
        self._seen = found
        _log.info("using the renewed certificate %s", self._files.cert)

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        try:
            found = [os.stat(path) for path in (self._files.cert, self._files.key)]
        except OSError:
            return ()  # being replaced
        return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)


def own_authorities(cert: Path) -> str:
    """PEM of what is in the server's own file that a client could trust: a certificate that signed itself. Empty where
    there is none: then it was signed by somebody whom clients know, or must be told of."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cert)
    subjects = [found.get("subject") for found in context.get_ca_certs() if found.get("subject") == found.get("issuer")]
    if not subjects:
        return ""
    return "".join(
        ssl.DER_cert_to_PEM_cert(der)
        for der, found in zip(context.get_ca_certs(binary_form=True), context.get_ca_certs(), strict=True)
        if found.get("subject") in subjects
    )


def _load(context: ssl.SSLContext, files: Files) -> None:
    _readable("security.tls.cert", files.cert)
    _readable("security.tls.key", files.key)
    try:
        context.load_cert_chain(files.cert, files.key, password=_refuse_password)
    except (ssl.SSLError, ValueError) as error:
        raise errors.BadRequest(
            f"security.tls: {files.cert} and {files.key} are not a certificate and its key in PEM: {error}"
        ) from error


def _refuse_password() -> str:
    raise ValueError("the key has a password, which nobody could type here")


def _readable(name: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise errors.BadRequest(f"{name}: cannot read {path}: {error.strerror}") from error
