"""Which servers a client believes, and how it proves itself to them, from what was configured."""

import ssl
from pathlib import Path

from muster.access.credentials import Credential, Credentials, FileCredentials
from muster.access.trust import client_context
from muster.api import errors
from muster.sdk.config import Connection, Trust
from muster.sdk.transport import HttpTransport


def transport(connection: Connection, server: str = "") -> HttpTransport:
    """`server`: its address, where that is not the connection's own."""
    server, cluster = server or connection.server, connection.cluster
    if cluster is not None:
        return HttpTransport(server, cluster.credentials, name=cluster.server_name, source=cluster.source)
    return HttpTransport(server, fixed(connection.token, context(server, connection.trust)))


def fixed(token: str = "", tls: ssl.SSLContext | None = None) -> Credentials:
    """Whoever has the token, for as long as this runs."""
    headers = (("Authorization", f"Bearer {token}"),) if token else ()
    return FileCredentials(lambda: Credential(headers, tls))


def context(server: str, trust: Trust) -> ssl.SSLContext | None:
    """None for servers without TLS. Raises BadRequest that names the file which will not do."""
    if not server.startswith("https://"):
        return None
    made = client_context()
    try:
        if trust.ca:
            made.load_verify_locations(Path(trust.ca).expanduser())
        if trust.ca_text:
            made.load_verify_locations(cadata=trust.ca_text)
    except (OSError, ssl.SSLError) as error:
        raise errors.BadRequest(f"{trust.ca or 'certificate-authority-data'} holds no certificate: {error}") from error
    if trust.cert:
        key = Path(trust.key).expanduser() if trust.key else None
        try:
            made.load_cert_chain(Path(trust.cert).expanduser(), key)
        except (OSError, ssl.SSLError) as error:
            raise errors.BadRequest(f"{trust.cert} is not a certificate with its key: {error}") from error
    return made
