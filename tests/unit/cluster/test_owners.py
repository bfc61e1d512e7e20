"""Selectors of services and controllers, and what they say of one pod."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, selectors
from muster.api.objects import Key
from muster.cluster.owners import PodSelectors
from muster.cluster.pods import Controller, PodInfo, Shapes

REPLICA_SET = Controller("apps/v1", "ReplicaSet", "rs")


def a_pod(labels: dict[str, str], owner: dict[str, Any] | None = None) -> PodInfo:
    meta = {"name": "p", "namespace": "ns", "labels": labels, "ownerReferences": [owner] if owner else []}
    return Shapes().info(msgspec.convert({"metadata": meta}, core.Pod))


def an_owner(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True, **changes}


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)


@given(st.lists(st.tuples(st.sampled_from("mnop"), st.none() | labels), max_size=12), labels)
def test_services_are_found_whatever_was_changed_before(changes: list[Any], own: dict[str, str]) -> None:
    known, plain = PodSelectors(), {}
    for name, selector in changes:
        if selector is None and name in plain:
            known.service_removed(Key("ns", name))
        else:
            known.service_changed(Key("ns", name), selector)
        plain[name] = selector
    wanted = {name for name, selector in plain.items() if selector is not None and selector.items() <= own.items()}
    found = list(known.services_of("ns", own))
    assert sorted(found) == sorted(wanted)
    assert not list(known.services_of("other", own))


def test_all_that_selects_a_pod_is_taken_together() -> None:
    known = PodSelectors()
    known.service_changed(Key("ns", "s"), {"app": "web"})
    known.service_changed(Key("ns", "t"), {"app": "web", "tier": "front"})
    known.service_changed(Key("ns", "u"), {"app": "db"})
    known.controller_changed("ns", REPLICA_SET, selectors.parse_labels("hash,app=web"))
    pod = a_pod({"app": "web", "tier": "front", "hash": "1"}, an_owner())
    assert str(known.selector_of(pod)) == "app=web,tier=front,hash"
    known.controller_removed("ns", REPLICA_SET)
    known.service_removed(Key("ns", "t"))
    assert str(known.selector_of(pod)) == "app=web"
    known.service_removed(Key("ns", "s"))
    assert known.selector_of(pod).requirements == ()


def test_a_controller_counts_only_for_pods_that_name_it() -> None:
    known = PodSelectors()
    known.controller_changed("ns", REPLICA_SET, selectors.parse_labels("hash=1"))
    assert known.selector_of(a_pod({"hash": "1"}, an_owner())).requirements
    assert not known.selector_of(a_pod({"hash": "1"})).requirements
    assert not known.selector_of(a_pod({"hash": "1"}, an_owner(controller=False))).requirements
    assert not known.selector_of(a_pod({"hash": "1"}, an_owner(name="other"))).requirements


def test_only_controllers_that_select_are_remembered() -> None:
    assert a_pod({}, an_owner()).controller == REPLICA_SET
    assert a_pod({}, an_owner(apiVersion="batch/v1", kind="Job")).controller is None


def test_every_change_makes_what_was_deduced_stale() -> None:
    known = PodSelectors()
    seen = [known.version]
    assert not known
    known.service_changed(Key("ns", "s"), {"app": "web"})
    seen.append(known.version)
    assert known
    known.controller_changed("ns", REPLICA_SET, selectors.parse_labels("a"))
    seen.append(known.version)
    known.controller_removed("ns", REPLICA_SET)
    seen.append(known.version)
    known.service_removed(Key("ns", "s"))
    seen.append(known.version)
    assert seen == sorted(set(seen))
    assert not known
    known.service_removed(Key("ns", "s"))
    known.controller_removed("ns", REPLICA_SET)
    assert known.version == seen[-1]
