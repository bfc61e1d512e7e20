import contextlib
from collections.abc import Mapping
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import errors, patching, raw
from muster.api.meta import Resource, View, merge_by


class Port(View, frozen=True):
    container_port: int = 0
    protocol: str | None = None
    name: str | None = None


class Container(View, frozen=True):
    name: str = ""
    image: str | None = None
    args: tuple[str, ...] = ()
    ports: Annotated[tuple[Port, ...], merge_by("containerPort", "protocol")] = ()
    limits: Mapping[str, int | str] | None = None


class DeploySpec(View, frozen=True):
    replicas: int | None = None
    containers: Annotated[tuple[Container, ...] | None, merge_by("name")] = None
    strategy: Mapping[str, object] | None = None


class Deploy(Resource, frozen=True):
    spec: DeploySpec = DeploySpec()


def spec(**fields):
    return {"spec": fields}


A = {"name": "a", "image": "a:1", "args": ["x", "y"]}
B = {"name": "b", "image": "b:1"}
C = {"name": "c", "image": "c:1"}

CASES = {
    "the element with the key is changed, the others stay": (
        spec(containers=[A, B]),
        spec(containers=[{"name": "b", "image": "b:2"}]),
        spec(containers=[A, {"name": "b", "image": "b:2"}]),
    ),
    "an element with a new key comes first, as Kubernetes has it": (
        spec(containers=[A]),
        spec(containers=[B]),
        spec(containers=[B, A]),
    ),
    "elements take the order of the patch, others stay where they stood": (
        spec(containers=[C, A, B]),
        spec(containers=[{"name": "b"}, {"name": "a"}]),
        spec(containers=[C, B, A]),
    ),
    "two new elements with one merge key stay two": (
        spec(containers=[]),
        spec(containers=[{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]}]),
        spec(containers=[{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]}]),
    ),
    "a list without a merge key is replaced": (
        spec(containers=[A]),
        spec(containers=[{"name": "a", "args": ["z"]}]),
        spec(containers=[{"name": "a", "image": "a:1", "args": ["z"]}]),
    ),
    "an element is deleted by its key": (
        spec(containers=[A, B]),
        spec(containers=[{"$patch": "delete", "name": "a"}]),
        spec(containers=[B]),
    ),
    "deleting an element that is not there does nothing": (
        spec(containers=[B]),
        spec(containers=[{"$patch": "delete", "name": "a"}]),
        spec(containers=[B]),
    ),
    "a list is replaced when an element says so": (
        spec(containers=[A, B]),
        spec(containers=[C, {"$patch": "replace"}]),
        spec(containers=[C]),
    ),
    "an object is replaced when it says so": (
        spec(strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}, replicas=1),
        spec(strategy={"$patch": "replace", "type": "Recreate"}),
        spec(strategy={"type": "Recreate"}, replicas=1),
    ),
    "an object is emptied by delete": (spec(strategy={"a": 1}), spec(strategy={"$patch": "delete"}), spec(strategy={})),
    "merge is what happens anyway": (spec(replicas=1), {"$patch": "merge", "spec": {"x": 1}}, spec(replicas=1, x=1)),
    "null deletes a field": (spec(replicas=1, strategy={}), spec(replicas=None), spec(strategy={})),
    "null deletes inside an element": (
        spec(containers=[A]),
        spec(containers=[{"name": "a", "args": None}]),
        spec(containers=[{"name": "a", "image": "a:1"}]),
    ),
    "no directive survives in what is added": (
        spec(),
        spec(containers=[{"name": "a", "limits": {"$patch": "replace", "cpu": 1, "x": None}}]),
        spec(containers=[{"name": "a", "limits": {"cpu": 1}}]),
    ),
    "retained keys are kept, others go": (
        spec(strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}),
        spec(strategy={"$retainKeys": ["type"], "type": "Recreate"}),
        spec(strategy={"type": "Recreate"}),
    ),
    "a set of scalars grows": (
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": ["b", "c"]}},
        {"metadata": {"finalizers": ["a", "b", "c"]}},
    ),
    "a set of scalars shrinks": (
        {"metadata": {"finalizers": ["a", "b", "c"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"], "finalizers": ["d"]}},
        {"metadata": {"finalizers": ["d", "b", "c"]}},
    ),
    "elements take the order that was set": (
        spec(containers=[A, B]),
        {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
        spec(containers=[B, A]),
    ),
    "an element the patch does not know keeps its place": (
        spec(containers=[C, A, B]),
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "n"}, {"name": "a"}],
                "containers": [{"name": "n"}],
            }
        },
        spec(containers=[C, B, {"name": "n"}, A]),
    ),
    "scalars take the order that was set": (
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$setElementOrder/finalizers": ["c", "b", "a"], "finalizers": ["c"]}},
        {"metadata": {"finalizers": ["c", "b", "a"]}},
    ),
    "of several keys the first one merges": (
        spec(containers=[{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]),
        spec(containers=[{"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}]),
        spec(containers=[{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}]}]),
    ),
    "fields we do not model merge as plain JSON": (
        {"x": {"a": 1, "l": [1, 2]}},
        {"x": {"b": 2, "l": [3]}},
        {"x": {"a": 1, "b": 2, "l": [3]}},
    ),
    "a value of another type is replaced": (spec(containers="?"), spec(containers=[A]), spec(containers=[A])),
    "labels merge": (
        {"metadata": {"labels": {"a": "1", "b": "2"}}},
        {"metadata": {"labels": {"a": None, "c": "3"}}},
        {"metadata": {"labels": {"b": "2", "c": "3"}}},
    ),
}


@pytest.mark.parametrize(("document", "patch", "expected"), CASES.values(), ids=CASES.keys())
def test_strategic(document, patch, expected):
    before = raw.copy([document, patch])
    assert patching.strategic(document, patch, Deploy) == expected
    assert patching.strategic(document, patch, Deploy, shares=True) == expected
    assert [document, patch] == before


BAD = {
    "not an object": ([], "a strategic merge patch is an object, found array"),
    "unknown directive": (spec(**{"$patch": "explode"}), r"spec: \$patch must be replace, merge or delete"),
    "element without key": (spec(containers=[{"image": "x"}]), r"\[0\]: does not contain its merge key 'name'"),
    "element that is no object": (spec(containers=["x"]), r"spec.containers\[0\]: expected an object, found string"),
    "delete without key": (spec(containers=[{"$patch": "delete"}]), "does not contain its merge key"),
    "retained keys that contradict": (spec(**{"$retainKeys": ["a"], "b": 1}), "'b' is set by the patch but missing"),
    "retained keys of another type": (spec(**{"$retainKeys": "a"}), "must be an array of field names"),
    "values to delete of another type": (spec(**{"$deleteFromPrimitiveList/x": 1}), "array of values to delete"),
}  # fmt: skip


@pytest.mark.parametrize(("patch", "message"), BAD.values(), ids=BAD.keys())
def test_a_strategic_patch_that_makes_no_sense_is_a_bad_request(patch, message):
    with pytest.raises(errors.BadRequest, match=message):
        patching.strategic({}, patch, Deploy)


_containers = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"image": st.sampled_from("xyz")}),
    unique_by=lambda container: container["name"],
    max_size=4,
)


@given(_containers, _containers)
def test_a_patch_with_its_order_and_deletions_makes_the_list_that_was_wanted(before, after):
    wanted = [container["name"] for container in after]
    changed = [{"image": None} | container for container in after]
    gone = [{"$patch": "delete", "name": c["name"]} for c in before if c["name"] not in wanted]
    order = [{"name": name} for name in wanted]
    patch = {"spec": {"$setElementOrder/containers": order, "containers": changed + gone}}
    assert patching.strategic(spec(containers=before), patch, Deploy) == spec(containers=after)


@given(_containers, _containers)
def test_patching_twice_is_patching_once(before, patch):
    once = patching.strategic(spec(containers=before), spec(containers=patch), Deploy)
    assert patching.strategic(once, spec(containers=patch), Deploy) == once


_keys = st.sampled_from(["spec", "containers", "name", "$patch", "$retainKeys", "$setElementOrder/containers",
                         "$deleteFromPrimitiveList/args", "ports",
                         "metadata", "finalizers", "ownerReferences"])  # fmt: skip
_anything = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["replace", "delete", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)


@given(_anything, _anything)
def test_nothing_but_a_bad_request_is_ever_raised(document, patch):
    with contextlib.suppress(errors.BadRequest):
        patching.strategic(document, patch, Deploy)
