"""Who is not admitted and why, and who has finished: as a count over all workloads would find."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from muster.api import kueue
from muster.quota.census import Census, Finished, Unadmitted, place_of

Listed = dict[str, tuple[str, str]]


def a_view(name: str = "w", conditions: Listed | None = None, queue: str = "", local: str | None = "lq"):
    listed = [{"type": type, "status": value, "reason": why} for type, (value, why) in (conditions or {}).items()]
    admission = {"admission": {"clusterQueue": queue, "podSetAssignments": []}} if queue else {}
    document = {
        "metadata": {"namespace": "default", "name": name},
        "spec": {"queueName": local} if local else {},
        "status": {"conditions": listed, **admission},
    }
    return msgspec.convert(document, kueue.Workload)


def test_one_that_nobody_has_looked_at_awaits_evaluation():
    assert place_of(a_view()) == Unadmitted("default/lq", "", "NoReservation", "PendingEvaluation")


def test_one_without_a_queue_name_has_an_empty_one():
    assert place_of(a_view(local=None)) == Unadmitted("default/", "", "NoReservation", "PendingEvaluation")


def test_what_its_condition_says_is_the_cause():
    waiting: Listed = {"QuotaReserved": ("False", "WaitingForQuota"), "Admitted": ("False", "NoReservation")}
    assert place_of(a_view(conditions=waiting)) == Unadmitted("default/lq", "", "NoReservation", "WaitingForQuota")


def test_with_quota_there_is_no_cause_beyond_the_reason():
    held: Listed = {"QuotaReserved": ("True", "QuotaReserved")}
    assert place_of(a_view(conditions=held, queue="cq")) == Unadmitted(
        "default/lq", "cq", "UnsatisfiedAdmissionChecks", ""
    )
    held["Admitted"] = ("False", "PendingDelayedTopologyRequests")
    assert place_of(a_view(conditions=held, queue="cq")) == Unadmitted(
        "default/lq", "cq", "PendingDelayedTopologyRequests", ""
    )


def test_the_admitted_are_not_listed_and_the_finished_are_apart():
    done: Listed = {"QuotaReserved": ("True", ""), "Admitted": ("True", "")}
    assert place_of(a_view(conditions=done, queue="cq")) is None
    done["Finished"] = ("True", "Succeeded")
    assert place_of(a_view(conditions=done, queue="cq")) == Finished("default/lq", "cq")


VIEWS = st.builds(
    a_view,
    st.sampled_from("abc"),
    st.dictionaries(
        st.sampled_from(["QuotaReserved", "Admitted", "Finished"]),
        st.tuples(st.sampled_from(["True", "False"]), st.sampled_from(["X", "Y"])),
    ),
    st.sampled_from(["", "cq"]),
    st.sampled_from(["lq", "other", None]),
)


@given(st.lists(st.one_of(VIEWS, st.sampled_from(["default/a", "default/b"]))))
def test_it_is_what_a_count_would_find(changes: list) -> None:
    census, live = Census(), dict[str, kueue.Workload]()
    for change in changes:
        if isinstance(change, str):
            census.drop(change)
            live.pop(change, None)
        else:
            census.put(change)
            live[f"default/{change.metadata.name}"] = change
    places = Counter(place for view in live.values() if (place := place_of(view)) is not None)
    assert {place: count for place, count in places.items() if isinstance(place, Unadmitted)} == census.unadmitted
    assert {place: count for place, count in places.items() if isinstance(place, Finished)} == census.finished
