"""Queues that open and close, and pod groups for pods that come without one."""

import re
from collections.abc import Callable
from typing import Any

from muster.api import core, raw, volcano
from muster.api.kinds import Kind
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.api.volcano import grouping
from muster.jobs import queues
from muster.jobs.grouping import make_group, network_topology
from muster.jobs.queues import State, state_of
from muster.jobs.volcano.vocabulary import Action
from tests.conformance.cases import Adapters, Case, Failed, Outcome, Passed, compare

_TEST = re.compile(r"Test(Open|Closed|Closing|Unknown)State_(OpenQueue|CloseQueue|SyncQueue)Action")
_GO_TYPE = {"*state.openState": "Open", "*state.closedState": "Closed", "*state.closingState": "Closing"}


def _view(kind: Kind, document: Document) -> Any:
    return view_of(kind, document)


# Queues


def _stepped(case: Case) -> Outcome:
    match = _TEST.fullmatch(case["test"])
    assert match is not None
    row = case["row"]
    said = row["queue"].get("status", {}).get("state", "")
    found = queues.step(State(match[1]), said, Action(match[2]), has_groups=bool(row["podGroups"]))
    return compare("state", str(found), row["expectedState"]) or Passed()


def _state(case: Case) -> Outcome:
    """What is no state at all is refused by Volcano's queue controller; here it can be opened and closed."""
    row = case["row"]
    return compare("state", str(state_of(row["queueState"])), _GO_TYPE.get(row["expectedType"], "Unknown")) or Passed()


def _deleted(case: Case) -> Outcome:
    row = case["row"]
    group = _view(volcano.POD_GROUP, row["podGroup"])
    key = f"{group.metadata.namespace}/{group.metadata.name}"
    ledger = queues.Ledger()
    ledger.set_group(key, group.spec.queue, group.status.phase)
    if not ledger.has_groups(group.spec.queue):
        return Failed("the group was not in its queue")
    ledger.remove_group(key)
    return compare("is still there", ledger.has_groups(group.spec.queue), row["ExpectValue"]) or Passed()


# Pod groups


def _readable(group: Document) -> Document:
    """Where the data has an expression instead of its value, that is the version of pods."""
    found: Document = raw.copy(group)
    for owner in found["metadata"]["ownerReferences"]:
        if "<Opaque" in owner["apiVersion"]:
            owner["apiVersion"] = "v1"
    return found


def _added(case: Case) -> Outcome:
    row = case["row"]
    want = _readable(row["expectedPodGroup"])
    owner = (row["rs"] or {}).get("metadata", {}).get("annotations") or {}
    for document in row["pods"]:
        pod = _view(core.POD, document)
        made = make_group(pod, owner)
        asked = want["spec"].get("minResources") or {}
        found = {name: made["spec"]["minResources"].get(name) for name in asked}
        problem = (
            compare("name", made["metadata"]["name"], want["metadata"]["name"])
            or compare("mark", grouping.group_name(pod.metadata), want["metadata"]["name"])
            or compare("owners", made["metadata"]["ownerReferences"], want["metadata"]["ownerReferences"])
            or compare("members", made["spec"]["minMember"], want["spec"]["minMember"])
            or compare("priority", made["spec"].get("priorityClassName"), want["spec"].get("priorityClassName"))
            or compare("resources", found, asked)
        )
        if problem is not None:
            return problem
    return Passed()


def _stateful(case: Case) -> Outcome:
    """The set is not looked at: each pod that lacks a group gets one, whoever made it."""
    row = case["row"]
    pods = [_view(core.POD, document) for document in row["existingPods"] or ()]
    made = [make_group(pod, {}) for pod in pods if grouping.needs_group(pod)]
    refused = compare("made", bool(made), row["expectPGCreated"])
    if refused is not None or not made:
        return refused or Passed()
    want = _readable(row["expectPG"])
    found = {part: made[0][part] for part in want}
    return compare("group", found, want) or Passed()


def _topology(case: Case) -> Outcome:
    row = case["row"]
    pod = _view(core.POD, row["pod"])
    made = make_group(pod, {})
    return (
        compare("namespace", made["metadata"]["namespace"], pod.metadata.namespace)
        or compare("topology", made["spec"].get("networkTopology"), row["expectedNetworkTopology"])
        or compare("read alone", network_topology(pod.metadata.annotations or {}), row["expectedNetworkTopology"])
        or Passed()
    )


_GROUP_TESTS: dict[str, Callable[[Case], Outcome]] = {
    "TestAddPodGroup": _added,
    "TestAddStatefulSet": _stateful,
    "TestBuildPodGroupFromPodWithNetworkTopology": _topology,
}
_QUEUE_TESTS: dict[str, Callable[[Case], Outcome]] = {"TestDeletePodGroup": _deleted, "TestNewState": _state}


def _queue_case(case: Case) -> Outcome:
    return _QUEUE_TESTS.get(case["test"], _stepped)(case)


def _group_case(case: Case) -> Outcome:
    return _GROUP_TESTS[case["test"]](case)


ADAPTERS: Adapters = {"queue_controller": _queue_case, "podgroup_controller": _group_case}
