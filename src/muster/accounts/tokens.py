"""Tokens: 256 random bits that are shown once, and the digest by which we know them again."""

import hashlib
import secrets
from typing import Final

_BYTES: Final = 32
LONGEST: Final = 256
"""Nothing longer is looked at."""


def mint() -> str:
    return secrets.token_urlsafe(_BYTES)


def digest(token: str) -> bytes:
    """No salt and no slow hash: 256 random bits cannot be guessed, and each request must be cheap."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
