"""The columns that kubectl prints, for each kind. A kind without its own shows its name and age."""

from muster.api.kinds import Kind
from muster.server.columns import core, dialects
from muster.server.columns.printing import AGE, NAME, Printer, age

_PRINTERS = {**core.PRINTERS, **dialects.PRINTERS}
_PLAIN = Printer((NAME, AGE), lambda found, now: (found.key.name, age(found, now)))


def of(kind: Kind) -> Printer:
    return _PRINTERS.get(kind, _PLAIN)


__all__ = ["Printer", "of"]
