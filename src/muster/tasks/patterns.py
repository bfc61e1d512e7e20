"""Regular expressions that others write, and that therefore must not be able to stall the server.

They run on RE2, whose time grows with the text alone: no pattern makes it go back and forth. The syntax is the one that
Determined's users know from Go; what RE2 cannot do in linear time (back-references, look-around) is refused.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import re2

from muster.api import errors

LONGEST: Final = 2000
_MEMORY_BYTES: Final = 8 * 1024 * 1024
Search: TypeAlias = Callable[[str], bool]
"""Whether the pattern is somewhere in a text."""


@lru_cache(maxsize=256)
def search(pattern: str, field: str = "pattern") -> Search:
    """Raises BadRequest that says what is wrong with it. `field`: where the pattern was given."""
    if len(pattern) > LONGEST:
        raise errors.BadRequest(f"{field}: a pattern may have {LONGEST} characters, this one has {len(pattern)}")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY_BYTES
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        told = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise errors.BadRequest(f"{field}: not a regular expression that RE2 knows: {told}") from error
    return lambda text: compiled.search(text) is not None
