"""What the web page remembers for a user: functions of a connection."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select

from muster.accounts import names
from muster.api import errors
from muster.records.tables_accounts import USER_SETTINGS

_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Setting:
    key: str
    value: str | None = None
    """None takes it away."""
    storage_path: str = ""


def listed(connection: Connection, user: int) -> list[Setting]:
    query = select(USER_SETTINGS).where(USER_SETTINGS.c.user_id == user)
    rows = connection.execute(query.order_by(USER_SETTINGS.c.storage_path, USER_SETTINGS.c.key))
    return [Setting(row.key, row.value, row.storage_path) for row in rows]


def set(connection: Connection, user: int, wanted: Sequence[Setting]) -> None:
    """Raises BadRequest; then nothing is set."""
    for number, setting in enumerate(wanted):
        key = names.checked(f"settings[{number}].key", setting.key)
        path = names.checked_text(f"settings[{number}].storagePath", setting.storage_path, longest=names.LONGEST)
        is_it = (
            (USER_SETTINGS.c.user_id == user) & (USER_SETTINGS.c.storage_path == path) & (USER_SETTINGS.c.key == key)
        )
        connection.execute(delete(USER_SETTINGS).where(is_it))
        if setting.value is not None:
            value = names.checked_text(f"settings[{number}].value", setting.value)
            connection.execute(insert(USER_SETTINGS).values(user_id=user, storage_path=path, key=key, value=value))
    count = connection.scalar(select(func.count()).where(USER_SETTINGS.c.user_id == user)) or 0
    if count > _MOST:
        raise errors.BadRequest(f"settings: a user may have {_MOST}; reset them")


def reset(connection: Connection, user: int) -> None:
    connection.execute(delete(USER_SETTINGS).where(USER_SETTINGS.c.user_id == user))
