"""Which tokens of a provider are believed."""

import base64
import hmac
import json

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey

from muster.accounts import oidc_tokens
from muster.accounts.oidc_tokens import ClaimNames, UnknownKey
from muster.api import errors
from muster.api.meta import Instant

NOW = 1_700_000_000
RSA = RSAKey.generate_key(2048, {"kid": "r", "use": "sig"})
KEYS: dict[str, RSAKey | ECKey | OKPKey] = {
    "RS256": RSA,
    "ES256": ECKey.generate_key("P-256", {"kid": "e"}),
    "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "o"}),
    "Ed25519": OKPKey.generate_key("Ed25519", {"kid": "p"}),
}
SHOWN = {"keys": [*(key.as_dict(private=False) for key in KEYS.values()), {"kty": "NEW"}, {"kty": "RSA", "kid": "odd"}]}
CLAIMS = {
    "iss": "https://idp", "sub": "s1", "aud": "muster", "nonce": "n", "exp": NOW + 300, "iat": NOW,
    "preferred_username": "Ann", "name": "Ann E.", "groups": ["a", "b", 3, "x/y"],
}  # fmt: skip


def signed(claims: dict[str, object], algorithm: str = "RS256") -> str:
    key = KEYS[algorithm]
    return jwt.encode({"alg": algorithm, "kid": key.kid}, claims, key, algorithms=[algorithm])


def verified(token: str) -> dict[str, object]:
    keys = oidc_tokens.key_set(SHOWN)
    return oidc_tokens.verify(token, keys, issuer="https://idp", client="muster", nonce="n", now=Instant(NOW))


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # providers sign with it all the same
@pytest.mark.parametrize("algorithm", KEYS)
def test_what_is_signed_by_one_of_the_providers_keys_is_believed(algorithm: str) -> None:
    assert verified(signed(CLAIMS, algorithm))["sub"] == "s1"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"iss": "https://other"}, "another issuer"),
        ({"iss": "https://idp/"}, "another issuer"),
        ({"aud": "other"}, "somebody else"),
        ({"aud": ["muster", "other"]}, "somebody else"),
        ({"aud": ["muster", "other"], "azp": "other"}, "somebody else"),
        ({"azp": "other"}, "somebody else"),
        ({"aud": None}, "somebody else"),
        ({"nonce": "m"}, "another login"),
        ({"nonce": None}, "another login"),
        ({"exp": NOW - 60}, "expired"),
        ({"exp": None}, "'exp'"),
        ({"exp": "later"}, "'exp'"),
        ({"exp": True}, "'exp'"),
        ({"iat": NOW + 61}, "future"),
        ({"nbf": NOW + 61}, "future"),
    ],
)
def test_what_is_not_for_this_login_now_is_refused(change: dict[str, object], told: str) -> None:
    claims = {name: value for name, value in {**CLAIMS, **change}.items() if value is not None}
    with pytest.raises(errors.Unauthorized, match=told):
        verified(signed(claims))


def test_several_audiences_are_fine_where_we_are_the_one_it_was_made_for() -> None:
    verified(signed({**CLAIMS, "aud": ["muster", "other"], "azp": "muster"}))


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def test_tokens_without_a_signature_or_with_a_secret_one_are_refused() -> None:
    header, payload, _ = signed(CLAIMS).split(".")
    unsigned = f"{encoded({'alg': 'HS256', 'kid': 'r'})}.{payload}"
    mac = hmac.digest(RSA.as_pem(private=False), unsigned.encode(), "sha256")
    forged = f"{unsigned}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    for token in (
        forged,
        f"{encoded({'alg': 'none'})}.{payload}.",
        f"{encoded({'alg': 'none', 'kid': 'r'})}.{payload}.",
        f"{header}.{encoded({**CLAIMS, 'sub': 'admin'})}.{signed(CLAIMS).split('.')[2]}",
        f"{header}.{payload}.",
        "",
        "a.b.c",
        "é.é.é",
        "x" * 100_000,
    ):
        with pytest.raises(errors.Unauthorized):
            verified(token)


def test_a_foreign_key_is_unknown_even_with_a_known_name() -> None:
    foreign = RSAKey.generate_key(2048, {"kid": "new"})
    with pytest.raises(UnknownKey):
        verified(jwt.encode({"alg": "RS256", "kid": "new"}, CLAIMS, foreign))
    with pytest.raises(errors.Unauthorized):
        verified(jwt.encode({"alg": "RS256", "kid": "r"}, CLAIMS, foreign))


def test_a_key_in_the_token_itself_is_not_believed() -> None:
    own = RSAKey.generate_key(2048, {"kid": "r"})
    token = jwt.encode({"alg": "RS256", "kid": "r", "jwk": own.as_dict(private=False)}, CLAIMS, own)
    with pytest.raises(errors.Unauthorized):
        verified(token)


@pytest.mark.parametrize("document", [None, {}, {"keys": 3}, {"keys": []}, {"keys": [{"kty": "oct", "k": "AAAA"}]}])
def test_a_key_set_without_keys_is_none(document: object) -> None:
    with pytest.raises(errors.Unavailable):
        oidc_tokens.key_set(document)


def test_keys_for_encryption_and_secrets_are_left_out() -> None:
    secret, other = OctKey.generate_key(256), RSAKey.generate_key(2048, {"kid": "x", "use": "enc"})
    keys = oidc_tokens.key_set({"keys": [secret.as_dict(), other.as_dict(private=False), RSA.as_dict(private=False)]})
    assert isinstance(keys, KeySet)
    assert [key.kid for key in keys.keys] == ["r"]


def test_claims_say_who_somebody_is() -> None:
    who = oidc_tokens.identity(CLAIMS, "https://idp", ClaimNames(groups="groups"))
    assert (who.subject, who.username, who.display_name, who.groups) == ("s1", "Ann", "Ann E.", ["a", "b"])
    mapped = oidc_tokens.identity(CLAIMS, "https://idp", ClaimNames(groups="groups", group_names={"a": "admins"}))
    assert mapped.groups == ["admins"]
    assert oidc_tokens.identity(CLAIMS, "https://idp", ClaimNames()).groups is None
    assert oidc_tokens.identity({**CLAIMS, "groups": None}, "https://idp", ClaimNames(groups="groups")).groups == []


@pytest.mark.parametrize(
    ("claims", "names"),
    [
        ({**CLAIMS, "preferred_username": ""}, ClaimNames()),
        ({**CLAIMS, "preferred_username": ["a"]}, ClaimNames()),
        ({**CLAIMS, "email": "a@b", "email_verified": False}, ClaimNames(username="email")),
        (CLAIMS, ClaimNames(username="email")),
    ],
)
def test_who_has_no_name_does_not_get_in(claims: dict[str, object], names: ClaimNames) -> None:
    with pytest.raises(errors.Forbidden):
        oidc_tokens.identity(claims, "https://idp", names)
