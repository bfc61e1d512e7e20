"""What an examination says: one line for each thing looked at, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """`found`: what there is. `advice`: what to do next; empty where there is nothing to do."""

    about: str
    verdict: Verdict
    found: str
    advice: str = ""


def ok(about: str, found: str) -> Finding:
    return Finding(about, Verdict.OK, found)


def warn(about: str, found: str, advice: str) -> Finding:
    return Finding(about, Verdict.WARN, found, advice)


def fail(about: str, found: str, advice: str) -> Finding:
    return Finding(about, Verdict.FAIL, found, advice)


def worst(findings: Iterable[Finding]) -> Verdict:
    order = list(Verdict)
    return max((finding.verdict for finding in findings), key=order.index, default=Verdict.OK)
