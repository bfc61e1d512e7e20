"""Every case of every suite that has an adapter: one test a suite, which lists the cases that fail."""

import pytest

from tests.conformance import cases
from tests.conformance.adapters import ADAPTERS

SUITES = [(system, suite) for system in ADAPTERS for suite in cases.suites(system) if suite in ADAPTERS[system]]


@pytest.mark.skipif(
    not cases.folder().is_dir(), reason="no conformance cases beside this clone: set MUSTER_CONFORMANCE"
)
def test_there_are_cases() -> None:
    assert SUITES


@pytest.mark.parametrize(("system", "suite"), SUITES, ids=lambda value: value)
def test_conformance(system: str, suite: str) -> None:
    failed = {}
    for case in cases.read(system, suite):
        outcome = cases.run(ADAPTERS[system][suite], case)
        if isinstance(outcome, cases.Failed):
            failed[cases.title(case)] = outcome.why
    assert not failed, f"{len(failed)} cases fail: " + "\n".join(f"{name}: {why}" for name, why in failed.items())
