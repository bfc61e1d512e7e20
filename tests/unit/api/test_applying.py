from collections.abc import Mapping
from typing import Annotated

import pytest

from muster.api import applying, errors, raw
from muster.api.meta import LabelSelector, Resource, View, merge_by

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


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


class Strategy(View, frozen=True):
    type: str | None = None
    surge: int | None = None


class DeploySpec(View, frozen=True):
    replicas: int | None = None
    containers: Annotated[tuple[Container, ...], merge_by("name")] = ()
    selector: LabelSelector | None = None
    strategy: Strategy | None = None
    roles: Mapping[str, Strategy] | None = None


class DeployStatus(View, frozen=True):
    ready: int | None = None


class Deploy(Resource, frozen=True):
    spec: DeploySpec = DeploySpec()
    status: DeployStatus = DeployStatus()


def a_deploy(metadata=None, status=None, **spec):
    made = {"apiVersion": "apps/v1", "kind": "Deploy", "metadata": {"name": "d", **(metadata or {})}, "spec": spec}
    return made if status is None else {**made, "status": status}


def apply(live, applied, manager="alice", force=False, now=NOW, subresource="", api_version="apps/v1"):
    before = raw.copy([live, applied])
    result = applying.apply(
        live,
        applied,
        view=Deploy,
        manager=manager,
        force=force,
        now=now,
        api_version=api_version,
        subresource=subresource,
    )
    assert [live, applied] == before, "an argument was changed"
    return result


def update(old, new, manager="editor", now=NOW, subresource=""):
    new = raw.copy(new)
    applying.track_update(
        old, new, view=Deploy, manager=manager, now=now, api_version="apps/v1", subresource=subresource
    )
    return new


def owned(document):
    """Fields by manager."""
    return {entry["manager"]: entry["fieldsV1"] for entry in document["metadata"].get("managedFields", [])}


def plain(document):
    stripped = raw.copy(document)
    stripped["metadata"].pop("managedFields", None)
    return stripped


def test_the_first_apply_creates_the_object_and_owns_what_it_says():
    made = apply(None, a_deploy({"labels": {"a": "1"}}, replicas=3, containers=[{"name": "x", "args": ["a", "b"]}]))
    assert made["metadata"].pop("managedFields") == [
        {
            "manager": "alice",
            "operation": "Apply",
            "apiVersion": "apps/v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {
                    "f:containers": {'k:{"name":"x"}': {".": {}, "f:args": {}, "f:name": {}}},
                    "f:replicas": {},
                },
            },
        }
    ]
    assert made == a_deploy({"labels": {"a": "1"}}, replicas=3, containers=[{"name": "x", "args": ["a", "b"]}])


def test_two_who_want_the_same_value_share_it_and_it_stays_until_both_give_it_up():
    shared = apply(apply(None, a_deploy(replicas=3)), a_deploy(replicas=3), "bob")
    assert owned(shared) == {"alice": {"f:spec": {"f:replicas": {}}}, "bob": {"f:spec": {"f:replicas": {}}}}
    one_left = apply(shared, a_deploy(), "alice")
    assert one_left["spec"] == {"replicas": 3}
    assert owned(one_left) == {"bob": {"f:spec": {"f:replicas": {}}}, "alice": {"f:spec": {}}}
    assert "replicas" not in apply(one_left, a_deploy(), "bob")["spec"]


def test_another_value_is_a_conflict_that_names_owner_and_field():
    live = apply(None, a_deploy(containers=[{"name": "x", "image": "one"}]))
    with pytest.raises(errors.Conflict) as caught:
        apply(live, a_deploy(containers=[{"name": "x", "image": "two"}]), "bob")
    message = 'Apply failed with 1 conflict: conflict with "alice": .spec.containers[name="x"].image'
    assert caught.value.message == message
    (cause,) = caught.value.causes
    assert (cause.path, cause.reason) == ('.spec.containers[name="x"].image', "FieldManagerConflict")
    assert cause.message == 'conflict with "alice"'


def test_a_conflict_with_an_update_says_with_which_version_it_was_made():
    live = apply(None, a_deploy(replicas=1))
    edited = update(live, {**live, "spec": {"replicas": 2}}, "kubectl-client-side-apply")
    with pytest.raises(errors.Conflict) as caught:
        apply(edited, a_deploy(replicas=3))
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using apps/v1: .spec.replicas'
    )


def test_several_conflicts_are_listed_by_owner():
    live = apply(None, a_deploy(replicas=1, strategy={"type": "a"}))
    live = apply(live, a_deploy(containers=[{"name": "x", "ports": [{"containerPort": 80, "name": "web"}]}]), "bob")
    wanted = a_deploy(replicas=2, strategy={"type": "b"},
                      containers=[{"name": "x", "ports": [{"containerPort": 80, "name": "www"}]}])  # fmt: skip
    with pytest.raises(errors.Conflict) as caught:
        apply(live, wanted, "carol")
    assert caught.value.message.splitlines() == [
        'Apply failed with 3 conflicts: conflicts with "alice":',
        "- .spec.replicas",
        "- .spec.strategy.type",
        'conflicts with "bob":',
        '- .spec.containers[name="x"].ports[containerPort=80,protocol="TCP"].name',
    ]
    assert len(caught.value.causes) == 3


def test_force_takes_the_field_over():
    live = apply(None, a_deploy(replicas=1, strategy={"type": "a"}))
    forced = apply(live, a_deploy(replicas=2), "bob", force=True)
    assert forced["spec"] == {"replicas": 2, "strategy": {"type": "a"}}
    assert owned(forced) == {"alice": {"f:spec": {"f:strategy": {"f:type": {}}}}, "bob": {"f:spec": {"f:replicas": {}}}}


def test_who_loses_the_last_field_is_no_manager_any_more():
    assert set(owned(apply(apply(None, a_deploy(replicas=1)), a_deploy(replicas=2), "bob", force=True))) == {"bob"}


def test_a_field_no_longer_applied_is_removed_with_what_only_it_kept_alive():
    live = apply(None, a_deploy({"labels": {"a": "1"}}, replicas=3, strategy={"type": "a"}))
    live["spec"]["strategy"]["surge"] = 1  # a default, nobody's
    left = apply(live, a_deploy(replicas=3))
    assert plain(left) == a_deploy(replicas=3)


def test_a_label_is_removed_and_others_stay():
    live = apply(apply(None, a_deploy({"labels": {"a": "1", "b": "2"}})), a_deploy({"labels": {"c": "3"}}), "bob")
    left = apply(live, a_deploy({"labels": {"a": "1"}}))
    assert left["metadata"]["labels"] == {"a": "1", "c": "3"}


def test_elements_of_a_keyed_list_are_owned_one_by_one():
    live = apply(None, a_deploy(containers=[{"name": "x", "image": "1"}, {"name": "y", "image": "1"}]))
    both = apply(live, a_deploy(containers=[{"name": "z", "image": "1"}, {"name": "y", "args": ["a"]}]), "bob")
    assert [c["name"] for c in both["spec"]["containers"]] == ["x", "z", "y"]
    assert both["spec"]["containers"][2] == {"name": "y", "image": "1", "args": ["a"]}
    left = apply(both, a_deploy(containers=[{"name": "x", "image": "1"}]))
    # y stays because bob wants it too, but alice's image of it is gone.
    assert left["spec"]["containers"] == [
        {"name": "x", "image": "1"}, {"name": "z", "image": "1"}, {"name": "y", "args": ["a"]},
    ]  # fmt: skip


def test_an_element_goes_with_the_last_applier_even_if_an_editor_touched_it():
    live = apply(None, a_deploy(containers=[{"name": "x", "image": "1"}, {"name": "y"}]))
    edited = raw.copy(live)
    edited["spec"]["containers"][0]["args"] = ["a"]
    edited = update(live, edited)
    left = apply(edited, a_deploy(containers=[{"name": "y"}]))
    assert left["spec"]["containers"] == [{"name": "y"}]
    assert set(owned(left)) == {"alice"}


def test_the_order_of_the_applier_wins():
    live = apply(None, a_deploy(containers=[{"name": n} for n in "abc"]))
    moved = apply(live, a_deploy(containers=[{"name": n} for n in "cab"]))
    assert [c["name"] for c in moved["spec"]["containers"]] == ["c", "a", "b"]


def test_a_key_that_the_server_fills_in_need_not_be_said():
    live = apply(None, a_deploy(containers=[{"name": "x", "ports": [{"containerPort": 80}]}]))
    live["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"
    again = apply(live, a_deploy(containers=[{"name": "x", "ports": [{"containerPort": 80, "name": "web"}]}]))
    assert again["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "web"}]


def test_a_set_grows_by_union_and_shrinks_by_owner():
    live = apply(None, a_deploy({"finalizers": ["a", "b"]}))
    both = apply(live, a_deploy({"finalizers": ["b", "c"]}), "bob")
    assert both["metadata"]["finalizers"] == ["a", "b", "c"]
    assert owned(both)["bob"]["f:metadata"] == {"f:finalizers": {'v:"b"': {}, 'v:"c"': {}}}
    left = apply(both, a_deploy(), "alice")
    assert left["metadata"]["finalizers"] == ["b", "c"]


def test_an_atomic_list_has_one_owner_and_is_replaced_whole():
    live = apply(None, a_deploy(containers=[{"name": "x", "args": ["a", "b"]}]))
    with pytest.raises(errors.Conflict, match=r"\.args$"):
        apply(live, a_deploy(containers=[{"name": "x", "args": ["a", "b", "c"]}]), "bob")
    forced = apply(live, a_deploy(containers=[{"name": "x", "args": ["c"]}]), "bob", force=True)
    assert forced["spec"]["containers"][0]["args"] == ["c"]


def test_a_selector_is_one_field():
    live = apply(None, a_deploy(selector={"matchLabels": {"a": "1"}}))
    assert owned(live)["alice"] == {"f:spec": {"f:selector": {}}}
    changed = apply(live, a_deploy(selector={"matchLabels": {"b": "2"}}))
    assert changed["spec"]["selector"] == {"matchLabels": {"b": "2"}}


def test_an_entry_of_a_map_goes_when_nobody_wants_the_entry():
    live = apply(None, a_deploy(roles={"Worker": {"type": "a"}, "Master": {"type": "m"}}))
    live["spec"]["roles"]["Worker"]["surge"] = 5  # a default
    assert apply(live, a_deploy(roles={"Master": {"type": "m"}}))["spec"]["roles"] == {"Master": {"type": "m"}}


def test_fields_that_we_do_not_model_are_owned_too():
    live = apply(None, a_deploy(novel={"a": {"b": 1}, "l": [1]}))
    with pytest.raises(errors.Conflict, match=r"\.spec\.novel\.a\.b"):
        apply(live, a_deploy(novel={"a": {"b": 2}}), "bob")
    assert apply(live, a_deploy(novel={"l": [1]}))["spec"] == {"novel": {"l": [1]}}


def test_applying_again_changes_nothing_not_even_the_time():
    live = apply(None, a_deploy(replicas=3))
    assert apply(live, a_deploy(replicas=3), now=LATER) == live
    assert apply(live, a_deploy(replicas=4), now=LATER)["metadata"]["managedFields"][0]["time"] == LATER


def test_an_applier_that_moves_to_another_version_stays_the_same_one():
    live = apply(None, a_deploy(replicas=3), api_version="apps/v1beta1")
    moved = apply(live, a_deploy(replicas=4))
    assert [entry["apiVersion"] for entry in moved["metadata"]["managedFields"]] == ["apps/v1"]


# --- objects that were there before


def test_what_an_untracked_object_has_belongs_to_whoever_was_before():
    live = a_deploy({"uid": "u", "resourceVersion": "7", "labels": {"a": "1"}}, {"ready": 1}, replicas=1)
    with pytest.raises(errors.Conflict, match=r'conflict with "before-first-apply" using apps/v1: \.spec\.replicas'):
        apply(live, a_deploy(replicas=2))
    shared = apply(live, a_deploy(replicas=1))
    assert owned(shared)["before-first-apply"] == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {".": {}, "f:replicas": {}},
    }
    assert plain(shared) == live


def test_kubectl_does_not_conflict_with_what_it_applied_from_the_client_side():
    last = raw.encode(a_deploy(replicas=1)).decode()
    live = a_deploy({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": last}}, replicas=1)
    assert apply(live, a_deploy(replicas=2), "kubectl")["spec"]["replicas"] == 2
    live["spec"]["strategy"] = {"type": "a"}
    with pytest.raises(errors.Conflict):
        apply(live, a_deploy(replicas=2, strategy={"type": "b"}), "kubectl")
    with pytest.raises(errors.Conflict):
        apply(live, a_deploy(replicas=2), "someone-else")
    live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{"
    with pytest.raises(errors.Conflict):
        apply(live, a_deploy(replicas=2), "kubectl")


# --- what cannot be applied


def test_managed_fields_cannot_be_applied():
    with pytest.raises(errors.BadRequest, match=r"metadata\.managedFields must be nil"):
        apply(None, a_deploy({"managedFields": []}))


def test_the_servers_fields_are_neither_set_nor_owned():
    live = a_deploy({"uid": "u", "resourceVersion": "7", "creationTimestamp": NOW, "generation": 2})
    metadata = {"uid": "x", "resourceVersion": "9", "creationTimestamp": None, "generation": 9, "labels": {"a": "1"}}
    merged = apply(live, a_deploy(metadata))
    assert plain(merged)["metadata"] == {**live["metadata"], "labels": {"a": "1"}}
    assert owned(merged)["alice"] == {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {}}


def test_status_is_applied_only_through_its_own_path():
    live = apply(None, a_deploy(status={"ready": 9}, replicas=1))
    assert "status" not in live
    through = apply(live, a_deploy(status={"ready": 1}, replicas=5), "kubelet", subresource="status")
    assert through["spec"] == {"replicas": 1}
    assert through["status"] == {"ready": 1}
    assert owned(through)["kubelet"] == {"f:status": {"f:ready": {}}}
    with pytest.raises(errors.Conflict, match=r'"kubelet" with subresource "status": \.status\.ready'):
        apply(through, a_deploy(status={"ready": 2}), "other", subresource="status")
    assert plain(apply(through, a_deploy(replicas=1)))["status"] == {"ready": 1}


def test_null_is_as_good_as_absent():
    live = apply(None, a_deploy(replicas=1, strategy={"type": "a"}))
    assert apply(live, a_deploy(replicas=None, strategy={"type": "a"}))["spec"] == {"strategy": {"type": "a"}}


BAD = {
    "twice the same element": ({"containers": [{"name": "x"}, {"name": "x"}]}, r'duplicate .*\[name="x"\]'),
    "an element without its key": ({"containers": [{"image": "x"}]}, r"\.spec\.containers\[0\]: .*needs name"),
    "an element that is no object": ({"containers": ["x"]}, r"\.spec\.containers\[0\]"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), BAD.values(), ids=BAD.keys())
def test_a_list_whose_elements_cannot_be_told_apart_is_a_bad_request(spec, message):
    with pytest.raises(errors.BadRequest, match=message):
        apply(None, a_deploy(**spec))


# --- writes that are no apply


def test_an_update_takes_what_it_changes():
    live = apply(None, a_deploy({"labels": {"a": "1"}}, replicas=1, strategy={"type": "a"}))
    edited = update(live, a_deploy({"labels": {"a": "1", "b": "2"}}, replicas=2, strategy={"type": "a"}), now=LATER)
    assert owned(edited) == {
        "alice": {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:strategy": {"f:type": {}}}},
        "editor": {"f:metadata": {"f:labels": {"f:b": {}}}, "f:spec": {"f:replicas": {}}},
    }
    assert [entry["time"] for entry in edited["metadata"]["managedFields"]] == [NOW, LATER]


def test_what_an_update_removes_is_nobodys():
    live = apply(None, a_deploy(replicas=1, containers=[{"name": "x", "image": "1"}, {"name": "y"}]))
    edited = update(live, a_deploy(containers=[{"name": "y"}]))
    assert owned(edited) == {"alice": {"f:spec": {"f:containers": {'k:{"name":"y"}': {".": {}, "f:name": {}}}}}}


def test_an_update_that_changes_nothing_leaves_no_trace():
    live = apply(None, a_deploy(replicas=1))
    assert update(live, live) == live
    moved = a_deploy({"resourceVersion": "5", "generation": 2}, replicas=1)
    assert owned(update(live, moved)) == owned(live)


def test_a_client_that_drops_managed_fields_does_not_lose_them():
    live = apply(None, a_deploy(replicas=1))
    assert owned(update(live, plain(live))) == owned(live)
    garbled = raw.copy(live)
    garbled["metadata"]["managedFields"] = [{"manager": "x", "operation": "Apply", "fieldsType": "FieldsV9"}]
    assert owned(update(live, garbled)) == owned(live)


def test_a_client_may_edit_managed_fields_and_reset_them():
    live = apply(None, a_deploy(replicas=1))
    edited = raw.copy(live)
    edited["metadata"]["managedFields"][0]["manager"] = "carol"
    assert set(owned(update(live, edited))) == {"carol"}
    edited["metadata"]["managedFields"] = [{}]
    assert "managedFields" not in update(live, edited)["metadata"]


def test_an_object_that_was_never_applied_is_not_tracked():
    assert update(a_deploy(replicas=1), a_deploy(replicas=2)) == a_deploy(replicas=2)


def test_status_written_through_its_own_path_is_owned_there():
    live = apply(None, a_deploy(replicas=1))
    reported = update(live, {**live, "status": {"ready": 1}}, "kubelet", subresource="status")
    entry = next(e for e in reported["metadata"]["managedFields"] if e["manager"] == "kubelet")
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {".": {}, "f:ready": {}}})


def test_old_updaters_are_folded_into_one():
    live = apply(None, a_deploy({"labels": {"x": "1"}}))
    for index in range(15):
        labels = {**live["metadata"]["labels"], f"l{index}": "1"}
        live = update(live, a_deploy({"labels": labels}), f"editor-{index}", now=f"2026-02-{index + 1:02}T00:00:00Z")
    managers = owned(live)
    assert len(managers) == 11
    assert set(managers["ancient-changes"]["f:metadata"]["f:labels"]) == {f"f:l{index}" for index in range(6)}
    assert "editor-14" in managers


def test_ownership_written_by_another_server_is_understood():
    live = a_deploy(containers=[{"name": "x", "ports": [{"containerPort": 80, "protocol": "TCP"}]}], replicas=1)
    live["metadata"]["managedFields"] = [
        {
            "manager": "bob",
            "operation": "Update",
            "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}, "f:containers": {'k:{ "name": "x" }': {".": {}, "f:ports": {
                'k:{"protocol":"TCP","containerPort":80}': {".": {}, "f:protocol": {}}}}}}},
        }
    ]  # fmt: skip
    changed = a_deploy(containers=[{"name": "x", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}]}])
    merged = apply(live, changed)
    ports: dict = {"f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:protocol": {}}}}
    assert owned(merged)["bob"]["f:spec"]["f:containers"] == {'k:{"name":"x"}': {".": {}, **ports}}
    with pytest.raises(errors.Conflict, match="bob"):
        apply(merged, a_deploy(replicas=2))
