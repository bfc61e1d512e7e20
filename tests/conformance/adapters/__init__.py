"""Which adapter runs which suite."""

from collections.abc import Mapping

from tests.conformance.adapters import kube, kueue, volcano
from tests.conformance.cases import Adapters

ADAPTERS: Mapping[str, Adapters] = {
    "kube-scheduler": kube.ADAPTERS,
    "kueue": kueue.ADAPTERS,
    "volcano": volcano.ADAPTERS,
}

WITHOUT: Mapping[str, Mapping[str, str]] = {"volcano": volcano.WITHOUT}
"""Suites that no adapter runs, and why."""
