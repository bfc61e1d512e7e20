"""What holds of every plan, whatever the job and its pods look like."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.job_worlds import TRACKING, a_pod, as_job, at, conditions_of, decide, job_document, written

from muster.api import core
from muster.api.raw import Document
from muster.jobs.batch import Plan

PHASES = ("Pending", "Running", "Running", "Succeeded", "Failed", "Unknown")


@st.composite
def jobs(draw: st.DrawFn) -> Document:
    completions = draw(st.integers(0, 6))
    spec: Document = {
        "parallelism": draw(st.integers(0, 6)),
        "suspend": draw(st.booleans()) and draw(st.booleans()),
        "backoffLimit": draw(st.sampled_from((0, 2, 50))),
    }
    status: Document = {"failed": draw(st.integers(0, 2)), "startTime": at(-50)}
    if draw(st.booleans()):
        spec |= {"completionMode": "Indexed", "completions": completions}
        done = draw(st.sets(st.integers(0, 6)))
        status["completedIndexes"] = ",".join(map(str, sorted(done)))
        if draw(st.booleans()):
            spec["backoffLimitPerIndex"] = draw(st.integers(0, 2))
        if draw(st.booleans()):
            spec["successPolicy"] = {"rules": [{"succeededCount": 2}]}
    elif draw(st.booleans()):
        spec["completions"] = completions
        status["succeeded"] = draw(st.integers(0, 3))
    if draw(st.booleans()):
        spec["podReplacementPolicy"] = "Failed"
    if draw(st.booleans()):
        rules = [{"action": action, "onExitCodes": {"operator": "In", "values": [code]}} for action, code in RULES]
        spec["podFailurePolicy"] = {"rules": draw(st.permutations(rules))}
        spec["podReplacementPolicy"] = "Failed"
    if draw(st.booleans()):
        spec["activeDeadlineSeconds"] = draw(st.sampled_from((10, 100)))
    uncounted = draw(
        st.fixed_dictionaries({}, optional={"failed": st.just(["uid-p0"]), "succeeded": st.just(["uid-p1"])})
    )
    return job_document({**status, "uncountedTerminatedPods": uncounted}, **spec)


RULES = (("Ignore", 1), ("Count", 2), ("FailJob", 9))


@st.composite
def crews(draw: st.DrawFn) -> list[core.Pod]:
    return [
        a_pod(
            f"p{number}",
            draw(st.sampled_from(PHASES)),
            index=draw(st.none() | st.integers(0, 7)),
            ended=draw(st.sampled_from((-700, -15, -5))),
            exit_code=draw(st.sampled_from((1, 2, 3))),
            failures=draw(st.none() | st.integers(0, 2)),
            deleted=draw(st.sampled_from((None, None, None, 0, 30))),
            tracked=draw(st.integers(0, 4)) > 0,
            bound=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 8)))
    ]


def names(pods: list[core.Pod]) -> set[str]:
    return {pod.metadata.name for pod in pods}


def after(decided: Plan, pods: list[core.Pod]) -> list[core.Pod]:
    """The pods once a plan's deletions and releases have happened, and those that nothing holds are gone."""
    away = names(list(decided.removed)) | names(list(decided.ended)) | names(list(decided.released))
    return [pod for pod in pods if pod.metadata.name not in away]


@given(jobs(), crews())
def test_pods_are_made_only_up_to_what_is_allowed(document, pods):
    decided = decide(as_job(document), pods)
    active = [
        pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed") and not pod.metadata.deletion_timestamp
    ]
    if decided.created:
        assert len(active) + len(decided.created) <= document["spec"]["parallelism"]
        assert not decided.removed
        assert not decided.ended
        assert not document["spec"]["suspend"]
        made = [pod.index for pod in decided.created]
        assert made == [None] * len(made) or len(set(made)) == len(made)
    assert names(list(decided.removed)) | names(list(decided.ended)) <= names(active)
    assert len({pod.name for pod in decided.created} - names(pods)) == len(decided.created)


@given(jobs(), crews())
def test_only_pods_that_are_held_are_let_go(document, pods):
    decided = decide(as_job(document), pods)
    assert all(TRACKING in pod.metadata.finalizers for pod in decided.released)
    assert len({pod.metadata.uid for pod in decided.released}) == len(decided.released)


@given(jobs(), crews())
def test_a_plan_of_which_only_the_status_was_written_comes_again(document, pods):
    """Killed before the pods were let go: the same pods are let go next time, and nothing else is written."""
    first = decide(as_job(document), pods)
    again = decide(as_job(written(document, first)), pods)
    assert names(list(first.released)) <= names(list(again.released))
    assert first.status is not None or again.status is None
    assert decide(as_job(written(written(document, first), again)), pods).status is None


@given(jobs(), crews())
def test_no_count_is_lost_or_doubled(document, pods):
    """What a plan counts and writes down is as much as the next, which no longer sees those pods, has counted."""
    first = decide(as_job(document), pods)
    job = written(document, first)
    second = decide(as_job(job), after(first, pods))
    for counter in ("succeeded", "failed"):
        if counter == "succeeded" and document["spec"]["completionMode"] == "Indexed":
            continue
        listed = job["status"]["uncountedTerminatedPods"].get(counter, [])
        total = job["status"].get(counter, 0) + len(listed)
        left = written(job, second)["status"]
        fresh = set(left["uncountedTerminatedPods"].get(counter, [])) - set(listed)
        assert left.get(counter, 0) + len(left["uncountedTerminatedPods"].get(counter, [])) == total + len(fresh)


@given(jobs(), crews())
def test_every_job_that_is_decided_comes_to_its_end_and_stays_there(document, pods):
    job, crew = document, pods
    for _ in range(12):
        decided = decide(as_job(job), crew)
        job, crew = written(job, decided), after(decided, crew)
        crew = [pod for pod in crew if not pod.metadata.deletion_timestamp or pod.metadata.finalizers]
        if {"Complete", "Failed"} & set(conditions_of(job["status"])):
            break
    told = set(conditions_of(job["status"]))
    if {"SuccessCriteriaMet", "FailureTarget"} & told and not crew:
        assert {"Complete", "Failed"} & told
    if {"Complete", "Failed"} & told:
        last = decide(as_job(job), crew)
        assert (last.status, len(last.created), len(last.ended), len(last.removed)) == (None, 0, 0, 0)
