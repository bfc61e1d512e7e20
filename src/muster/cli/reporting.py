"""Errors as people read them: one line that says what to do next, one more for each field that is wrong."""

import sys

from muster.api import errors

FAILURE = 2
"""The exit code of a command that could not do what was asked; a job's own code is passed on by `run`."""


def report(error: Exception) -> int:
    """Prints the error and returns the exit code."""
    sys.stdout.flush()
    print(describe(error), file=sys.stderr)
    return FAILURE


def describe(error: Exception) -> str:
    if not isinstance(error, errors.ApiError):
        return f"error: {type(error).__name__}: {error}\nThis is a bug in muster; MUSTER_DEBUG=1 shows where."
    if not error.causes:
        return f"error: {error.message}"
    head = error.message.split(" is invalid: ")[0]
    head = f"{head} is invalid" if head != error.message else error.message
    listed = dict.fromkeys(str(cause) for cause in error.causes)
    return "\n".join([f"error: {head}:", *(f"  {line}" for line in listed)])
