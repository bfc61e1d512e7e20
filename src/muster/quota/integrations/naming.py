"""The name of a job's workload: readable, and not taken by the workload of anything else."""

import hashlib
from typing import Final

from muster.api.kinds import Kind
from muster.quota.gates import Gate, Gates

_LONGEST: Final = 253
_LONGEST_SHORT: Final = 63
_HASH_LENGTH: Final = 5


def workload_name(kind: Kind, owner: str, uid: str, gates: Gates, extra: str = "") -> str:
    """`extra` sets apart the workloads of one job, where it may have several."""
    parts = [kind.name, kind.group, owner, uid]
    if extra:
        parts.append(extra)
    digest = hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    longest = _LONGEST_SHORT if Gate.SHORT_WORKLOAD_NAMES in gates else _LONGEST
    stem = f"{kind.name.lower()}-{owner}"[: longest - _HASH_LENGTH - 1]
    return f"{stem}-{digest}"
