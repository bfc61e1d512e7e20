"""What a job decides, case by case."""

import pytest
from tests.unit.jobs.job_worlds import (
    NOW_TEXT,
    a_job,
    a_pod,
    as_job,
    at,
    conditions_of,
    decide,
    indexed,
    job_document,
    settle,
    status_of,
    written,
)

from muster.api.raw import Document

BUSY = [a_pod("a"), a_pod("b")]
CASES = {
    # job, its pods, how many are made and which are removed
    "a new job": (a_job(), [], 1, []),
    "so many at a time": (a_job(completions=5, parallelism=3), [], 3, []),
    "no more than are still wanted": (a_job({"succeeded": 4}, completions=5, parallelism=3), [], 1, []),
    "a pod that ends is followed by the next": (a_job(completions=5, parallelism=1), [a_pod("a", "Succeeded")], 1, []),
    "one that works is enough": (a_job(), [a_pod("a")], 0, []),
    "many at a time, in portions": (a_job(completions=9000, parallelism=9000), [], 500, []),
    "parallelism of zero is a pause": (a_job(completions=2, parallelism=0), [a_pod("a")], 0, ["a"]),
    "a work queue starts its workers": (a_job(parallelism=3), [], 3, []),
    "a work queue starts none once one has succeeded": (
        a_job(parallelism=3), [a_pod("a", "Succeeded"), a_pod("b")], 0, [],
    ),
    "too many: the one that has not been placed goes": (
        a_job(completions=9, parallelism=2), [a_pod("a"), a_pod("c", "Pending", bound=False), a_pod("b")], 0, ["c"],
    ),
    "too many: pending before running": (
        a_job(completions=9, parallelism=1), [a_pod("a"), a_pod("b", "Pending")], 0, ["b"],
    ),
    "too many: unready before ready": (
        a_job(completions=9, parallelism=1), [a_pod("a", conditions=["Ready"]), a_pod("b")], 0, ["b"],
    ),
    "suspended": (a_job(suspend=True), [], 0, []),
    "suspended while it works": (a_job(suspend=True, completions=2, parallelism=2), BUSY, 0, ["a", "b"]),
    "a pod that is being deleted is replaced after a while": (a_job(), [a_pod("a", deleted=30)], 0, []),
    "a pod that is being deleted is awaited where that was asked for": (
        a_job(podReplacementPolicy="Failed"), [a_pod("a", deleted=30)], 0, [],
    ),
    "managed by somebody else": (a_job(managedBy="acme.io/jobs"), [a_pod("a", "Failed")], 0, []),
    "managed by us, and it says so": (a_job(managedBy="kubernetes.io/job-controller"), [], 1, []),
    "all indexes": (indexed(3), [], 3, []),
    "the indexes that are missing": (indexed(4, 2), [a_pod("a", index=1)], 1, []),
    "an index twice": (
        indexed(3), [a_pod("a", index=0), a_pod("b", "Pending", index=0), a_pod("c", index=1), a_pod("d", index=2)],
        0, ["b"],
    ),
    "a pod that could not be counted any more": (a_job(), [a_pod("a", tracked=False)], 0, ["a"]),
    "a pod that was given up does not complete its index": (
        indexed(1), [a_pod("a", "Succeeded", index=0, tracked=False)], 1, [],
    ),
    "an index that there is no more": (indexed(1), [a_pod("a", index=0), a_pod("b", index=1)], 0, ["b"]),
    "a pod that does not know its index": (indexed(1), [a_pod("a", index=0), a_pod("b")], 0, ["b"]),
}  # fmt: skip


@pytest.mark.parametrize(("job", "pods", "made", "removed"), CASES.values(), ids=CASES.keys())
def test_pods_are_made_and_removed(job, pods, made, removed):
    found = decide(job, pods)
    assert len(found.created) == made
    assert [pod.metadata.name for pod in found.removed] == removed
    assert not found.ended


def test_a_deleted_pod_is_a_failure_and_its_replacement_waits_for_its_turn():
    found = decide(a_job(), [a_pod("a", deleted=30)])
    assert status_of(found)["uncountedTerminatedPods"]["failed"] == ["uid-a"]
    assert found.again_after == pytest.approx(10.0)


def test_indexes_get_the_lowest_that_are_free():
    job = indexed(9, 4, status={"completedIndexes": "0-1,4", "succeeded": 3})
    found = decide(job, [a_pod("a", index=3)])
    assert [pod.index for pod in found.created] == [2, 5, 6]
    assert [pod.stem for pod in found.created] == ["j-2-", "j-5-", "j-6-"]


def test_names_form_a_series_of_which_the_first_free_ones_are_taken():
    job = a_job(completions=3, parallelism=3)
    first = [pod.name for pod in decide(job).created]
    assert len(set(first)) == 3
    assert all(name.startswith("j-") and len(name) == 7 for name in first)
    # Where some of them were made after all, those that are asked for next are the ones that are missing.
    assert [pod.name for pod in decide(job, [a_pod(first[1])]).created] == [first[0], first[2]]
    later = [pod.name for pod in decide(job, [a_pod(name, "Failed", ended=-99) for name in first]).created]
    assert not set(later) & set(first)
    assert [pod.name for pod in decide(job, taken={first[0]}).created] == [*first[1:], later[0]]


def test_a_long_name_is_cut():
    document = job_document(completionMode="Indexed", completions=12, parallelism=12)
    document["metadata"]["name"] = "j" * 60
    created = decide(as_job(document)).created
    assert {len(pod.name) for pod in created} == {63}
    assert created[11].name.startswith("j" * 54 + "-11-")


# Life


def test_a_job_from_its_start_to_its_end():
    decided, job = settle(job_document(completions=2, parallelism=2))
    assert job["status"] == {
        "startTime": NOW_TEXT, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
    }  # fmt: skip
    decided, job = settle(job, [a_pod("a", conditions=["Ready"]), a_pod("b", "Pending")])
    assert (job["status"]["active"], job["status"]["ready"], len(decided.created)) == (2, 1, 0)

    decided, job = settle(job, [a_pod("a", "Succeeded"), a_pod("b")])
    assert job["status"]["uncountedTerminatedPods"] == {"succeeded": ["uid-a"]}
    assert [pod.metadata.name for pod in decided.released] == ["a"]
    assert "succeeded" not in job["status"]
    decided, job = settle(job, [a_pod("a", "Succeeded", tracked=False), a_pod("b")])
    assert (job["status"]["succeeded"], job["status"]["uncountedTerminatedPods"]) == (1, {})

    decided, job = settle(job, [a_pod("b", "Succeeded")])  # and somebody has cleaned up a
    assert conditions_of(job["status"]) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached", "Reached expected number of succeeded pods")
    }
    decided, job = settle(job)
    assert conditions_of(job["status"])["Complete"] == (
        "True", "CompletionsReached", "Reached expected number of succeeded pods",
    )  # fmt: skip
    assert (job["status"]["succeeded"], job["status"]["completionTime"]) == (2, NOW_TEXT)
    assert [(told.type, told.reason, told.message) for told in decided.told] == [
        ("Normal", "Completed", "Job completed")
    ]
    assert "active" not in job["status"]


def test_what_is_as_it_should_be_is_not_written():
    for pods in ([], [a_pod("a")], [a_pod("a", "Succeeded", tracked=False)], [a_pod("a", deleted=30)]):
        _, job = settle(job_document(completions=2, parallelism=1), pods)
        assert decide(as_job(job), pods, 0.5).status is None


def test_a_job_of_no_completions_is_complete_at_once():
    _, job = settle(job_document(completions=0))
    assert "Complete" in conditions_of(job["status"])


def test_the_end_waits_for_pods_that_are_still_ending():
    document = job_document({"succeeded": 1})
    _, job = settle(document, [a_pod("late", tracked=False, deleted=30)])
    assert list(conditions_of(job["status"])) == ["SuccessCriteriaMet"]
    _, job = settle(job)
    assert list(conditions_of(job["status"])) == ["SuccessCriteriaMet", "Complete"]


def test_pods_that_a_finished_job_has_left_are_let_go():
    over = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": NOW_TEXT}]}
    found = decide(a_job(over), [a_pod("a", "Succeeded"), a_pod("b", "Succeeded", tracked=False)])
    assert [pod.metadata.name for pod in found.released] == ["a"]
    assert found.status is None


def test_a_job_that_is_being_deleted_makes_nothing_and_holds_nothing():
    document = job_document(completions=4, parallelism=4)
    document["metadata"]["deletionTimestamp"] = NOW_TEXT
    found = decide(as_job(document), [a_pod("a"), a_pod("b", "Succeeded")])
    assert not found.created
    assert {pod.metadata.name for pod in found.released} == {"a", "b"}


@pytest.mark.parametrize("manager", [None, "acme.io/jobs"])
def test_time_to_live(manager):
    over = {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": at(-60)}]}
    spec: Document = {"managedBy": manager} if manager else {}
    assert not decide(a_job(over, **spec)).is_expired
    waiting = decide(a_job(over, ttlSecondsAfterFinished=100, **spec))
    assert (waiting.is_expired, waiting.again_after) == (False, 40.0)
    assert decide(a_job(over, ttlSecondsAfterFinished=60, **spec)).is_expired


# Suspending


def test_suspending_and_resuming():
    document = job_document({"startTime": at(-90), "active": 1})
    document["spec"]["suspend"] = True
    decided, job = settle(document, [a_pod("a")])
    assert conditions_of(job["status"])["Suspended"] == ("True", "JobSuspended", "Job suspended")
    assert "startTime" not in job["status"]
    assert "active" not in job["status"]
    assert job["status"]["terminating"] == 1
    assert [told.reason for told in decided.told] == ["Suspended"]
    assert not decided.released, "it is let go before it is deleted, and does not count as failed"

    document = job | {"spec": job["spec"] | {"suspend": False}}
    decided, job = settle(document)
    assert conditions_of(job["status"])["Suspended"] == ("False", "JobResumed", "Job resumed")
    assert job["status"]["startTime"] == NOW_TEXT
    assert [told.reason for told in decided.told] == ["Resumed"]
    assert len(decided.created) == 1


def test_a_job_that_never_was_suspended_does_not_speak_of_it():
    _, job = settle(job_document())
    assert "conditions" not in job["status"]


def test_the_deadline_stands_still_while_suspended():
    held = a_job({"startTime": at(-100)}, suspend=True, activeDeadlineSeconds=50)
    found = decide(held)
    assert found.again_after is None
    assert "FailureTarget" not in conditions_of(status_of(found))


# Failing

TARGET = ("True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


def test_a_job_that_fails_ends_its_pods_counts_them_and_is_over_when_they_are():
    document = job_document({"failed": 1}, completions=3, parallelism=3, backoffLimit=1)
    decided, job = settle(document, [a_pod("a", "Failed"), a_pod("b"), a_pod("c", "Pending", bound=False)])
    assert conditions_of(job["status"]) == {"FailureTarget": TARGET}
    assert [pod.metadata.name for pod in decided.ended] == ["b", "c"]
    assert job["status"]["uncountedTerminatedPods"]["failed"] == ["uid-a", "uid-b", "uid-c"]
    assert len(decided.released) == 3
    assert not decided.told

    decided, job = settle(job, [a_pod("b", tracked=False, deleted=30)])
    assert (job["status"]["failed"], list(conditions_of(job["status"]))) == (4, ["FailureTarget"])
    decided, job = settle(job)
    assert conditions_of(job["status"]) == {"FailureTarget": TARGET, "Failed": TARGET}
    assert [(told.type, told.reason) for told in decided.told] == [("Warning", "BackoffLimitExceeded")]
    assert "completionTime" not in job["status"]


def test_failures_up_to_the_limit_are_replaced():
    found = decide(a_job({"failed": 1}, backoffLimit=2), [a_pod("a", "Failed", ended=-100)])
    assert len(found.created) == 1


@pytest.mark.parametrize(("limit", "restarts", "fails"), [(0, 0, False), (0, 1, True), (2, 1, False), (2, 2, True)])
def test_restarts_in_place_count_where_pods_restart(limit, restarts, fails):
    for policy in ("OnFailure", "Never"):
        job = a_job(pod={"restartPolicy": policy}, backoffLimit=limit)
        found = decide(job, [a_pod("a", restarts=restarts)])
        assert ("FailureTarget" in conditions_of(status_of(found))) == (fails and policy == "OnFailure")


def test_the_deadline():
    spec: Document = {"activeDeadlineSeconds": 100}
    assert decide(a_job({"startTime": at(-90)}, **spec), [a_pod("a")]).again_after == 10.0
    found = decide(a_job({"startTime": at(-100)}, **spec), [a_pod("a")])
    assert conditions_of(status_of(found))["FailureTarget"] == (
        "True", "DeadlineExceeded", "Job was active longer than specified deadline",
    )  # fmt: skip
    assert len(found.ended) == 1


# Backing off


@pytest.mark.parametrize(
    ("failures", "delay"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 600), (40, 600)]
)
def test_the_wait_doubles_with_each_failure(failures, delay):
    pods = [a_pod(f"p{n}", "Failed", tracked=False, ended=-n) for n in range(failures)]
    job = a_job({"failed": failures}, backoffLimit=99)
    assert decide(job, pods).again_after == pytest.approx(delay)
    assert not decide(job, pods).created
    assert len(decide(job, pods, delay).created) == 1


def test_a_success_ends_the_wait():
    pods = [a_pod("a", "Failed", ended=-4), a_pod("b", "Succeeded", ended=-3)]
    assert len(decide(a_job(completions=3), pods).created) == 1
    assert not decide(a_job(completions=3), [*pods, a_pod("c", "Failed", ended=-2)]).created


def test_pods_that_were_removed_are_no_failures():
    assert len(decide(a_job(), [a_pod("a", "Failed", tracked=False, deleted=0, ended=-1)]).created) == 1


def test_a_clock_that_is_ahead_elsewhere_does_not_lengthen_the_wait():
    assert decide(a_job(), [a_pod("a", "Failed", ended=9)]).again_after == 10.0


def test_a_clock_that_was_set_back_does_not_stop_the_job_until_it_is_that_late_again():
    assert len(decide(a_job(), [a_pod("a", "Failed", ended=900)]).created) == 1


# Indexes with limits of their own


def each(**spec):
    return indexed(2, backoffLimitPerIndex=1, **spec)


def test_a_failed_index_is_tried_again_and_its_pod_stays_until_then():
    pods = [a_pod("a", "Failed", index=0, failures=0, ended=-5), a_pod("b", index=1, failures=0)]
    waiting = decide(each(), pods)
    assert not waiting.created
    assert not waiting.released
    assert waiting.again_after == pytest.approx(5.0)
    again = decide(each(), pods, 5)
    assert [(pod.index, pod.failures) for pod in again.created] == [(0, 1)]
    assert not again.released, "the count would be lost with it if the new pod is not made"
    done = decide(each(), [*pods, a_pod("c", "Pending", index=0, failures=1)], 5)
    assert [pod.metadata.name for pod in done.released] == ["a"]
    assert status_of(done)["uncountedTerminatedPods"]["failed"] == ["uid-a"]


def test_an_index_beyond_its_limit_has_failed_and_the_others_go_on():
    pods = [a_pod("a", "Failed", index=0, failures=1), a_pod("b", index=1, failures=0)]
    found = decide(each(), pods)
    assert status_of(found)["failedIndexes"] == "0"
    assert not found.created
    assert "conditions" not in status_of(found)


def test_a_job_fails_once_all_its_indexes_are_over_and_some_have_failed():
    pods = [a_pod("a", "Failed", index=0, failures=1), a_pod("b", "Succeeded", index=1, failures=0)]
    found = decide(each(), pods)
    assert conditions_of(status_of(found)) == {"FailureTarget": ("True", "FailedIndexes", "Job has failed indexes")}
    assert (status_of(found)["completedIndexes"], status_of(found)["failedIndexes"]) == ("1", "0")


def test_too_many_failed_indexes_end_the_others():
    job = indexed(9, backoffLimitPerIndex=0, maxFailedIndexes=1)
    pods = [a_pod(f"p{n}", "Failed" if n < 2 else "Running", index=n, failures=0) for n in range(9)]
    found = decide(job, pods)
    assert conditions_of(status_of(found))["FailureTarget"] == (
        "True", "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes",
    )  # fmt: skip
    assert len(found.ended) == 7


def test_ignored_failures_of_an_index_are_counted_apart():
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    pods = [
        a_pod("a", "Failed", index=0, failures=1, ignored=2, ended=-500, conditions=["DisruptionTarget"]),
        a_pod("b", index=1, failures=0),
    ]
    found = decide(each(podFailurePolicy=policy), pods)
    assert [(pod.index, pod.failures, pod.ignored_failures) for pod in found.created] == [(0, 1, 3)]


# Policies


def rule(action, codes=None, operator="In", container=None, condition=None):
    if codes is not None:
        matching = {"operator": operator, "values": codes, **({"containerName": container} if container else {})}
        return {"action": action, "onExitCodes": matching}
    return {"action": action, "onPodConditions": [{"type": condition}]}


def judged(pod, *rules, **spec):
    return decide(a_job({"failed": 5}, podFailurePolicy={"rules": list(rules)}, **spec), [pod])


def test_a_rule_may_fail_the_job_by_exit_code_or_by_condition():
    found = judged(a_pod("a", "Failed", exit_code=42), rule("Ignore", [1]), rule("FailJob", [3, 42]))
    assert conditions_of(status_of(found))["FailureTarget"] == (
        "True", "PodFailurePolicy",
        "Container main for pod default/a failed with exit code 42 matching FailJob rule at index 1",
    )  # fmt: skip
    pod = a_pod("a", "Failed", conditions=["ConfigIssue"])
    found = judged(pod, rule("FailJob", condition="ConfigIssue"))
    assert conditions_of(status_of(found))["FailureTarget"][2] == (
        "Pod default/a has condition ConfigIssue matching FailJob rule at index 0"
    )


@pytest.mark.parametrize(
    ("matching", "is_counted"),
    [
        pytest.param(rule("Ignore", [1]), False, id="ignored"),
        pytest.param(rule("Count", [1]), True, id="counted"),
        pytest.param(rule("Ignore", [2]), True, id="another code"),
        pytest.param(rule("Ignore", [2], "NotIn"), False, id="not in"),
        pytest.param(rule("Ignore", [1], "NotIn"), True, id="in, not wanted"),
        pytest.param(rule("Ignore", [1], container="main"), False, id="its container"),
        pytest.param(rule("Ignore", [1], container="other"), True, id="another container"),
        pytest.param(rule("Ignore", condition="DisruptionTarget"), True, id="no such condition"),
    ],
)
def test_which_failures_count(matching, is_counted):
    found = judged(a_pod("a", "Failed", exit_code=1), matching, backoffLimit=9)
    assert [pod.metadata.name for pod in found.released] == ["a"]
    assert (status_of(found).get("uncountedTerminatedPods", {}).get("failed") == ["uid-a"]) == is_counted


def test_an_ignored_failure_does_not_reach_the_limit():
    pod = a_pod("a", "Failed", exit_code=1)
    assert "conditions" not in status_of(judged(pod, rule("Ignore", [1]), backoffLimit=5))
    assert "conditions" in status_of(judged(pod, rule("Count", [1]), backoffLimit=5))


def test_a_rule_may_give_up_an_index():
    policy = {"rules": [rule("FailIndex", [42])]}
    pods = [a_pod("a", "Failed", index=0, failures=0, exit_code=42), a_pod("b", index=1, failures=0)]
    assert status_of(decide(each(podFailurePolicy=policy), pods))["failedIndexes"] == "0"


def test_a_pod_that_nobody_will_report_on_any_more_counts_as_failed():
    """Deleted before it was placed, or with its node lost: with no time left, only the finalizer holds it."""
    job = a_job(podReplacementPolicy="Failed")
    assert not decide(job, [a_pod("a", deleted=30)]).released
    assert decide(job, [a_pod("a", "Pending", bound=False, deleted=0)]).released


@pytest.mark.parametrize(
    ("rules", "done", "met"),
    [
        ([{"succeededIndexes": "0,2-3"}], "0-1,3", None),
        ([{"succeededIndexes": "0,2-3"}], "0,2-3", 0),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 1}], "3", 0),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 2}], "1,3", None),
        ([{"succeededIndexes": "4"}, {"succeededCount": 2}], "1,3", 1),
    ],
)
def test_success_of_some_is_enough(rules, done, met):
    job = indexed(5, 5, successPolicy={"rules": rules}, status={"completedIndexes": done})
    pods = [a_pod(f"p{n}", index=n) for n in range(5) if str(n) not in done]
    found = decide(job, pods)
    if met is None:
        assert "conditions" not in status_of(found)
        return
    assert conditions_of(status_of(found)) == {
        "SuccessCriteriaMet": ("True", "SuccessPolicy", f"Matched rules at index {met}")
    }
    assert len(found.ended) == len(found.released) == len(pods)
    assert (
        "failed" not in status_of(found)["uncountedTerminatedPods"]
        or not status_of(found)["uncountedTerminatedPods"]["failed"]
    )


def test_after_success_of_some_the_rest_does_not_count_as_failed():
    document = job_document(
        {"completedIndexes": "0"}, completionMode="Indexed", completions=2, parallelism=2,
        successPolicy={"rules": [{"succeededCount": 1}]},
    )  # fmt: skip
    _, job = settle(document, [a_pod("b", index=1)])
    _, job = settle(job)
    assert conditions_of(job["status"])["Complete"] == ("True", "SuccessPolicy", "Matched rules at index 0")
    assert job["status"].get("failed") is None


# Counting


def test_many_at_the_end_are_written_down_in_portions():
    document = job_document(completions=900, parallelism=900)
    pods = [a_pod(f"p{n:03}", "Succeeded") for n in range(900)]
    decided, job = settle(document, pods)
    assert (len(decided.released), decided.again_after) == (500, 0.0)
    pods = [a_pod(f"p{n:03}", "Succeeded", tracked=n >= 500) for n in range(900)]
    decided, job = settle(job, pods)
    assert (len(decided.released), job["status"]["succeeded"]) == (400, 500)
    _, job = settle(job)
    assert job["status"]["succeeded"] == 900
    assert "Complete" in conditions_of(job["status"])


def test_a_pod_written_down_as_failed_stays_so_even_if_it_succeeds_in_the_end():
    document = job_document()
    _, job = settle(document, [a_pod("a", deleted=30)])
    _, job = settle(job, [a_pod("a", "Succeeded", deleted=30)])
    _, job = settle(job)
    assert (job["status"]["failed"], job["status"].get("succeeded")) == (1, None)


def test_a_status_that_was_not_written_is_written_next_time():
    document = job_document()
    decided = decide(as_job(document), [a_pod("a", "Succeeded")])
    again = decide(as_job(document), [a_pod("a", "Succeeded")])
    assert decided == again
    # It was, but the pod was not let go: once more, and not counted twice.
    job = written(document, decided)
    repeated, job = settle(job, [a_pod("a", "Succeeded")])
    assert [pod.metadata.name for pod in repeated.released] == ["a"]
    _, job = settle(job)
    assert job["status"]["succeeded"] == 1
