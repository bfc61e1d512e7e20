"""Tests on virtual time: an async test that takes a clock, run on a loop where waiting costs nothing."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Concatenate, ParamSpec

from muster.runtime.clock import VirtualClock, run_virtual

P = ParamSpec("P")


def on_virtual_time(
    test: Callable[Concatenate[VirtualClock, P], Coroutine[None, None, None]],
) -> Callable[P, None]:
    """Decorates `async def test(clock, ...)`; further parameters stay fixtures. A deadlock fails the test."""

    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(lambda clock: test(clock, *args, **kwargs))

    signature = inspect.signature(test)
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:], return_annotation=None
    )
    return run
