"""Who is asking, where an API server asks for somebody else: its certificate says that it is one, and its headers whom
it speaks for. Pure.

What to believe is for the cluster to say, in the ConfigMap `extension-apiserver-authentication` of `kube-system`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import unquote

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from muster.api import errors
from muster.api.objects import Key

CONFIGURATION: Final = Key("kube-system", "extension-apiserver-authentication")
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case, and several of one name where several were sent."""
_UNKNOWN: Final = "Unauthorized: ask the API server of the cluster, which passes requests on to here"


@dataclass(frozen=True, slots=True)
class Caller:
    """As the API server has authenticated it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """`authorities`: PEM of those who sign the certificates of API servers. `names`: which certificates of theirs will
    do; any where it is empty. The rest: headers, in lower case, by which callers are told."""

    authorities: str
    names: frozenset[str]
    users: Sequence[str]
    groups: Sequence[str]
    extra_prefixes: Sequence[str]
    uids: Sequence[str] = ()

    def caller(self, certificate: str, headers: Headers) -> Caller:
        """`certificate`: PEM of what was shown, which the TLS layer has found valid; empty where nothing was. Raises
        Unauthorized."""
        if not certificate or not _is_signed(certificate, self.authorities, self.names):
            raise errors.Unauthorized(_UNKNOWN)
        sent: dict[str, list[str]] = {}
        for header, value in headers:
            sent.setdefault(header.decode("latin-1"), []).append(value.decode("utf-8", "replace"))
        name = _first(sent, self.users)
        if not name:
            raise errors.Unauthorized(_UNKNOWN)
        groups = next((sent[header] for header in self.groups if header in sent), [])
        return Caller(name, tuple(groups), _first(sent, self.uids), self._extra(sent))

    def _extra(self, sent: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        return {
            unquote(header.removeprefix(prefix)): values
            for header, values in sent.items()
            for prefix in self.extra_prefixes
            if header.startswith(prefix)
        }


def read(data: Mapping[str, str]) -> FrontProxy | None:
    """From the ConfigMap's data; None where the API server passes nothing on. Raises BadRequest that names the key."""
    authorities = data.get("requestheader-client-ca-file", "")
    users = _listed(data, "requestheader-username-headers")
    if not authorities or not users:
        return None
    try:
        x509.load_pem_x509_certificates(authorities.encode())
    except ValueError as error:
        raise errors.BadRequest(f"{CONFIGURATION}: requestheader-client-ca-file: {error}") from error
    return FrontProxy(
        authorities,
        frozenset(_listed(data, "requestheader-allowed-names")),
        _lower(users),
        _lower(_listed(data, "requestheader-group-headers")),
        _lower(_listed(data, "requestheader-extra-headers-prefix")),
        _lower(_listed(data, "requestheader-uid-headers")),
    )


def _listed(data: Mapping[str, str], key: str) -> list[str]:
    try:
        return msgspec.json.decode(data.get(key) or "[]", type=list[str])
    except msgspec.MsgspecError as error:
        raise errors.BadRequest(f"{CONFIGURATION}: {key}: expected a list of texts: {error}") from error


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


def _first(sent: Mapping[str, Sequence[str]], headers: Iterable[str]) -> str:
    return next((sent[header][0] for header in headers if header in sent), "")


@lru_cache(maxsize=64)
def _is_signed(certificate: str, authorities: str, names: frozenset[str]) -> bool:
    """By one of those who are believed now: the TLS layer goes on to accept those who were, until a restart."""
    try:
        shown = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        return False
    common = {str(each.value) for each in shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME)}
    if names and not common & names:
        return False
    return any(_issued(shown, each) for each in x509.load_pem_x509_certificates(authorities.encode()))


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
