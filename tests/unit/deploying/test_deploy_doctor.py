"""What the doctor says of clusters: pure judgements, and whole examinations on a store in memory."""

from typing import Any

import pytest
from tests.unit.deploying.clusters import a_cluster, put

from muster.api import coordination, core, raw, timestamps
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.ownership import Unlabelled
from muster.assembly import checkup
from muster.deploying import definitions, findings, judging, kinds, names
from muster.deploying.diagnosing import Examination
from muster.deploying.findings import Finding, Verdict
from muster.deploying.installing import Installer
from muster.deploying.reaching import ServerVersion
from muster.deploying.slots import Chosen
from muster.deploying.surroundings import Definition, Neighbour
from muster.deploying.values import Values
from muster.runtime.clock import VirtualClock
from muster.testing.virtual import on_virtual_time

NOW = Instant(1_800_000_000.0)


def an_object(kind: Kind, **document: Any) -> Object:
    return Object(kind, raw.encode({"metadata": {"name": "x", "namespace": "n"}, **document}))


def known(**changes: Any) -> dict[Kind, Definition]:
    facts = {"is_ours": True, "is_established": True} | changes
    return {kind: Definition(kind, served=frozenset({kind.version}), **facts) for kind in definitions.kinds()}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (ServerVersion("v1.34.2", 34, NOW), [Verdict.OK, Verdict.OK]),
        (ServerVersion("v1.27.0", 27, NOW), [Verdict.WARN, Verdict.OK]),
        (ServerVersion("v1.34.2", 34, Instant(NOW - 60)), [Verdict.OK, Verdict.WARN]),
        (ServerVersion("v1.34.2", 34, None), [Verdict.OK]),
    ],
)
def test_servers_that_are_old_or_tell_another_time(version: ServerVersion, expected: list[Verdict]) -> None:
    assert [found.verdict for found in judging.server(version, NOW, 0.02)] == expected


def test_missing_rights_are_named() -> None:
    assert judging.rights({"define kinds": True}).verdict is Verdict.OK
    assert "grant rights" in judging.rights({"define kinds": True, "grant rights": False}).found


def test_kinds_that_are_missing_foreign_old_or_not_served() -> None:
    assert {found.verdict for found in judging.kinds(known())} == {Verdict.OK}
    assert {found.verdict for found in judging.kinds({})} == {Verdict.WARN}
    assert all("used as they are" in found.found for found in judging.kinds(known(is_ours=False)))
    broken = list(judging.kinds(known(is_established=False, trouble="the name is taken")))
    assert {found.verdict for found in broken} == {Verdict.FAIL}
    assert "the name is taken" in broken[0].advice
    old = {kind: Definition(kind, False, True, frozenset({"v0"})) for kind in definitions.kinds()}
    assert all("upgrade" in found.advice for found in judging.kinds(old))


def test_two_who_look_after_the_same_objects_is_a_failure() -> None:
    kueue = [Neighbour("Kueue", "kueue-system/kueue-controller-manager")]
    assert judging.neighbours([], Unlabelled.OURS).verdict is Verdict.OK
    assert judging.neighbours(kueue, Unlabelled.THEIRS).verdict is Verdict.OK
    both = judging.neighbours(kueue, Unlabelled.OURS)
    assert both.verdict is Verdict.FAIL
    assert "unlabelled=theirs" in both.advice


def a_controller(ready: int, *, tag: str = "") -> dict[str, Any]:
    chosen = Chosen(Values(), names.NAMESPACE)
    container = {"image": f"muster:{tag}" if tag else chosen.image, "args": ["controller", "--unlabelled=theirs"]}
    return {
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": ready},
    }


def test_controllers_that_do_not_start_say_why() -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    ended = {"terminated": {"reason": "Error", "message": "no such file"}}
    pod = {"status": {"containerStatuses": [{"state": waits, "lastState": ended}]}}
    (found,) = judging.controllers(a_controller(0), [pod, pod])
    assert (found.verdict, found.advice) == (Verdict.FAIL, "CrashLoopBackOff back-off 10s; Error no such file")
    assert [each.verdict for each in judging.controllers(a_controller(1), [])] == [Verdict.WARN]
    assert [each.verdict for each in judging.controllers(a_controller(2), [])] == [Verdict.OK]
    assert [each.about for each in judging.controllers(a_controller(2, tag="0.0.1"), [])] == ["controllers", "version"]
    assert judging.unlabelled_of(a_controller(2)) is Unlabelled.THEIRS


def test_rights_of_another_version_are_told() -> None:
    assert judging.role(None).verdict is Verdict.WARN
    assert judging.role({"rules": [{"verbs": ["get"]}]}).found == "not those of this version"


def test_a_leader_that_is_silent_is_no_leader() -> None:
    def lease(seconds_ago: float) -> dict[str, Any]:
        renewed = timestamps.to_micro_text(Instant(NOW - seconds_ago))
        return {"spec": {"holderIdentity": "a", "renewTime": renewed, "leaseDurationSeconds": 15}}

    assert judging.leader(lease(3), NOW).verdict is Verdict.OK
    assert judging.leader(lease(60), NOW).verdict is Verdict.FAIL
    assert judging.leader(None, NOW).verdict is Verdict.FAIL
    assert judging.leader({"spec": {"holderIdentity": "a", "renewTime": "soon"}}, NOW).verdict is Verdict.FAIL


def a_node(name: str, *, ready: bool = True, gpus: int = 0, closed: bool = False) -> Object:
    return an_object(
        core.NODE,
        metadata={"name": name},
        spec={"unschedulable": closed},
        status={
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "allocatable": {"nvidia.com/gpu": str(gpus)},
        },
    )


def test_nodes_and_their_gpus() -> None:
    (found,) = judging.nodes([a_node("a", gpus=8), a_node("b", gpus=8)])
    assert (found.verdict, found.found) == (Verdict.OK, "2 of 2 ready, 16 GPUs on them")
    (lost,) = judging.nodes([a_node("a"), a_node("b", ready=False)])
    assert (lost.verdict, lost.advice) == (Verdict.WARN, "not ready: b")
    (none,) = judging.nodes([])
    assert none.verdict is Verdict.FAIL
    assert [each.about for each in judging.nodes([a_node("a", closed=True)])] == ["nodes", "cordoned nodes"]


def a_pod(reason: str | None, seconds_ago: float = 0) -> Object:
    made = timestamps.to_text(Instant(NOW - seconds_ago))
    conditions = [] if reason is None else [{"type": "PodScheduled", "status": "False", "reason": reason}]
    metadata = {"name": "p", "namespace": "n", "creationTimestamp": made}
    return an_object(core.POD, metadata=metadata, status={"conditions": conditions})


def test_pods_that_nobody_looks_at() -> None:
    assert judging.waiting_pods([], NOW).found == "none"
    assert judging.waiting_pods([a_pod("SchedulingGated")], NOW).found == "1 wait for quota"
    assert judging.waiting_pods([a_pod("Unschedulable")], NOW).verdict is Verdict.WARN
    assert judging.waiting_pods([a_pod(None)], NOW).verdict is Verdict.OK
    assert judging.waiting_pods([a_pod(None, 300)], NOW).verdict is Verdict.FAIL


def test_the_worst_finding_decides() -> None:
    assert findings.worst([]) is Verdict.OK
    assert findings.worst([findings.ok("a", ""), findings.warn("b", "", "")]) is Verdict.WARN
    assert findings.worst([findings.fail("a", "", ""), findings.warn("b", "", "")]) is Verdict.FAIL


async def examined(store: Any, clock: VirtualClock) -> dict[str, Finding]:
    return {found.about: found async for found in Examination(store, clock, names.NAMESPACE).findings()}


@on_virtual_time
async def test_a_cluster_with_nothing_of_ours_is_told_what_to_do(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await put(store, core.NODE, {"metadata": {"name": "a"}})
        found = await examined(store, clock)
    assert found["controllers"].advice == "run `muster install`"
    assert found["kinds of Kueue"].verdict is Verdict.WARN
    assert "leader" not in found
    assert "webhooks" not in found


@on_virtual_time
async def test_an_installation_that_works_and_one_without_a_leader(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        async for _ in Installer(store, clock).install(Chosen(Values(), names.NAMESPACE)):
            pass
        found = await examined(store, clock)
        assert found["kinds of Volcano"].verdict is Verdict.OK
        assert found["controllers"].verdict is Verdict.FAIL
        assert found["rights of the controllers"].verdict is Verdict.OK
        assert found["leader"].verdict is Verdict.FAIL
        assert found["webhooks"].verdict is Verdict.FAIL
        renewed = timestamps.to_micro_text(clock.now())
        metadata = {"namespace": names.NAMESPACE, "name": names.CONTROLLER}
        spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": renewed}
        await put(store, coordination.LEASE, {"metadata": metadata, "spec": spec})
        assert (await examined(store, clock))["leader"].verdict is Verdict.OK


@on_virtual_time
async def test_webhooks_that_are_registered_but_not_asked_are_found_out(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await put(store, kinds.VALIDATING_WEBHOOKS, {"metadata": {"name": names.WEBHOOK}})
        found = (await examined(store, clock))["webhooks"]
    assert (found.verdict, found.found) == (Verdict.FAIL, "registered, but nobody answered")


def an_api_service(name: str, service: str, *, is_available: bool, **labels: str) -> dict[str, Any]:
    condition = {
        "type": "Available",
        "status": str(is_available),
        "reason": "FailedDiscoveryCheck",
        "message": "no way",
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"service": {"name": service}},
        "status": {"conditions": [condition]},
    }


@on_virtual_time
async def test_apis_that_nobody_answers_for_are_in_everybodys_way(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        assert "visibility" not in await examined(store, clock)
        ours, theirs, broken = names.API_SERVICES
        await put(store, kinds.API_SERVICE, an_api_service(theirs, "kueue-visibility-server", is_available=False))
        assert "visibility" not in await examined(store, clock), "somebody else's"
        await put(store, kinds.API_SERVICE, an_api_service(ours, names.VISIBILITY, is_available=True, **names.LABELS))
        found = (await examined(store, clock))["visibility"]
        assert (found.verdict, found.found) == (
            Verdict.OK,
            "APIs about queues and decisions: 1 answered by Muster, 1 by Kueue",
        )
        await put(
            store, kinds.API_SERVICE, an_api_service(broken, names.VISIBILITY, is_available=False, **names.LABELS)
        )
        found = (await examined(store, clock))["visibility"]
        assert (found.verdict, found.found) == (Verdict.FAIL, "FailedDiscoveryCheck: no way")
        assert f"kubectl delete apiservice {broken}" in found.advice


def test_this_machine_is_examined_without_a_platform(tmp_path) -> None:
    found = {each.about: each for each in checkup.examine(tmp_path / "data", 0)}
    assert found["data directory"].verdict is Verdict.OK
    assert found["SQLite"].verdict is Verdict.OK
    assert "processors" in found["machine"].found
    assert not (tmp_path / "data").exists()
