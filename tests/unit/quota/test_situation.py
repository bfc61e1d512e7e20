"""A word and a sentence for what has become of a workload."""

import pytest

from muster.api import kueue
from muster.api.objects import decode_view
from muster.api.raw import encode
from muster.quota.situation import situation, to_document


def view(*conditions, active=None, annotations=None, **status):
    listed = [{"type": type, "status": value, "reason": "R", "message": message} for type, value, message in conditions]
    document = {
        "metadata": {"name": "w", "namespace": "ns", "annotations": annotations or {}},
        "spec": {} if active is None else {"active": active},
        "status": {"conditions": listed, **status},
    }
    found = decode_view(kueue.WORKLOAD, encode(document))
    assert isinstance(found, kueue.Workload)
    return found


RESERVED, ADMITTED = ("QuotaReserved", "True", ""), ("Admitted", "True", "")
HERE = {"admission": {"clusterQueue": "cq"}}
CASES = {
    "finished": (view(RESERVED, ADMITTED, ("Finished", "True", "done")), "Finished", "it has finished: done"),
    "being stopped": (view(RESERVED, ("Evicted", "True", "preempted")), "Evicted", "it is being stopped: preempted"),
    "deactivated": (
        view(("Evicted", "True", "by hand"), active=False),
        "Deactivated",
        "it is deactivated, until spec.active is true: by hand",
    ),
    "admitted": (view(RESERVED, ADMITTED, **HERE), "Admitted", "it does not wait: ClusterQueue cq has admitted it"),
    "in its checks": (
        view(
            RESERVED,
            **HERE,
            admissionChecks=[{"name": "a", "state": "Ready"}, {"name": "b", "state": "Retry"}, {"name": "c"}],
        ),
        "QuotaReserved",
        "ClusterQueue cq holds quota for it; it waits for admission checks: b (Retry), c (Pending)",
    ),
    "about to start": (
        view(RESERVED, **HERE),
        "QuotaReserved",
        "ClusterQueue cq holds quota for it; it starts in a moment",
    ),
    "gated": (
        view(annotations={"kueue.x-k8s.io/admission-gated-by": "a.b/c"}),
        "Waiting",
        "it does not queue until these let it: a.b/c",
    ),
    "resting": (
        view(("Requeued", "False", "too slow"), requeueState={"requeueAt": "2030-01-01T00:00:00Z"}),
        "Waiting",
        "it rests until 2030-01-01T00:00:00Z and queues again then",
    ),
    "on hold": (
        view(("QuotaReserved", "False", "its LocalQueue is stopped")),
        "Waiting",
        "it does not queue: its LocalQueue is stopped",
    ),
    "new": (view(), "Waiting", "it is about to be queued"),
}


@pytest.mark.parametrize(("workload", "state", "summary"), CASES.values(), ids=CASES.keys())
def test_situation(workload, state, summary):
    assert situation(workload) == (state, summary)
    document = to_document(workload)
    assert (document["workload"], document["state"], document["summary"]) == ("ns/w", state, summary)
