"""A job that is part of another: what is done about it, for all that the other may be."""

import pytest
from tests.unit.quota.integration_worlds import a_job, a_workload, admitted, subject

from muster.api.objects import Object
from muster.api.raw import encode
from muster.quota.integrations.following import follow
from muster.quota.integrations.steps import RemoveWorkload, Start, Stop

TOP = a_job("top")


def marked(workload: Object, **annotations: str) -> Object:
    document = workload.document()
    document["metadata"]["annotations"] = {**document["metadata"].get("annotations", {}), **annotations}
    return Object(workload.kind, encode(document))


LIVE = {
    "admitted": [admitted(TOP)],
    "elastic, and waiting": [marked(a_workload(TOP), **{"kueue.x-k8s.io/elastic-job": "true"})],
    "admitted beside one that is over": [a_workload(TOP, "Finished"), admitted(TOP)],
}
DEAD = {
    "without a workload": [],
    "waiting": [a_workload(TOP)],
    "reserved": [a_workload(TOP, "QuotaReserved")],
    "evicted": [admitted(TOP, "Evicted=Preempted")],
    "over": [admitted(TOP, "Finished=Succeeded")],
    "elastic, and evicted": [marked(admitted(TOP, "Evicted"), **{"kueue.x-k8s.io/elastic-job": "true"})],
    "only a pod more": [marked(admitted(TOP), **{"muster.dev/part-of": "x"})],
}


@pytest.mark.parametrize("above", LIVE.values(), ids=LIVE.keys())
def test_it_runs_with_one_that_is(above):
    assert follow(subject(a_job(suspend=False)), [], above).steps == ()
    (step,) = follow(subject(a_job(queue="team")), [], above).steps
    assert isinstance(step, Start)
    (step,) = follow(subject(a_job(queue="", annotations={"muster.dev/queued": "true"})), [], above).steps
    assert isinstance(step, Start)
    assert follow(subject(a_job(queue="")), [], above).steps == (), "somebody else suspended it"


@pytest.mark.parametrize("above", DEAD.values(), ids=DEAD.keys())
def test_it_rests_with_one_that_is(above):
    assert follow(subject(a_job()), [], above).steps == ()
    (step,) = follow(subject(a_job(suspend=False)), [], above).steps
    assert isinstance(step, Stop)


def test_a_workload_from_when_it_stood_for_itself_goes():
    own = a_workload(a_job())
    (step,) = follow(subject(a_job()), [own], []).steps
    assert isinstance(step, RemoveWorkload)
    done = a_job(status={"conditions": [{"type": "Complete", "status": "True"}]}, suspend=False)
    assert [type(step) for step in follow(subject(done), [own], []).steps] == [RemoveWorkload]
