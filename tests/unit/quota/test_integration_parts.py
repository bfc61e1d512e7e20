"""Elastic jobs: a base, and parts that come and go."""

from collections.abc import Sequence
from typing import TypeVar

import pytest
from tests.unit.quota.integration_worlds import WORLD, a_flavor, a_world, kinds
from tests.unit.quota.test_integration_volcano import HELD, TOLD, a_job, a_task, in_phase

from muster.api import conditions, kueue
from muster.api.kueue import names
from muster.api.objects import Object
from muster.api.raw import JSON, Document, encode
from muster.quota.integrations import jobs, making, parts, subjects
from muster.quota.integrations.steps import (
    ChangeStatus,
    ChangeWorkload,
    MakeWorkload,
    Plan,
    RemoveWorkload,
    Start,
    Stop,
    World,
)
from muster.quota.integrations.volcano_job import VolcanoJobs
from muster.quota.settings import PodsReady, Settings

JOBS = VolcanoJobs()
ABLE = subjects.abilities(JOBS)
ADMITTED = ("QuotaReserved", "Admitted")
S = TypeVar("S")


def subject(job: Document) -> subjects.Subject:
    return subjects.of_job(JOBS, job, ABLE)


def plan(job: Document, *workloads: Object, world: World = WORLD) -> Plan:
    return jobs.plan(subject(job), workloads, world)


def an_object(document: Document, conditions: Sequence[str], **status: JSON) -> Object:
    listed = [
        {"type": type, "status": "True", "reason": type, "lastTransitionTime": "2023-11-14T22:00:00Z"}
        for type in conditions
    ]
    metadata = {"uid": document["metadata"]["name"], "resourceVersion": "7", **document["metadata"]}
    made = {**document, "metadata": metadata, "status": {"conditions": listed, **status}}
    return Object(kueue.WORKLOAD, encode({**made, "apiVersion": kueue.WORKLOAD.api_version, "kind": "Workload"}))


def a_base(job: Document, *conditions: str, flavor: str = "plain", **status: JSON) -> Object:
    document = making.make(subject(job), WORLD)
    given = [
        {"name": pods["name"], "count": pods["count"], "flavors": {"cpu": flavor}}
        for pods in document["spec"]["podSets"]
    ]
    return an_object(
        document, conditions or ADMITTED, admission={"clusterQueue": "cq", "podSetAssignments": given}, **status
    )


def some_parts(replicas: int, least: int, *held: Sequence[str]) -> list[Object]:
    """Of a job of that size, with those conditions."""
    job = running(replicas, least, told=least)
    made = all_of(plan(job, a_base(job)), MakeWorkload)
    return [an_object(step.document, conditions) for step, conditions in zip(made, held, strict=True)]


def running(replicas: int, least: int, told: int, live: int | None = None, **status: JSON) -> Document:
    """A job that has heard its size."""
    counted = {"w": {"phase": {"Running": told if live is None else live}}}
    size = f'{{"w":{told}}}'
    return a_job(
        a_task("w", replicas, least),
        annotations={TOLD: size},
        status=in_phase("Running", taskStatusCount=counted, controlledResources={TOLD: size}, **status),
    )


def all_of(found: Plan, kind: type[S]) -> list[S]:
    steps: list[S] = [step for step in found.steps if isinstance(step, kind)]
    assert len(steps) == len(found.steps), found.steps
    return steps


def only(found: Plan, kind: type[S]) -> S:
    (step,) = all_of(found, kind)
    return step


def why_not_reserved(document: Document) -> str:
    reserved = conditions.find_in(document, "QuotaReserved")
    assert reserved is not None
    assert reserved["status"] == "False"
    return str(reserved["reason"])


# They are made


def test_a_job_starts_with_what_it_needs():
    job = a_job(a_task("w", 4, 2), annotations={HELD: "true"})
    start = only(plan(job, a_base(job), world=a_world(a_flavor("plain"))), Start)
    assert start.sizes == {"w": 2}
    made = jobs.started(JOBS, job, start, ABLE)
    assert made["metadata"]["annotations"] == {TOLD: '{"w":2}'}
    assert "schedulingGates" not in made["spec"]["tasks"][0]["template"]["spec"]


def test_parts_are_made_once_the_base_is_admitted():
    job = running(4, 2, told=2)
    base = a_base(job, flavor="fast")
    first, second = (step.document for step in all_of(plan(job, base), MakeWorkload))
    name = base.key.name
    assert [part["metadata"]["name"] for part in (first, second)] == [f"{name}-part-w-1", f"{name}-part-w-2"]
    assert first["metadata"]["annotations"] == {
        names.PART_OF_ANNOTATION: name,
        "kueue.x-k8s.io/workload-allowed-resource-flavors": "fast",
    }
    assert first["metadata"]["ownerReferences"] == base.document()["metadata"]["ownerReferences"]
    assert first["metadata"]["finalizers"] == [names.IN_USE_FINALIZER]
    assert first["spec"]["queueName"] == base.document()["spec"]["queueName"]
    assert [(pods["name"], pods["count"]) for pods in first["spec"]["podSets"]] == [("w", 1)]
    assert not plan(job, a_base(job, "QuotaReserved")).steps, "not while a check keeps it from running"


def test_no_queue_is_flooded_with_them():
    job = running(1000, 1, told=1)
    assert len(plan(job, a_base(job)).steps) == parts.MOST_WAITING


def test_a_name_that_is_too_long_is_cut_and_stays_unique():
    one, two = (parts.part_name(letter * 250, "w", 12) for letter in "ab")
    assert len(one) == 253
    assert one.endswith("-part-w-12")
    assert one != two


def test_a_job_that_ran_before_it_was_told_anything_keeps_its_pods_until_all_is_decided():
    job = running(3, 1, told=3)
    del job["metadata"]["annotations"][TOLD]
    base = a_base(job)
    assert kinds(plan(job, base)) == ["MakeWorkload", "MakeWorkload"]
    admitted, waiting = some_parts(3, 1, ADMITTED, ())
    assert not plan(job, base, admitted, waiting).steps
    refused = waiting.document()
    refused["status"] = {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota"}]}
    found = plan(job, base, admitted, Object(kueue.WORKLOAD, encode(refused)))
    assert only(found, Start).sizes == {"w": 2}


# They come and go


def test_a_part_that_is_admitted_lets_the_job_grow():
    job = running(4, 2, told=2)
    base = a_base(job)
    found = plan(job, base, *some_parts(4, 2, ADMITTED, ()))
    assert only(found, Start).sizes == {"w": 3}
    assert [told.message for told in found.told] == ["Pods that the job may have: w 2 -> 3"]


def test_a_part_that_is_evicted_keeps_its_quota_until_its_pod_is_gone():
    before = running(4, 2, told=4)
    base = a_base(before)
    listed = some_parts(4, 2, ADMITTED, (*ADMITTED, "Evicted"))
    assert only(plan(before, base, *listed), Start).sizes == {"w": 3}, "first the job is told"
    unheard = running(4, 2, told=3)
    unheard["status"]["controlledResources"] = {TOLD: '{"w":4}'}
    assert not plan(unheard, base, *listed).steps
    assert not plan(running(4, 2, told=3, live=4), base, *listed).steps
    assert not plan(running(4, 2, told=3, terminating=1), base, *listed).steps
    released = only(plan(running(4, 2, told=3), base, *listed), ChangeStatus)
    assert released.found is listed[1]
    assert why_not_reserved(released.made) == "PendingEvaluation"


def test_parts_go_when_the_base_is_evicted_and_nothing_runs_any_more():
    job = running(4, 2, told=4)
    listed = some_parts(4, 2, ADMITTED, ())
    evicted = a_base(job, *ADMITTED, "Evicted")
    assert kinds(plan(job, evicted, *listed)) == ["Stop"]
    ending = in_phase("Pending", "WaitingForQuota", terminating=4)
    held = a_job(a_task("w", 4, 2), annotations={HELD: "true"}, status=ending)
    assert not plan(held, evicted, *listed).steps
    stopped = a_job(a_task("w", 4, 2), annotations={HELD: "true"}, status=in_phase("Pending", "WaitingForQuota"))
    assert kinds(plan(stopped, evicted, *listed)) == ["ChangeStatus"], "it gives back what it holds"
    assert kinds(plan(stopped, an_object(making.make(subject(job), WORLD), ["Evicted"]), *listed)) == [
        "RemoveWorkload",
        "RemoveWorkload",
    ]


def test_where_fewer_pods_are_wanted_those_parts_go_first_that_hold_nothing():
    before = running(4, 1, told=3)
    base = a_base(before)
    listed = some_parts(4, 1, ADMITTED, (), ADMITTED)
    smaller = running(3, 1, told=3)
    assert only(plan(smaller, base, *listed), RemoveWorkload).found is listed[1]
    smallest = running(2, 1, told=3)
    assert only(plan(smallest, base, *listed), Start).sizes == {"w": 2}
    told = running(2, 1, told=2)
    assert [step.found for step in all_of(plan(told, base, *listed), RemoveWorkload)] == [listed[1], listed[2]]


def test_what_is_done_is_given_back_when_the_job_has_heard_that_it_may_have_less():
    job = a_job(a_task("w", 3), annotations={TOLD: '{"w":3}'}, status=running(3, 3, told=3)["status"])
    base = a_base(job)
    job["status"]["taskStatusCount"] = {"w": {"phase": {"Running": 2, "Succeeded": 1}}}
    assert only(plan(job, base), Start).sizes == {"w": 2}
    job["metadata"]["annotations"] = {TOLD: '{"w":2}'}
    assert not plan(job, base).steps, "it has not answered"
    job["status"]["controlledResources"] = {TOLD: '{"w":2}'}
    made = only(plan(job, base), ChangeStatus).made
    assert made["status"]["reclaimablePods"] == [{"name": "w", "count": 1}]


def test_a_job_that_is_through_is_told_nothing_more():
    job = running(2, 2, told=2)
    job["status"]["taskStatusCount"] = {"w": {"phase": {"Succeeded": 2}}}
    assert not plan(job, a_base(job)).steps


def test_a_job_that_is_begun_again_queues_for_what_it_gave_back():
    job = running(3, 3, told=1)
    base = a_base(job, reclaimablePods=[{"name": "w", "count": 2}])
    job["status"] |= in_phase("Restarting", taskStatusCount={}, terminating=1)
    evicted = conditions.find_in(only(plan(job, base), ChangeStatus).made, "Evicted")
    assert evicted is not None
    assert evicted["reason"] == "JobRestarted"


def test_parts_are_not_waited_for_where_pods_have_to_be_ready():
    job = running(2, 1, told=2)
    base = a_base(job, *ADMITTED, "PodsReady")
    (part,) = some_parts(2, 1, ADMITTED)
    world = World(WORLD.now, Settings(pods_ready=PodsReady()))
    ready = conditions.find_in(only(plan(job, base, part, world=world), ChangeStatus).made, "PodsReady")
    assert ready is not None


# Its size is edited


def test_a_job_that_has_parts_keeps_its_base_as_it_grows():
    job = running(4, 2, told=3)
    base = a_base(job)
    listed = some_parts(4, 2, ADMITTED, ())
    grown = running(6, 4, told=3)
    assert kinds(plan(grown, base, *listed)) == ["MakeWorkload", "MakeWorkload"]


def test_a_job_that_needs_all_its_pods_grows_at_once():
    base = a_base(running(2, 2, told=2))
    grown = running(5, 5, told=2)
    grown["metadata"]["generation"] = 2
    slice_ = only(plan(grown, base), MakeWorkload).document
    assert slice_["spec"]["podSets"][0]["count"] == 5
    assert slice_["metadata"]["annotations"][names.SLICE_OF_ANNOTATION] == str(base.key)
    waiting = an_object(slice_, ())
    more = running(7, 5, told=2)
    assert not plan(more, base, waiting).steps, "no parts before it is decided"
    assert kinds(plan(running(2, 2, told=2), base, waiting)) == ["RemoveWorkload"]


def test_a_job_that_shrinks_gives_back_what_has_gone():
    base = a_base(running(5, 5, told=5))
    assert only(plan(running(3, 3, told=5, live=4), base), Start).sizes == {"w": 3}
    assert not plan(running(3, 3, told=3, live=4), base).steps
    changed = only(plan(running(3, 3, told=3), base), ChangeWorkload)
    assert changed.made["spec"]["podSets"][0]["count"] == 3


def test_lowering_only_the_minimum_changes_nothing_for_a_job_that_runs():
    job = running(3, 3, told=3)
    assert not plan(running(3, 1, told=3), a_base(job)).steps


# A user's word


def test_an_aborted_job_gives_back_its_quota_and_waits():
    job = running(2, 2, told=2)
    job["spec"]["tasks"][0]["template"]["metadata"]["annotations"] = {names.WORKLOAD_ANNOTATION: "x"}
    base = a_base(job)
    aborting = {**job, "status": in_phase("Aborting", terminating=2)}
    stop = only(plan(aborting, base), Stop)
    held = jobs.stopped(JOBS, aborting, stop, ABLE)
    assert names.QUEUED_ANNOTATION not in held["metadata"]["annotations"]
    assert not plan(held, base).steps
    aborted = {**held, "status": in_phase("Aborted")}
    on_hold = only(plan(aborted, base), ChangeStatus).made
    assert why_not_reserved(on_hold) == "OnHold"
    resumed = {**held, "status": in_phase("Pending", "WaitingForQuota")}
    again = only(plan(resumed, Object(kueue.WORKLOAD, encode(on_hold))), ChangeStatus).made
    assert why_not_reserved(again) == "PendingEvaluation"


@pytest.mark.parametrize("why", ["WaitingForQuota", ""])
def test_a_job_that_runs_without_quota_is_stopped_when_there_is_none(why):
    """One that was there before quota was, say."""
    job = running(2, 2, told=2)
    waiting = a_base(job).document()
    status = {"type": "QuotaReserved", "status": "False", "reason": why} if why else {"type": "X", "status": "True"}
    waiting["status"] = {"conditions": [status]}
    found = plan(job, Object(kueue.WORKLOAD, encode(waiting)))
    assert kinds(found) == (["Stop"] if why else [])
