"""What names and texts must look like. Each check raises BadRequest with the field's name."""

import re
from typing import Final

from muster.api import errors

LONGEST: Final = 254
LONGEST_TEXT: Final = 65_536
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def checked(field: str, value: str, *, longest: int = LONGEST) -> str:
    """Without the spaces around it. Not empty, one line, no `/`: it must be possible as a part of a path."""
    found = value.strip()
    if not found:
        raise errors.BadRequest(f"{field}: must not be empty")
    if len(found) > longest:
        raise errors.BadRequest(f"{field}: must not be longer than {longest} characters, found {len(found)}")
    if _CONTROL.search(found) or "/" in found:
        raise errors.BadRequest(f"{field}: must have no slash and no control characters")
    return found


def checked_text(field: str, value: str, *, longest: int = LONGEST_TEXT) -> str:
    """May be empty and of several lines."""
    if len(value) > longest:
        raise errors.BadRequest(f"{field}: must not be longer than {longest} characters, found {len(value)}")
    if "\x00" in value:
        raise errors.BadRequest(f"{field}: must not contain a NUL character")
    return value


def checked_username(field: str, value: str) -> str:
    """In lower case: nobody should be taken for somebody else."""
    return checked(field, value.lower())
