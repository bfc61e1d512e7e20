"""Volcano's queues as ClusterQueues and Cohorts: what each owns, borrows and keeps, and what the engine makes of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core, kueue, timestamps, volcano
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.quota.amounts import FlavorResource
from muster.quota.decisions import Admission
from muster.quota.engine import Engine
from muster.quota.settings import Settings
from muster.quota.volcano_queues import (
    OVERCOMMIT_ANNOTATION,
    Translation,
    differing,
    flavor,
    local_queue,
    node_total,
    translate,
)
from muster.quota.volcano_queues.sharing import Claim, split

NOW = Instant(1_800_000_000.0)
GPU = "nvidia.com/gpu"
WHAT = FlavorResource("volcano", GPU)


def a_queue(name: str, parent: str = "root", state: str = "Open", **spec: Any) -> volcano.Queue:
    document = {"metadata": {"name": name}, "spec": {"parent": parent, **spec}, "status": {"state": state}}
    found = view_of(volcano.QUEUE, document)
    assert isinstance(found, volcano.Queue)
    return found


def gpus(count: int) -> dict[str, str]:
    return {GPU: str(count)}


def translated(queues: Sequence[volcano.Queue], total: int = 8) -> Translation:
    return translate(queues, {GPU: total})


def quota(document: Document) -> dict[str, str]:
    (group,) = document["spec"]["resourceGroups"]
    (line,) = (line for line in group["flavors"][0]["resources"] if line["name"] == GPU)
    return {key: value for key, value in line.items() if key != "name"}


# Sharing out

claims = st.builds(
    Claim,
    least=st.integers(0, 6),
    most=st.none() | st.integers(0, 12),
    deserved=st.none() | st.integers(0, 12),
    weight=st.integers(1, 5),
)
_nobody_deserves = st.lists(
    st.builds(Claim, least=st.integers(0, 3), most=st.none() | st.integers(3, 12), weight=st.integers(1, 5)), max_size=5
)


@given(st.integers(0, 40), st.lists(claims, max_size=6))
def test_what_is_shared_out_is_there_and_nobody_gets_more_than_it_may_have(have: int, asked: list[Claim]) -> None:
    parts = split(have, asked)
    assert sum(parts) <= have
    assert all(claim.most is None or part <= claim.most for part, claim in zip(parts, asked, strict=True))
    if sum(claim.floor for claim in asked) <= have:
        assert all(part >= claim.floor for part, claim in zip(parts, asked, strict=True))


@given(st.integers(0, 400), _nobody_deserves)
def test_by_weight_all_rise_to_one_level_unless_something_holds_them(have: int, asked: list[Claim]) -> None:
    parts = split(have, asked)
    if not asked or sum(claim.floor for claim in asked) > have:
        return
    # Whoever is not held below has, for its weight, at least as much as anybody who is not held up.
    free_above = [part / claim.weight for part, claim in zip(parts, asked, strict=True) if part > claim.floor]
    for part, claim in zip(parts, asked, strict=True):
        if claim.most is None or part < claim.most:
            assert all((part + 1) / claim.weight >= other for other in free_above)
    if any(claim.most is None for claim in asked):
        assert have - sum(parts) < len(asked)


def test_what_is_deserved_is_given_and_the_rest_stays_with_the_parent() -> None:
    assert split(10, [Claim(deserved=3), Claim(deserved=4), Claim()]) == [3, 4, 0]


def test_too_little_for_what_is_deserved_is_given_in_proportion_above_what_is_guaranteed() -> None:
    assert split(8, [Claim(least=2, deserved=8), Claim(deserved=12)]) == [4, 4]


# Translation


def test_a_queue_owns_what_it_deserves_borrows_up_to_its_capability_and_keeps_its_guarantee() -> None:
    found = translated(
        [
            a_queue("gold", deserved=gpus(4), capability=gpus(6), guarantee={"resource": gpus(1)}, weight=3),
            a_queue("rest", deserved=gpus(1)),
        ]
    )
    assert quota(found.cluster_queues["volcano-gold"]) == {
        "nominalQuota": "4",
        "borrowingLimit": "2",
        "lendingLimit": "3",
    }
    assert quota(found.cluster_queues["volcano-rest"]) == {"nominalQuota": "1"}
    assert quota(found.cohorts["volcano-root"]) == {"nominalQuota": "3"}
    spec = found.cluster_queues["volcano-gold"]["spec"]
    assert (spec["cohortName"], spec["fairSharing"]) == ("volcano-root", {"weight": "3"})


def test_a_parent_bounds_all_that_is_below_it_together() -> None:
    found = translated(
        [a_queue("team", capability=gpus(4)), a_queue("a", "team"), a_queue("b", "team"), a_queue("other")], total=16
    )
    team = found.cohorts["volcano-team"]
    assert quota(team) == {"nominalQuota": "0", "borrowingLimit": "0"}
    assert team["spec"]["parentName"] == "volcano-root"
    owned = {name: quota(found.cluster_queues[f"volcano-{name}"])["nominalQuota"] for name in ("a", "b", "other")}
    assert owned == {"a": "2", "b": "2", "other": "12"}


def test_what_children_deserve_counts_for_a_parent_that_says_nothing() -> None:
    found = translated([a_queue("team"), a_queue("a", "team", deserved=gpus(3)), a_queue("b", deserved=gpus(2))])
    assert quota(found.cluster_queues["volcano-a"])["nominalQuota"] == "3"
    assert quota(found.cluster_queues["volcano-b"])["nominalQuota"] == "2"


def test_one_queue_in_which_nothing_is_limited_lets_everything_in_whatever_the_nodes_have() -> None:
    found = translated([a_queue("root", ""), a_queue("default")], total=0)
    queue = found.cluster_queues["volcano-default"]
    assert queue["metadata"]["annotations"]["muster.dev/undeclared-resources"] == "free"
    assert queue["spec"]["resourceGroups"] == []
    assert "muster.dev/undeclared-resources" not in translated([a_queue("default"), a_queue("b")]).cluster_queues[
        "volcano-default"
    ]["metadata"].get("annotations", {})


def test_more_than_the_nodes_have_is_admitted_where_the_root_says_so() -> None:
    root = view_of(volcano.QUEUE, {"metadata": {"name": "root", "annotations": {OVERCOMMIT_ANNOTATION: "1.5"}}})
    assert isinstance(root, volcano.Queue)
    found = translated([root, a_queue("default")])
    assert quota(found.cluster_queues["volcano-default"])["nominalQuota"] == "12"


def test_what_kueue_has_no_field_for_becomes_an_annotation() -> None:
    found = translated([a_queue("a", priority=7, reclaimable=False), a_queue("b", reclaimable=True)])
    assert found.cluster_queues["volcano-a"]["metadata"]["annotations"] == {
        "muster.dev/rules": "volcano",
        "muster.dev/queue-priority": "7",
        "muster.dev/reclaimable": "false",
    }
    assert found.cluster_queues["volcano-b"]["metadata"]["annotations"] == {"muster.dev/rules": "volcano"}


def test_only_an_open_queue_admits() -> None:
    states = {state: a_queue(f"q{index}", state=state) for index, state in enumerate(("", "Open", "Closing", "Closed"))}
    found = translated(list(states.values()))
    stops = {
        state: found.cluster_queues[f"volcano-{queue.metadata.name}"]["spec"]["stopPolicy"]
        for state, queue in states.items()
    }
    assert stops == {"": "None", "Open": "None", "Closing": "Hold", "Closed": "Hold"}


def test_circles_and_missing_parents_are_told_and_others_go_on() -> None:
    found = translated(
        [a_queue("a", "b"), a_queue("b", "a"), a_queue("c", "b"), a_queue("d", "gone"), a_queue("fine", weight=2)]
    )
    circle = "queues are each other's parents, and none leads to the root: a, b"
    assert found.problems == {
        "a": circle,
        "b": circle,
        "c": circle,
        "d": "its parent gone does not exist",
    }
    assert found.cluster_queues["volcano-c"]["metadata"]["annotations"] == {"muster.dev/problem": circle}
    assert quota(found.cluster_queues["volcano-fine"])["nominalQuota"] == "8"


def test_the_older_hierarchy_by_annotations_makes_cohorts_too() -> None:
    def hierarchical(name: str, path: str, weights: str) -> volcano.Queue:
        annotations = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
        found = view_of(volcano.QUEUE, {"metadata": {"name": name, "annotations": annotations}})
        assert isinstance(found, volcano.Queue)
        return found

    found = translated(
        [
            hierarchical("dev", "root/eng/dev", "1/3/1"),
            hierarchical("prod", "root/eng/prod", "1/3/2"),
            hierarchical("sci", "root/sci", "1/1"),
        ],
        total=12,
    )
    assert found.cohorts["volcano-root.eng"]["spec"]["parentName"] == "volcano-root"
    assert found.cluster_queues["volcano-dev"]["spec"]["cohortName"] == "volcano-root.eng"
    owned = {name: quota(found.cluster_queues[f"volcano-{name}"])["nominalQuota"] for name in ("dev", "prod", "sci")}
    assert owned == {"dev": "3", "prod": "6", "sci": "3"}


def test_nodes_that_are_not_ready_have_nothing_to_share() -> None:
    def node(ready: str | None) -> core.Node:
        conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
        status = {"allocatable": {"cpu": "1500m", GPU: "2"}, "conditions": conditions}
        found = view_of(core.NODE, {"metadata": {"name": "n"}, "status": status})
        assert isinstance(found, core.Node)
        return found

    assert node_total([node("True"), node(None), node("False"), node("Unknown")]) == {"cpu": 3000, GPU: 4}


# Differences


def test_a_patch_says_only_what_differs() -> None:
    before = translated([a_queue("a", priority=1, capability=gpus(4)), a_queue("b")]).cluster_queues["volcano-a"]
    after = translated([a_queue("a"), a_queue("b")]).cluster_queues["volcano-a"]
    filled = {**before, "spec": {**before["spec"], "flavorFungibility": {"whenCanBorrow": "MayStopSearch"}}}
    filled["spec"]["preemption"] = {**before["spec"]["preemption"], "borrowWithinCohort": {"policy": "Never"}}
    assert differing.patch(filled, before) is None
    assert differing.patch(filled, after) == {
        "metadata": {"annotations": {"muster.dev/queue-priority": None}},
        "spec": {"resourceGroups": after["spec"]["resourceGroups"]},
    }
    narrowed = {**before, "spec": {**before["spec"], "namespaceSelector": {"matchLabels": {"a": "b"}}}}
    assert differing.patch(narrowed, before) == {"spec": {"namespaceSelector": {"matchLabels": None}}}


# What the engine makes of it


def an_engine(queues: Sequence[volcano.Queue], total: int | Mapping[str, int]) -> tuple[Engine, Translation]:
    engine = Engine(Settings())
    found = translate(queues, {GPU: total} if isinstance(total, int) else total)
    engine.flavor_changed(_view(kueue.RESOURCE_FLAVOR, flavor()))
    for document in found.cohorts.values():
        engine.cohort_changed(_view(kueue.COHORT, document))
    for document in found.cluster_queues.values():
        engine.queue_changed(_view(kueue.CLUSTER_QUEUE, document), NOW)
    engine.namespace_changed(_view(core.NAMESPACE, {"metadata": {"name": "ns"}}))
    for queue in queues:
        engine.local_queue_changed(_view(kueue.LOCAL_QUEUE, local_queue("ns", queue.metadata.name)), NOW)
    return engine, found


def _view(kind: Kind, document: Document) -> Any:
    return view_of(kind, document)


def submit(
    engine: Engine,
    name: str,
    queue: str,
    asks: int | Mapping[str, str],
    priority: int = 0,
    **marks: Mapping[str, str],
) -> None:
    """`asks`: so many GPUs, or for what it says."""
    container = {"name": "c", "resources": {"requests": gpus(asks) if isinstance(asks, int) else dict(asks)}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    metadata = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": timestamps.to_text(NOW), **marks}
    spec = {"podSets": [pods], "queueName": f"volcano-{queue}", "priority": priority}
    engine.workload_changed(_view(kueue.WORKLOAD, {"metadata": metadata, "spec": spec}), NOW)


def decide(engine: Engine) -> tuple[list[str], list[str]]:
    """Admitted, and told to stop, in that order."""
    admitted: list[str] = []
    evicted: list[str] = []
    while engine.has_work(NOW):
        for decided in engine.step(NOW).decisions:
            (admitted if isinstance(decided, Admission) else evicted).append(decided.info.view.metadata.name)
    return admitted, evicted


@st.composite
def trees(draw: st.DrawFn) -> list[volcano.Queue]:
    queues: list[volcano.Queue] = []
    names = ["root"]
    for number in range(draw(st.integers(2, 6))):
        spec: dict[str, Any] = {"weight": draw(st.integers(1, 4))}
        most = draw(st.none() | st.integers(0, 10))
        deserved = draw(st.none() | st.integers(0, 10))
        guarantee = draw(st.none() | st.integers(0, 3))
        if most is not None:
            spec["capability"] = gpus(most)
        if deserved is not None:
            spec["deserved"] = gpus(deserved)
        if guarantee is not None:
            spec["guarantee"] = {"resource": gpus(guarantee)}
        queues.append(a_queue(f"q{number}", draw(st.sampled_from(names)), **spec))
        names.append(f"q{number}")
    return queues


def _stated(queue: volcano.Queue, part: str) -> int | None:
    listed = queue.spec.capability if part == "capability" else queue.spec.guarantee and queue.spec.guarantee.resource
    return int(listed[GPU]) if listed else None


@settings(max_examples=80)
@given(trees(), st.integers(0, 12), st.data())
def test_quotas_add_up_to_the_total_and_no_admission_goes_beyond_a_capability(
    queues: list[volcano.Queue], total: int, data: st.DataObject
) -> None:
    engine, found = an_engine(queues, total)
    owned = [quota(document)["nominalQuota"] for document in (*found.cluster_queues.values(), *found.cohorts.values())]
    assert sum(map(int, owned)) == total
    leaves = [queue.metadata.name for queue in queues if f"volcano-{queue.metadata.name}" in found.cluster_queues]
    for number in range(data.draw(st.integers(1, 8))):
        submit(engine, f"w{number}", data.draw(st.sampled_from(leaves)), data.draw(st.integers(1, 4)))
    decide(engine)
    used = {name: engine.state.queues[f"volcano-{name}"].node.used(WHAT) for name in leaves}
    assert sum(used.values()) <= total
    for queue in queues:
        most = _stated(queue, "capability")
        below = [name for name in leaves if queue.metadata.name in _path(name, queues)]
        assert most is None or sum(used[name] for name in below) <= most


@settings(max_examples=40)
@given(trees(), st.data())
def test_what_is_guaranteed_is_there_whatever_others_use(queues: list[volcano.Queue], data: st.DataObject) -> None:
    engine, found = an_engine(queues, 40)
    leaves = [queue for queue in queues if f"volcano-{queue.metadata.name}" in found.cluster_queues]
    chosen = data.draw(st.sampled_from(leaves))
    name, least = chosen.metadata.name, _stated(chosen, "guarantee") or 0
    bounds = [_stated(queue, "capability") for queue in queues if queue.metadata.name in _path(name, queues)]
    others = [queue.metadata.name for queue in leaves if queue is not chosen]
    for number in range(24 if others else 0):
        submit(engine, f"w{number:02}", data.draw(st.sampled_from(others)), 2)
    decide(engine)
    promised = min([least, *(bound for bound in bounds if bound is not None)])
    kept = min(promised, int(quota(found.cluster_queues[f"volcano-{name}"])["nominalQuota"]))
    assert engine.state.queues[f"volcano-{name}"].node.available(WHAT) >= kept
    if not any(bound is not None for bound in bounds):
        assert kept == least


def _path(name: str, queues: Sequence[volcano.Queue]) -> list[str]:
    parents = {queue.metadata.name: queue.spec.parent or "root" for queue in queues}
    path = [name]
    while path[-1] != "root":
        path.append(parents[path[-1]])
    return path


def test_queues_of_higher_priority_come_first_and_give_last() -> None:
    queues = [a_queue("low", priority=1), a_queue("high", priority=9), a_queue("late")]
    engine, _ = an_engine(queues, 6)
    for number in range(3):
        submit(engine, f"low{number}", "low", 1)
        submit(engine, f"high{number}", "high", 1)
    submit(engine, "one-more", "low", 1)
    admitted, _ = decide(engine)
    assert admitted[0] == "high0"
    assert len(admitted) == 6
    submit(engine, "own", "late", 1)
    _, evicted = decide(engine)
    assert [name.rstrip("0123456789") for name in evicted] == ["low"]


def test_a_department_of_higher_priority_comes_before_the_teams_of_another() -> None:
    queues = [
        a_queue("one", priority=1),
        a_queue("team", "one", priority=100),
        a_queue("two", priority=2),
        a_queue("b"),
    ]
    engine, _ = an_engine([*queues, a_queue("crew", "two")], 4)
    submit(engine, "a", "team", 4)
    submit(engine, "z", "crew", 4)
    assert decide(engine)[0] == ["z"]


def test_what_others_may_not_reclaim_they_wait_for() -> None:
    for reclaimable, expected in ((True, ["big"]), (False, [])):
        queues = [a_queue("mine", reclaimable=reclaimable), a_queue("yours")]
        engine, _ = an_engine(queues, 4)
        submit(engine, "big", "mine", 4)
        decide(engine)
        submit(engine, "own", "yours", 2)
        assert decide(engine)[1] == expected


def test_workloads_that_say_so_are_no_victims_and_make_none() -> None:
    engine, _ = an_engine([a_queue("q", capability=gpus(4))], 4)
    submit(engine, "kept", "q", 2, labels={"volcano.sh/preemptable": "false"})
    submit(engine, "other", "q", 2)
    decide(engine)
    submit(engine, "polite", "q", 2, priority=5, annotations={"muster.dev/preemption-policy": "Never"})
    assert decide(engine) == ([], [])
    submit(engine, "rude", "q", 2, priority=5)
    assert decide(engine) == ([], ["other"])


def test_of_equal_queues_the_one_that_has_least_is_served_first() -> None:
    engine, _ = an_engine([a_queue("a"), a_queue("b")], 4)
    submit(engine, "first", "a", 1)
    decide(engine)
    submit(engine, "again", "a", 3)
    submit(engine, "theirs", "b", 3)
    assert decide(engine)[0] == ["theirs"]


def test_a_queue_takes_back_what_it_lacks_though_it_borrows_something_else() -> None:
    both = {"cpu": "2", GPU: "1"}
    queues = [a_queue("a", deserved={"cpu": "2"}), a_queue("b", deserved=both)]
    engine, _ = an_engine(queues, {"cpu": 4000, GPU: 1})
    submit(engine, "borrows-gpu", "a", {GPU: "1"})
    submit(engine, "own-cpu", "b", {"cpu": "2"})
    decide(engine)
    submit(engine, "wants-both", "b", {"cpu": "1", GPU: "1"})
    assert decide(engine)[1] == ["borrows-gpu"]
