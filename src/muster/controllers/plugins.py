"""Plugins of other distributions: found by the entry point that has the name which a configuration says.

Nothing is imported but what is named: a distribution that is merely installed changes nothing.
"""

from importlib.metadata import entry_points

from muster.placement.configuration import ENTRY_POINTS, Factory


class AmbiguousPlugin(LookupError):
    """Two distributions offer a plugin of the same name."""


def load(name: str) -> Factory | None:
    """None where no distribution offers it. Raises whatever importing it raises."""
    found = list(entry_points(group=ENTRY_POINTS, name=name))
    if not found:
        return None
    if len({entry.value for entry in found}) > 1:
        owners = sorted({entry.dist.name if entry.dist else entry.value for entry in found})
        raise AmbiguousPlugin(f"{', '.join(owners)} each offer it; uninstall all but one")
    factory = found[0].load()
    if not callable(factory):
        raise TypeError(f"{found[0].value} is no class or function, but {type(factory).__name__}")
    made: Factory = factory
    return made
