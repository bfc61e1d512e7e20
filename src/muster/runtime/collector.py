"""Python's garbage collector, set for a process that keeps many objects and makes few cycles.

With its usual thresholds it walks everything that is kept whenever some thousands of objects have been made: at ten
thousand pods that is a pause of a tenth of a second, several times a second.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_CALM = (100_000, 50, 100)


def calm() -> None:
    """Call once, when everything is imported."""
    gc.collect()
    gc.freeze()  # what is there now stays: modules, classes, functions
    gc.set_threshold(*_CALM)


@contextmanager
def calmed() -> Iterator[None]:
    """For as long as that takes, in a process that goes on otherwise."""
    before = gc.get_threshold()
    gc.set_threshold(*_CALM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
