"""Passwords: what is stored of them, and what they must be like.

Determined's client never sends a password but a salted SHA-512 of it, except that an empty one stays empty; what it
sends is the password as far as we are concerned, and argon2id of it is what is stored. A client that sends the password
itself gets the same hash, so that both can log in.
"""

import asyncio
import hashlib
import re
import secrets
from collections.abc import Callable
from typing import Final, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from muster.api import errors

_SALT: Final = "GubPEmmotfiK9TMD6Zdw"
"""The client's own: it is no secret, and makes nothing safer than it looks."""
_HASHED: Final = re.compile(r"[0-9a-f]{128}")
_LONGEST: Final = 1024
_KIBIBYTES: Final = 47_104
"""46 MiB, one pass, one lane: as strong as argon2's own default by OWASP's table, and a login costs one core 50 ms."""
_AT_ONCE: Final = 2
"""Each hash takes that much memory while it is made."""
_RULES: Final = (
    (re.compile(r".{8}", re.DOTALL), "have at least 8 characters"),
    (re.compile(r"[A-Z]"), "include an uppercase letter"),
    (re.compile(r"[a-z]"), "include a lowercase letter"),
    (re.compile(r"[0-9]"), "include a number"),
)
T = TypeVar("T")


class Passwords:
    """`may_be_blank`: only where nobody but this machine can reach the server."""

    def __init__(self, hasher: PasswordHasher | None = None, *, may_be_blank: bool = False) -> None:
        self._hasher = hasher or PasswordHasher(time_cost=1, memory_cost=_KIBIBYTES, parallelism=1)
        self._may_be_blank = may_be_blank
        self._busy = asyncio.Semaphore(_AT_ONCE)
        self._decoy = ""

    def checked(self, password: str, *, is_hashed: bool, field: str = "password") -> str:
        """What the client would have sent of a new password. `field`: what it was given as. Raises BadRequest where the
        rules forbid it; of one that comes hashed only the client can tell whether it is long enough."""
        if not password:
            if not self._may_be_blank:
                raise errors.BadRequest(f"{field}: must not be blank where others than this machine reach the server")
            return ""
        if is_hashed:
            if not _HASHED.fullmatch(password):
                raise errors.BadRequest(f"{field}: is said to be hashed, but is no SHA-512 in hexadecimal digits")
            return password
        if len(password) > _LONGEST:
            raise errors.BadRequest(f"{field}: must not be longer than {_LONGEST} characters")
        broken = [rule for pattern, rule in _RULES if not pattern.search(password)]
        if broken:
            raise errors.BadRequest(f"{field}: must {', '.join(broken)}")
        return as_sent(password)

    async def hash(self, sent: str) -> str:
        return await self._in_thread(lambda: self._hasher.hash(sent))

    async def verify(self, stored: str | None, password: str, *, is_hashed: bool) -> bool:
        """`stored`: None for a user that we do not know, which takes just as long as a wrong password."""
        sent = self.sent(password, is_hashed=is_hashed)
        # Made when somebody first logs in, whoever it is: a start should not wait for it.
        self._decoy = self._decoy or await self.hash(secrets.token_hex())
        is_right = await self._in_thread(lambda: self._is(stored or self._decoy, sent))
        return is_right and bool(stored) and (bool(sent) or self._may_be_blank)

    @staticmethod
    def sent(password: str, *, is_hashed: bool) -> str:
        return password[:_LONGEST] if is_hashed else as_sent(password[: _LONGEST + 1])

    def is_outdated(self, stored: str) -> bool:
        """Made with weaker parameters than are used now."""
        return self._hasher.check_needs_rehash(stored)

    def _is(self, stored: str, sent: str) -> bool:
        try:
            return self._hasher.verify(stored, sent)
        except (VerifyMismatchError, InvalidHashError):
            return False

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with self._busy:
            return await asyncio.to_thread(work)


def as_sent(password: str) -> str:
    """What Determined's client makes of a password before it sends it."""
    return hashlib.sha512((_SALT + password).encode()).hexdigest() if password else ""


def generated() -> str:
    """One for a person to copy once; it fulfils the rules."""
    while True:
        found = secrets.token_urlsafe(15)
        if all(pattern.search(found) for pattern, _ in _RULES):
            return found
