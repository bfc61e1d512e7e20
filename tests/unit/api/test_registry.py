"""The registry of all kinds: found by every name that clients use, and each one complete."""

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.api.dialect_examples import EXAMPLES, example

from muster.api import batch, core, errors, kueue, objects, raw, volcano
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.raw import JSON, Document
from muster.api.registry import Registry
from muster.api.schema import unknown_fields

DIALECTS = (*kueue.KINDS, *volcano.KINDS)
PROMISED = {
    "v1": "Namespace Node Pod ConfigMap Secret Service PersistentVolumeClaim Event",
    "scheduling.k8s.io/v1": "PriorityClass",
    "batch/v1": "Job",
    "coordination.k8s.io/v1": "Lease",
    "policy/v1": "PodDisruptionBudget",
    "storage.k8s.io/v1": "StorageClass",
    "networking.k8s.io/v1": "NetworkPolicy",
    "kubeflow.org/v1": "PyTorchJob",
    "kueue.x-k8s.io/v1beta2": "ResourceFlavor ClusterQueue LocalQueue Cohort Workload WorkloadPriorityClass "
    "AdmissionCheck Topology",
    "kueue.x-k8s.io/v1beta1": "ResourceFlavor ClusterQueue LocalQueue Cohort Workload WorkloadPriorityClass "
    "AdmissionCheck Topology",
    "batch.volcano.sh/v1alpha1": "Job CronJob",
    "scheduling.volcano.sh/v1beta1": "PodGroup Queue",
    "bus.volcano.sh/v1alpha1": "Command",
    "flow.volcano.sh/v1alpha1": "JobFlow JobTemplate",
    "topology.volcano.sh/v1alpha1": "HyperNode",
}


@pytest.mark.parametrize(
    ("api_version", "name"), [(version, name) for version, names in PROMISED.items() for name in names.split()]
)
def test_every_promised_kind_is_there(api_version: str, name: str) -> None:
    kind = REGISTRY.by_document(api_version, name)
    assert kind.name == name
    group, _, version = api_version.rpartition("/")
    assert REGISTRY.by_resource(group, version, kind.plural) is kind


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(errors.NotFound, match='no matches for kind "Gadget" in version "v1"'):
        REGISTRY.by_document("v1", "Gadget")
    assert REGISTRY.by_resource("", "v1", "gadgets") is None


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("pods", core.POD), ("Pod", core.POD), ("po", core.POD), ("jobs", batch.JOB), ("job.batch", batch.JOB),
        ("vcjob", volcano.JOB), ("Job.batch.volcano.sh", volcano.JOB), ("jobs.v1alpha1.batch.volcano.sh", volcano.JOB),
        ("queue", volcano.QUEUE), ("queues", volcano.QUEUE), ("q", volcano.QUEUE), ("lq", kueue.LOCAL_QUEUE),
        ("queue.kueue.x-k8s.io", kueue.LOCAL_QUEUE), ("cq", kueue.CLUSTER_QUEUE), ("wl", kueue.WORKLOAD),
        ("workloads.v1beta1.kueue.x-k8s.io", kueue.WORKLOAD), ("pg", volcano.POD_GROUP), ("hn", volcano.HYPER_NODE),
        ("jf", volcano.JOB_FLOW), ("jt", volcano.JOB_TEMPLATE), ("rf", kueue.RESOURCE_FLAVOR), ("gadget", None),
        ("pods.apps", None), ("", None),
    ],
)  # fmt: skip
def test_kinds_are_found_by_what_people_type(word: str, kind: Kind | None) -> None:
    assert REGISTRY.find(word) is kind


def test_no_two_kinds_answer_to_the_same_path() -> None:
    served = [
        (kind.group if c is None or c.group is None else c.group, kind.version if c is None else c.version, kind.plural)
        for kind in REGISTRY
        for c in (None, *kind.conversions)
    ]
    assert len(served) == len(set(served))


def test_own_names_come_before_short_names() -> None:
    first = Kind("a", "v1", "Queue", "queues", core.POD.view)
    second = Kind("b", "v1", "Line", "lines", core.POD.view, short_names=("queue",))
    assert Registry((second, first)).find("queue") is first
    assert Registry((second,)).find("queue") is second


@pytest.mark.parametrize("kind", DIALECTS, ids=lambda kind: f"{kind.name}.{kind.group}")
def test_dialect_kinds_behave_like_custom_resources(kind: Kind) -> None:
    assert not kind.built_in
    assert kind.has_status is ("status" in kind.view.__struct_fields__)


@pytest.mark.parametrize("package", [kueue, volcano], ids=["kueue", "volcano"])
def test_every_view_explains_itself(package: JSON) -> None:
    for name in package.__all__:
        view = getattr(package, name)
        if inspect.isclass(view):
            assert view.__doc__, name
            assert view.__doc__.endswith("."), name


@pytest.mark.parametrize("kind", DIALECTS, ids=lambda kind: f"{kind.name}.{kind.group}")
def test_a_view_knows_every_field_of_its_example_and_its_defaults(kind: Kind) -> None:
    document = example(kind)
    kind.default(document)
    assert unknown_fields(kind.view, document) == []


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["-1", "1e999", "0", "*", "Never", "Exists", "kubernetes.io/hostname", "a" * 300, "é", "\n", "/"]),
    st.just([]),
    st.just({}),
    st.just([None]),
    st.just([{}]),
    st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=4)), max_size=2),
)


@st.composite
def mutants(draw: st.DrawFn) -> tuple[Kind, Document]:
    """A valid example with a few places changed, removed, added or repeated."""
    kind = draw(st.sampled_from(DIALECTS))
    document = example(kind)
    for _ in range(draw(st.integers(1, 3))):
        place: JSON = document
        while True:
            step = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if isinstance(place[step], dict | list) and place[step] and draw(st.integers(0, 3)):
                place = place[step]
                continue
            break
        match draw(st.sampled_from(["replace", "remove", "repeat"])):
            case "remove" if len(place) > 1:
                del place[step]
            case "repeat" if isinstance(place, list):
                place.append(raw.copy(place[step]))
            case _:
                place[step] = raw.copy(draw(JUNK))  # the strategy hands out the same object again
    return kind, document


@given(mutants())
@settings(max_examples=50)
def test_defaults_accept_any_shape_and_change_nothing_the_second_time(mutant: tuple[Kind, Document]) -> None:
    kind, document = mutant
    kind.default(document)
    once = raw.copy(document)
    kind.default(document)
    assert document == once


@given(mutants())
@settings(max_examples=75)
def test_validation_never_raises_on_a_document_that_can_be_read(mutant: tuple[Kind, Document]) -> None:
    kind, document = mutant
    kind.default(document)
    try:
        view = objects.decode_view(kind, raw.encode(document))
    except errors.Invalid:
        return
    before = objects.decode_view(kind, raw.encode(example(kind)))
    found = [*kind.validate(view), *kind.validate_update(before, view), *kind.validate_update(view, before)]
    for error in found:
        assert error.path
        assert error.reason.startswith("FieldValue")
        assert error.message


def test_there_is_an_example_of_every_dialect_kind() -> None:
    assert set(EXAMPLES) == set(DIALECTS)
