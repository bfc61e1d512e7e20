"""The certificate of an agent's endpoint: made when the agent starts, known by its fingerprint on the Node, and signed
by nobody else. The server believes that one certificate and no authority, so none is needed on either side."""

import hashlib
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from muster.api.meta import Instant

_LIFETIME: Final = timedelta(days=3650)
"""Longer than any agent runs: who pins a certificate does not look at its dates."""
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Certificate:
    """`fingerprint`: its SHA-256, in hexadecimal."""

    context: ssl.SSLContext
    fingerprint: str


def make(name: str, directory: Path, now: Instant) -> Certificate:
    """`name`: of the node. `directory`: nobody else may read it; the key is there for a moment, since OpenSSL takes it
    from a file only."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = _signed(name, key, datetime.fromtimestamp(now, UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.NamedTemporaryFile(dir=directory, suffix=".pem") as file:
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        file.write(made.public_bytes(serialization.Encoding.PEM))
        file.flush()
        context.load_cert_chain(file.name)
    return Certificate(context, hashlib.sha256(made.public_bytes(serialization.Encoding.DER)).hexdigest())


def _signed(name: str, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_LONGEST_NAME])])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
