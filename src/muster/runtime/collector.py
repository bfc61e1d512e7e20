"""Python's garbage collector, set for a process that keeps many objects and makes few cycles.

With its usual thresholds it walks everything that is kept whenever some thousands of objects have been made: at ten
thousand pods that is a pause of a tenth of a second, several times a second.
"""

import gc


def calm() -> None:
    """Call once, when everything is imported."""
    gc.collect()
    gc.freeze()  # what is there now stays: modules, classes, functions
    gc.set_threshold(100_000, 50, 100)
