import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import batch, raw
from muster.api.batch import policies
from muster.api.objects import decode_view

POD = {"containers": [{"name": "c", "image": "i:1"}], "restartPolicy": "Never"}


def job(pod=None, labels=None, status=None, **spec):
    template = {"spec": {**POD, **(pod or {})}, **({"metadata": {"labels": labels}} if labels else {})}
    made = {"metadata": {"name": "j"}, "spec": {"template": template, **spec}, "status": status or {}}
    made = raw.copy(made)
    batch.JOB.default(made)
    return decode_view(batch.JOB, raw.encode(made))


def paths(view):
    return [problem.path for problem in batch.JOB.validate(view)]


def on_codes(**codes):
    return {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2], **codes}}]}


def on_condition(**rule):
    return {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}], **rule}]}


INDEXED = {"completionMode": "Indexed", "completions": 4}
GOOD = {
    "bare": {},
    "that restarts in place": {"pod": {"restartPolicy": "OnFailure"}},
    "of zero pods": {"parallelism": 0},
    "indexed": {**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 4},
    "that judges exit codes": {"podFailurePolicy": on_codes(containerName="c")},
    "that judges conditions": {"podFailurePolicy": on_condition()},
    "that gives up an index": {
        **INDEXED,
        "backoffLimitPerIndex": 0,
        "podFailurePolicy": on_condition(action="FailIndex"),
    },
    "that some indexes decide": {
        **INDEXED,
        "successPolicy": {"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 3}, {"succeededCount": 1}]},
    },
    "with its own selector": {
        "manualSelector": True,
        "selector": {"matchLabels": {"a": "b"}},
        "labels": {"a": "b", "c": "d"},
    },
    "with the generated selector": {
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        "labels": {"batch.kubernetes.io/controller-uid": "u"},
    },
    "managed elsewhere": {"managedBy": "kueue.x-k8s.io/multikueue"},
}


@pytest.mark.parametrize("spec", GOOD.values(), ids=GOOD.keys())
def test_a_good_job(spec):
    assert paths(job(**spec)) == []


RULE = "spec.podFailurePolicy.rules[0]"
WIN = "spec.successPolicy.rules[0]"
BAD = {
    "a pod that always restarts": ({"pod": {"restartPolicy": "Always"}}, ["spec.template.spec.restartPolicy"]),
    "a pod without containers": ({"pod": {"containers": []}}, ["spec.template.spec.containers"]),
    "negative completions": ({"completions": -1}, ["spec.completions"]),
    "negative parallelism": ({"parallelism": -1}, ["spec.parallelism"]),
    "negative backoff": ({"backoffLimit": -1}, ["spec.backoffLimit"]),
    "a negative deadline": ({"activeDeadlineSeconds": -1}, ["spec.activeDeadlineSeconds"]),
    "a negative life after": ({"ttlSecondsAfterFinished": -1}, ["spec.ttlSecondsAfterFinished"]),
    "a completion mode": ({"completionMode": "Random"}, ["spec.completionMode"]),
    "indexed without end": ({"completionMode": "Indexed", "parallelism": 1}, ["spec.completions"]),
    "too many at once": ({**INDEXED, "parallelism": 100_001}, ["spec.parallelism"]),
    "an index limit without indexes": ({"backoffLimitPerIndex": 1}, ["spec.backoffLimitPerIndex"]),
    "failed indexes without indexes": ({"maxFailedIndexes": 1}, ["spec.maxFailedIndexes"]),
    "failed indexes without a limit for each": ({**INDEXED, "maxFailedIndexes": 1}, ["spec.backoffLimitPerIndex"]),
    "more failed than there are": (
        {**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 5},
        ["spec.maxFailedIndexes"],
    ),
    "very many indexes, any may fail": (
        {"completionMode": "Indexed", "completions": 200_000, "backoffLimitPerIndex": 1},
        ["spec.maxFailedIndexes"],
    ),
    "a manager without a domain": ({"managedBy": "me"}, ["spec.managedBy"]),
    "a selector nobody asked for": ({"selector": {"matchLabels": {"a": "b"}}}, ["spec.selector"]),
    "manual, but no selector": ({"manualSelector": True}, ["spec.selector"]),
    "a selector that misses its pods": (
        {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}},
        ["spec.template.metadata.labels"],
    ),
    "a generated selector that misses its pods": (
        {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}},
        ["spec.template.metadata.labels"],
    ),
    "the label of another job": (
        {"labels": {"job-name": "other"}},
        ["spec.template.metadata.labels[job-name]"],
    ),
    "judging pods that restart": (
        {"podFailurePolicy": on_condition(), "pod": {"restartPolicy": "OnFailure"}},
        ["spec.template.spec.restartPolicy"],
    ),
    "no action": ({"podFailurePolicy": on_condition(action="")}, [f"{RULE}.action"]),
    "an unknown action": ({"podFailurePolicy": on_condition(action="Cry")}, [f"{RULE}.action"]),
    "failing an index of none": ({"podFailurePolicy": on_condition(action="FailIndex")}, [f"{RULE}.action"]),
    "codes and conditions": ({"podFailurePolicy": on_condition(onExitCodes={"operator": "In", "values": [1]})}, [RULE]),
    "neither codes nor conditions": ({"podFailurePolicy": on_condition(onPodConditions=[])}, [RULE]),
    "exit code 0": ({"podFailurePolicy": on_codes(values=[0, 1])}, [f"{RULE}.onExitCodes.values[0]"]),
    "a code twice": ({"podFailurePolicy": on_codes(values=[1, 1])}, [f"{RULE}.onExitCodes.values"]),
    "codes out of order": ({"podFailurePolicy": on_codes(values=[2, 1])}, [f"{RULE}.onExitCodes.values"]),
    "no codes": ({"podFailurePolicy": on_codes(values=[])}, [f"{RULE}.onExitCodes.values"]),
    "codes of a container that is not there": (
        {"podFailurePolicy": on_codes(containerName="x")},
        [f"{RULE}.onExitCodes.containerName"],
    ),
    "a code's operator": ({"podFailurePolicy": on_codes(operator="Near")}, [f"{RULE}.onExitCodes.operator"]),
    "replacing too soon for a policy": (
        {"podFailurePolicy": on_condition(), "podReplacementPolicy": "TerminatingOrFailed"},
        ["spec.podReplacementPolicy"],
    ),
    "a replacement policy": ({"podReplacementPolicy": "Never"}, ["spec.podReplacementPolicy"]),
    "success of some without indexes": ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, ["spec.successPolicy"]),
    "success of nothing": ({**INDEXED, "successPolicy": {"rules": []}}, ["spec.successPolicy.rules"]),
    "success by no rule": ({**INDEXED, "successPolicy": {"rules": [{}]}}, [WIN]),
    "success of an index beyond": (
        {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "4"}]}},
        [f"{WIN}.succeededIndexes"],
    ),
    "success of more than are named": (
        {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 3}]}},
        [f"{WIN}.succeededCount"],
    ),
}


@pytest.mark.parametrize(("spec", "expected"), BAD.values(), ids=BAD.keys())
def test_a_bad_job(spec, expected):
    assert paths(job(**spec)) == expected


def test_a_name_too_long_for_its_label_is_refused():
    made = {"metadata": {"name": "j" * 64}, "spec": {"template": {"spec": POD}}}
    batch.JOB.default(made)
    found = paths(decode_view(batch.JOB, raw.encode(made)))
    assert set(found) == {"spec.template.metadata.labels"}


def test_the_last_pod_of_an_indexed_job_must_have_a_host_name():
    for length, expected in ((61, []), (62, ["metadata.name"])):
        made = {"metadata": {"name": "j" * length}, "spec": {"template": {"spec": POD}, **INDEXED}}
        batch.JOB.default(made)
        assert paths(decode_view(batch.JOB, raw.encode(made))) == expected


def test_a_job_that_was_stored_before_it_had_a_selector_may_still_change():
    old = decode_view(
        batch.JOB, raw.encode({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": POD}}})
    )
    labels = {"batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j"}
    template = {"metadata": {"labels": labels}, "spec": POD}
    made = {"metadata": {"name": "j", "uid": "u"}, "spec": {"template": template, "suspend": True}}
    assert batch.JOB.validate_update(old, decode_view(batch.JOB, raw.encode(made))) == []


@given(st.sets(st.integers(0, 40)))
def test_indexes_are_counted_as_they_are_written(indexes):
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    text = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    assert policies.count_indexes(text, 41) == len(indexes)
    if indexes:
        with pytest.raises(policies.BadIndexes):
            policies.count_indexes(text, max(indexes))


@pytest.mark.parametrize("text", [",", "1,", "a", "1-", "-1", "2,1", "1-1", "3-2", "1,1", "0-2,2-3", "٣", "9" * 50])
def test_indexes_that_make_no_sense(text):
    with pytest.raises(policies.BadIndexes):
        policies.count_indexes(text, 2**31)


def changes(old, new):
    return [problem.path for problem in batch.JOB.validate_update(job(**old), job(**new))]


HELD = {"suspend": True}
MOVED = {"pod": {"nodeSelector": {"flavor": "h200"}, "tolerations": [{"operator": "Exists"}]}, "labels": {"a": "b"}}
UPDATES = {
    "more at once": ({"completions": 4}, {"completions": 4, "parallelism": 4}, []),
    "suspending": ({}, HELD, []),
    "placing while suspended, and starting": (HELD, MOVED, []),
    "placing while it runs": ({}, MOVED, ["spec.template"]),
    "placing when pods were made": (
        {**HELD, "status": {"startTime": "2026-01-01T00:00:00Z"}},
        MOVED,
        ["spec.template"],
    ),
    "another image while suspended": (
        HELD,
        {**HELD, "pod": {"containers": [{"name": "c", "image": "i:2"}]}},
        ["spec.template"],
    ),
    "completions": ({"completions": 4}, {"completions": 5}, ["spec.completions"]),
    "completions of indexes, with parallelism": (
        {**INDEXED, "parallelism": 4},
        {**INDEXED, "parallelism": 2, "completions": 2},
        [],
    ),
    "completions of indexes alone": (
        {**INDEXED, "parallelism": 4},
        {**INDEXED, "completions": 2},
        ["spec.completions"],
    ),
    "completion mode": ({"completions": 4}, INDEXED, ["spec.completionMode"]),
    "a first selector": ({}, GOOD["with the generated selector"], []),
    "another selector": (GOOD["with the generated selector"], {}, ["spec.selector"]),
    "a failure policy": (
        {"podReplacementPolicy": "Failed"},
        {"podFailurePolicy": on_condition()},
        ["spec.podFailurePolicy"],
    ),
    "a manager": ({}, {"managedBy": "a.b/c"}, ["spec.managedBy"]),
}


@pytest.mark.parametrize(("old", "new", "expected"), UPDATES.values(), ids=UPDATES.keys())
def test_updates(old, new, expected):
    assert changes(old, new) == expected


def test_jobs_are_selected_by_successes():
    assert batch.JOB.selectable["status.successful"](job(status={"succeeded": 2})) == "2"
    assert batch.JOB.selectable["status.successful"](job()) == "0"
