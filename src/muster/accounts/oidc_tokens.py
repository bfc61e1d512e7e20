"""What an OpenID provider says about a user, and whether it is to be believed. Pure."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from muster.api import errors, raw
from muster.api.meta import Instant
from muster.api.raw import JSON, Document

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
"""Signatures with a public key. Never `none`, and never one of those where our own secret would be the key."""
_LEEWAY: Final = 60.0
_KEY_TYPES: Final = ("RSA", "EC", "OKP")
_LONGEST: Final = 65_536
_MOST_GROUPS: Final = 1000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f/]")


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """Which claims say what. `groups`: empty where no claim is to decide about groups."""

    username: str = "preferred_username"
    display_name: str = "name"
    groups: str = ""
    group_names: Mapping[str, str] | None = None
    """What the provider's groups are called here; None: the same. One that is not named does not count."""


@dataclass(frozen=True, slots=True)
class Identity:
    issuer: str
    subject: str
    username: str
    display_name: str
    groups: Sequence[str] | None
    """None where no claim is to decide about them."""


USUAL: Final = ClaimNames()


class UnknownKey(Exception):
    """Signed with a key that the provider did not show us: it may have new ones."""


def key_set(document: JSON) -> KeySet:
    """Those of the provider's keys that can sign. Raises Unavailable where there is none."""
    keys = raw.dig(document, "keys")
    if not isinstance(keys, list):
        raise errors.Unavailable("the provider's key set has no list of keys")
    found = KeySet([])
    for key in keys:
        if raw.dig(key, "kty") in _KEY_TYPES and raw.dig(key, "use", default="sig") == "sig":
            with suppress(JoseError, ValueError, TypeError, KeyError):  # of a kind that we do not know
                found.keys.extend(KeySet.import_key_set({"keys": [key]}).keys)
    if not found.keys:
        raise errors.Unavailable("the provider's key set has no key that could sign anything")
    return found


def verify(token: str, keys: KeySet, *, issuer: str, client: str, nonce: str, now: Instant) -> Document:
    """The claims. Raises Unauthorized with what is wrong, or UnknownKey."""
    if len(token) > _LONGEST:
        raise errors.Unauthorized("the provider's token is too long")
    try:
        decoded = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
    except JoseError as error:
        if error.error in ("invalid_key_id", "missing_key"):
            raise UnknownKey from error
        raise errors.Unauthorized(f"the provider's token is not signed as it should be: {error.error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise errors.Unauthorized("the provider's token cannot be read") from error
    claims = decoded.claims
    _check(claims, issuer, client, nonce, now)
    return claims


def identity(claims: Mapping[str, JSON], issuer: str, names: ClaimNames) -> Identity:
    """Raises Forbidden where a claim that is needed is missing."""
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject or len(subject) > 254:
        raise errors.Unauthorized("the provider's token names no subject")
    username = claims.get(names.username)
    if not isinstance(username, str) or not username.strip():
        raise errors.Forbidden(f"the provider tells no {names.username!r} of this user, which is to be the username")
    if names.username == "email" and claims.get("email_verified") in (False, "false"):
        raise errors.Forbidden("the provider has not verified this user's e-mail address")
    told = claims.get(names.display_name)
    display_name = _CONTROL.sub(" ", told).strip()[:254] if isinstance(told, str) else ""
    return Identity(issuer, subject, username, display_name, _groups(claims, names))


def _check(claims: Mapping[str, JSON], issuer: str, client: str, nonce: str, now: Instant) -> None:
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if claims.get("iss") != issuer:
        raise errors.Unauthorized("the provider's token comes from another issuer")
    if client not in audiences or (len(audiences) > 1 and claims.get("azp") != client):
        raise errors.Unauthorized("the provider's token is for somebody else")
    if claims.get("azp", client) != client:
        raise errors.Unauthorized("the provider's token is for somebody else")
    if not nonce or claims.get("nonce") != nonce:
        raise errors.Unauthorized("the provider's token belongs to another login")
    if now >= _time(claims, "exp") + _LEEWAY:
        raise errors.Unauthorized("the provider's token has expired")
    if max(_time(claims, "iat"), _time(claims, "nbf") if "nbf" in claims else 0.0) > now + _LEEWAY:
        raise errors.Unauthorized("the provider's token comes from the future: is a clock wrong?")


def _time(claims: Mapping[str, JSON], name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise errors.Unauthorized(f"the provider's token has no time {name!r}")
    return value


def _groups(claims: Mapping[str, JSON], names: ClaimNames) -> Sequence[str] | None:
    if not names.groups:
        return None
    told = claims.get(names.groups, [])
    listed = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    found = [each.strip() for each in listed[:_MOST_GROUPS] if isinstance(each, str)]
    if names.group_names is not None:
        found = [names.group_names[each] for each in found if each in names.group_names]
    return sorted({each for each in found if each and len(each) <= 254 and not _CONTROL.search(each)})
