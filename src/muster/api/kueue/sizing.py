"""What quota tells a job on the job itself, where its kind has no field for it: that it has to wait, and how many pods
of each set it may have now."""

from collections.abc import Mapping

from muster.api import raw
from muster.api.errors import BadRequest
from muster.api.kueue.names import ADMITTED_REPLICAS_ANNOTATION, HELD_ANNOTATION


def is_held(annotations: Mapping[str, str] | None) -> bool:
    return (annotations or {}).get(HELD_ANNOTATION) == "true"


def read_sizes(annotations: Mapping[str, str] | None) -> Mapping[str, int] | None:
    """By pod set, how many pods may live at a time; None where nobody said so, or nobody can read it."""
    return parse_sizes((annotations or {}).get(ADMITTED_REPLICAS_ANNOTATION))


def parse_sizes(text: str | None) -> Mapping[str, int] | None:
    if not text:
        return None
    try:
        found = raw.decode(text)
    except BadRequest:
        return None
    if not isinstance(found, dict) or not all(type(count) is int and count >= 0 for count in found.values()):
        return None
    return found


def sizes_text(sizes: Mapping[str, int]) -> str:
    return raw.encode(dict(sorted(sizes.items()))).decode()
