"""The certificate of the webhooks and the authority that signs it, as they stand in a Secret.

The API server believes what is signed by the authority in the webhook configurations. We are that authority: its key
stands in the Secret too, so that whoever leads can renew the certificate without a change for anybody. An authority
that comes of age is replaced, and both are believed until the next one.
"""

import base64
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster.api.meta import Instant

_AUTHORITY_LIFE: Final = timedelta(days=3650)
_LIFE: Final = timedelta(days=365)
_EARLY: Final = timedelta(days=90)
"""So long before its end a certificate is renewed: an installation may stand still over a summer."""
_SKEW: Final = timedelta(days=1)
_Names: TypeAlias = frozenset[x509.GeneralName]


@dataclass(frozen=True, slots=True)
class Keys:
    """PEM each. `authorities`: those to be believed, the one that signs first."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    def data(self) -> dict[str, str]:
        """Of a Secret of type kubernetes.io/tls."""
        parts = {
            "ca.crt": self.authorities,
            "ca.key": self.authority_key,
            "tls.crt": self.certificate,
            "tls.key": self.key,
        }
        return {name: base64.b64encode(value).decode() for name, value in parts.items()}


def read(data: Mapping[str, str]) -> Keys | None:
    """None where anything is missing or cannot be read: then it is made anew."""
    try:
        parts = [base64.b64decode(data[name], validate=True) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")]
        keys = Keys(*parts)
        x509.load_pem_x509_certificates(keys.authorities)
        x509.load_pem_x509_certificate(keys.certificate)
        for pem in (keys.authority_key, keys.key):
            _private(pem)
    except (KeyError, ValueError, TypeError):
        return None
    return keys


def renewed(found: Keys | None, names: Sequence[str], now: Instant) -> Keys:
    """What was found, where it is good for a while yet and for these names (of hosts, and addresses); else new ones. A
    new certificate is good for the names of the one before it too: replicas that are reached by different addresses
    share it, and would take it from each other."""
    today = datetime.fromtimestamp(now, UTC)
    wanted = _alternatives(names) | (frozenset() if found is None else _known(found))
    authority = None if found is None else x509.load_pem_x509_certificates(found.authorities)[0]
    if found is not None and authority is not None and authority.not_valid_after_utc > today + _LIFE + _EARLY:
        return found if _is_good(found, wanted, today) else _signed(found, authority, wanted, today)
    key = ec.generate_private_key(ec.SECP256R1())
    made = _authority(key, today)
    believed = _pem(made) + (_pem(authority) if authority is not None else b"")
    return _signed(Keys(believed, _private_pem(key), b"", b""), made, wanted, today)


def _is_good(found: Keys, names: _Names, today: datetime) -> bool:
    certificate = x509.load_pem_x509_certificate(found.certificate)
    return certificate.not_valid_after_utc > today + _EARLY and names <= _known(found)


def _known(found: Keys) -> _Names:
    certificate = x509.load_pem_x509_certificate(found.certificate)
    try:
        return frozenset(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return frozenset()  # one that somebody else has put there


def _alternatives(names: Sequence[str]) -> _Names:
    return frozenset(map(_general, names))


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _authority(key: ec.EllipticCurvePrivateKey, today: datetime) -> x509.Certificate:
    subject = _subject(f"muster-webhook-ca-{today:%Y%m%d%H%M%S}")
    return (
        _builder(subject, subject, key.public_key(), today, _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _signed(authority: Keys, signer: x509.Certificate, names: _Names, today: datetime) -> Keys:
    key, signing = ec.generate_private_key(ec.SECP256R1()), _private(authority.authority_key)
    made = (
        _builder(_subject("muster-webhook"), signer.subject, key.public_key(), today, _LIFE)
        .add_extension(x509.SubjectAlternativeName(sorted(names, key=str)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .sign(signing, hashes.SHA256())
    )
    return Keys(authority.authorities, authority.authority_key, _pem(made), _private_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, today: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - _SKEW)
        .not_valid_after(today + life)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Raises ValueError."""
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key on an elliptic curve")
    return key


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
