"""Every case of every suite: one test a suite, which lists the cases that fail."""

from pathlib import Path

import pytest

from tests.conformance import cases, running
from tests.conformance.adapters import ADAPTERS

REASONS = Path(__file__).parents[2] / "docs" / "conformance.md"
SUITES = [(system, suite) for system in ADAPTERS for suite in cases.suites(system)]


@pytest.mark.skipif(
    not cases.folder().is_dir(), reason="no conformance cases beside this clone: set MUSTER_CONFORMANCE"
)
def test_there_are_cases() -> None:
    assert SUITES


@pytest.mark.parametrize(("system", "suite"), SUITES, ids=lambda value: value)
def test_conformance(system: str, suite: str) -> None:
    outcomes = running.outcomes(system, suite)
    failed = [f"{title}: {outcome.why}" for title, outcome in outcomes if isinstance(outcome, cases.Failed)]
    assert not failed, f"{len(failed)} cases fail: " + "\n".join(failed)
    reasons, said = {one.why for _, one in outcomes if isinstance(one, cases.NotApplicable)}, REASONS.read_text()
    assert not {reason for reason in reasons if reason not in said}, "docs/conformance.md gives every reason"
