"""Who is moved in a queue stands as if it had come at another time."""

import pytest
from msgspec.structs import replace
from tests.unit.quota.queue_worlds import PLAIN, a_workload, after

from muster.api import kueue, timestamps
from muster.quota.queueing.lanes import order
from muster.quota.workloads import QUEUED_SINCE, queued_since


def moved(view: kueue.Workload, to: str) -> kueue.Workload:
    return replace(view, metadata=replace(view.metadata, annotations={QUEUED_SINCE: to}))


def test_the_time_that_was_set_decides() -> None:
    early, late = a_workload("early", at=10), a_workload("late", at=20)
    changed = moved(late.view, timestamps.to_micro_text(after(9.99999)))
    again = late.changed(changed, late.queue, late.pod_sets, PLAIN)
    assert order(late, 1) > order(early, 1) > order(again, 1)
    assert queued_since(changed) == again.queued_since < queued_since(early.view)


@pytest.mark.parametrize("nonsense", ["", "yesterday", "2026-01-01"])
def test_nonsense_counts_for_nothing(nonsense: str) -> None:
    found = a_workload("a", at=10)
    assert queued_since(moved(found.view, nonsense)) == found.created
