"""Tokens in the addresses of notebooks: each opens the services of one task, as long as the task runs.

A token is the task's id, signed with a key of the server's own. So it can be told again whenever the task's address is,
without being kept anywhere, and dies with the task: nothing else is behind an id that is not registered.
"""

import hmac
import secrets
from base64 import urlsafe_b64encode
from typing import Final, Self

from sqlalchemy import Connection, insert, select

from muster.records import Database
from muster.records.tables_accounts import SERVER_KEYS

_KEY: Final = "proxy.tokens"
_KEY_BYTES: Final = 32


class ProxyTokens:
    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    async def load(cls, database: Database) -> Self:
        """With the key that the server has; its first start makes one."""
        return cls(await database.write(_key))

    def of(self, task: str) -> str:
        """To be told only to those who may do with the task what its own user may."""
        signed = hmac.digest(self._key, task.encode("utf-8", "surrogatepass"), "sha256")
        return urlsafe_b64encode(signed).rstrip(b"=").decode()

    def is_of(self, task: str, token: str) -> bool:
        return hmac.compare_digest(self.of(task).encode(), token.encode("utf-8", "surrogatepass"))


def _key(connection: Connection) -> bytes:
    found = connection.scalar(select(SERVER_KEYS.c.value).where(SERVER_KEYS.c.name == _KEY))
    if found is None:
        found = secrets.token_bytes(_KEY_BYTES)
        connection.execute(insert(SERVER_KEYS).values(name=_KEY, value=found))
    return found
