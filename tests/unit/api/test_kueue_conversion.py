"""v1beta1 documents become v1beta2 and back, field by field and as round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.api.dialect_examples import example, problems

from muster.api import kueue, raw
from muster.api.kinds import Kind
from muster.api.kueue import topology_assignments
from muster.api.kueue.topology_assignments import Domain, Unreadable
from muster.api.raw import JSON, Document

HOSTS = st.text("abc-1", min_size=1, max_size=5)
DOMAINS = st.integers(1, 3).flatmap(
    lambda width: st.lists(
        st.builds(Domain, st.tuples(*[HOSTS] * width), st.integers(1, 9)), min_size=1, max_size=6
    ).map(lambda domains: ([f"level-{i}" for i in range(width)], domains))
)


def stored(kind: Kind, document: Document) -> Document:
    (conversion,) = kind.conversions
    return conversion.to_stored(raw.copy(document))


def served(kind: Kind, document: Document) -> Document:
    (conversion,) = kind.conversions
    return conversion.from_stored(raw.copy(document))


@pytest.mark.parametrize("kind", kueue.KINDS, ids=lambda kind: kind.name)
def test_there_and_back_is_the_same_document(kind: Kind) -> None:
    document = example(kind)
    old = served(kind, document)
    assert old["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert stored(kind, old) == document
    assert served(kind, stored(kind, old)) == old
    assert problems(kind, stored(kind, old)) == []


def test_a_cluster_queue_as_v1beta1_writes_it() -> None:
    old = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "spec": {
            "cohort": "research",
            "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
            "admissionChecks": ["a", "b"],
        },
        "status": {"pendingWorkloads": 1, "pendingWorkloadsStatus": {"lastChangeTime": "x"}},
    }
    assert stored(kueue.CLUSTER_QUEUE, old) == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "spec": {
            "cohortName": "research",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]},
        },
        "status": {"pendingWorkloads": 1},
    }


def test_a_strategy_wins_over_the_plain_list_of_checks() -> None:
    strategy = {"admissionChecks": [{"name": "a", "onFlavors": ["x"]}]}
    old = {"spec": {"admissionChecks": ["b"], "admissionChecksStrategy": strategy}}
    assert stored(kueue.CLUSTER_QUEUE, old)["spec"] == {"admissionChecksStrategy": strategy}


def test_fungibility_is_served_in_the_old_words() -> None:
    policy = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
    found = served(kueue.CLUSTER_QUEUE, {"spec": {"flavorFungibility": policy, "cohortName": "c"}})
    assert found["spec"] == {
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"},
        "cohort": "c",
    }


def test_usage_of_a_local_queue_was_once_spelled_otherwise() -> None:
    old = {"status": {"flavorUsage": [{"name": "f"}], "flavors": [{"name": "f"}]}}
    assert stored(kueue.LOCAL_QUEUE, old)["status"] == {"flavorsUsage": [{"name": "f"}]}
    assert served(kueue.LOCAL_QUEUE, stored(kueue.LOCAL_QUEUE, old))["status"] == {"flavorUsage": [{"name": "f"}]}


def test_a_check_loses_its_retry_delay() -> None:
    assert stored(kueue.ADMISSION_CHECK, {"spec": {"controllerName": "c", "retryDelayMinutes": 15}})["spec"] == {
        "controllerName": "c"
    }


@pytest.mark.parametrize(
    ("source", "group", "name"),
    [
        ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
    ],
)
def test_a_priority_class_and_its_source_become_a_reference(source: str, group: str, name: str) -> None:
    old = {"spec": {"priorityClassName": "high", "priorityClassSource": source}}
    new = stored(kueue.WORKLOAD, old)
    assert new["spec"] == {"priorityClassRef": {"group": group, "kind": name, "name": "high"}}
    assert served(kueue.WORKLOAD, new)["spec"] == old["spec"]


def test_a_priority_class_without_a_source_is_a_pods() -> None:
    new = stored(kueue.WORKLOAD, {"spec": {"priorityClassName": "high", "priorityClassSource": ""}})
    assert new["spec"]["priorityClassRef"]["kind"] == "PriorityClass"


def test_an_unknown_source_is_left_for_validation_to_refuse() -> None:
    spec = {"priority": 1, "priorityClassName": "high", "priorityClassSource": "odd", "podSets": [{"template": {}}]}
    (found,) = problems(kueue.WORKLOAD, stored(kueue.WORKLOAD, {"spec": spec}))
    assert found.startswith("spec.priorityClassRef.group")


def test_the_misspelled_execution_time_is_read() -> None:
    old = {"status": {"accumulatedPastExexcutionTimeSeconds": 60}}
    new = stored(kueue.WORKLOAD, old)
    assert new["status"] == {"accumulatedPastExecutionTimeSeconds": 60}
    assert served(kueue.WORKLOAD, new)["status"] == old["status"]


def test_domains_become_slices() -> None:
    domains = [{"values": ["r1", "host-1-x"], "count": 2}, {"values": ["r1", "host-22-x"], "count": 3}]
    assignment = {"levels": ["rack", "host"], "domains": domains}
    old = {"status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]}}}
    new = stored(kueue.WORKLOAD, old)
    assert new["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] == {
        "levels": ["rack", "host"],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [
                    {"universal": "r1"},
                    {"individual": {"prefix": "host-", "suffix": "-x", "roots": ["1", "22"]}},
                ],
                "podCounts": {"individual": [2, 3]},
            }
        ],
    }
    assert served(kueue.WORKLOAD, new)["status"] == old["status"]


@given(DOMAINS)
def test_compact_and_listed_say_the_same(given_: tuple[list[str], list[Domain]]) -> None:
    levels, domains = given_
    compact = topology_assignments.compact(levels, domains)
    assert topology_assignments.list_out(compact) == domains
    listed = topology_assignments.as_list(levels, domains)
    assert topology_assignments.read_list(listed) == domains


@given(st.lists(HOSTS, min_size=2, max_size=6, unique=True))
def test_prefix_and_suffix_never_overlap(hosts: list[str]) -> None:
    compact = topology_assignments.compact(["host"], [Domain((host,), 1) for host in hosts])
    individual = compact["slices"][0]["valuesPerLevel"][0]["individual"]
    shared = len(individual.get("prefix", "")) + len(individual.get("suffix", ""))
    assert shared <= min(map(len, hosts))


def test_several_slices_are_listed_one_after_another() -> None:
    slices = [
        {"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}], "podCounts": {"universal": 1}},
        {"domainCount": 1, "valuesPerLevel": [{"universal": "c"}], "podCounts": {"individual": [5]}},
    ]
    found = topology_assignments.list_out({"levels": ["host"], "slices": slices})
    assert found == [Domain(("a",), 1), Domain(("b",), 1), Domain(("c",), 5)]


@pytest.mark.parametrize(
    "piece",
    [
        {},
        {"domainCount": 1, "valuesPerLevel": [], "podCounts": {"universal": 1}},
        {"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a"]}}], "podCounts": {"universal": 1}},
        {"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"individual": [1, 2]}},
        {"domainCount": "1", "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}},
        {"domainCount": 10**12, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}},
        7,
    ],
)
def test_a_broken_slice_is_unreadable(piece: JSON) -> None:
    with pytest.raises(Unreadable):
        topology_assignments.list_out({"levels": ["host"], "slices": [piece]})


WRONG = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just([]), st.just({}), st.just([{}]))


@pytest.mark.parametrize("kind", kueue.KINDS, ids=lambda kind: kind.name)
@given(data=st.data())
def test_conversions_accept_any_shape(kind: Kind, data: st.DataObject) -> None:
    document = example(kind)
    place: JSON = document
    while isinstance(place, dict | list) and place:
        step = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()):
            place[step] = raw.copy(data.draw(WRONG))
            break
        place = place[step]
    stored(kind, document)
    served(kind, document)
