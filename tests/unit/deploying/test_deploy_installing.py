"""Installing and removing, on a store in memory: what is made, kept, and left alone."""

from collections.abc import Sequence

import pytest
from tests.unit.deploying.clusters import a_cluster, a_definition, a_deployment, establish, put

from muster.api import core, errors, kueue
from muster.api.kueue.names import MANAGED
from muster.api.objects import Key
from muster.api.ownership import Unlabelled
from muster.deploying import installing, kinds, names, removing, surroundings, waiting
from muster.deploying.installing import Installer, Outcome, Step
from muster.deploying.slots import Chosen
from muster.deploying.values import Server, Values
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Create, Delete, Patch, Selection, Store, write_one
from muster.testing.virtual import on_virtual_time

CLUSTER_QUEUES = kueue.CLUSTER_QUEUE.resource


async def install(
    store: Store, clock: VirtualClock, *, dry_run: bool = False, replicas: int = 2, server: bool = False
) -> Sequence[Step]:
    chosen = Chosen(Values(replicas=replicas, server=Server(enabled=server)), names.NAMESPACE)
    return [step async for step in Installer(store, clock, dry_run=dry_run).install(chosen)]


async def uninstall(store: Store, clock: VirtualClock, *, everything: bool = False) -> Sequence[Step]:
    plan = await removing.plan(store, names.NAMESPACE)
    return [step async for step in removing.remove(store, clock, plan, everything=everything)]


def outcomes(steps: Sequence[Step]) -> dict[str, Outcome]:
    return {step.label: step.outcome for step in steps}


@on_virtual_time
async def test_an_empty_cluster_gets_everything_and_a_second_time_changes_nothing(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        first = outcomes(await install(store, clock))
        assert first["deployment/muster-controller"] is Outcome.CREATED
        assert first[f"customresourcedefinition/{CLUSTER_QUEUES}"] is Outcome.CREATED
        assert set(outcomes(await install(store, clock)).values()) == {Outcome.UNCHANGED, Outcome.READY}
        changed = outcomes(await install(store, clock, replicas=3))
        assert [label for label, outcome in changed.items() if outcome is Outcome.CONFIGURED] == [
            "deployment/muster-controller"
        ]


@on_virtual_time
async def test_kinds_come_before_what_uses_them(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        labels = [step.label for step in await install(store, clock)]
    ready = labels.index("definitions of kinds")
    assert all(label.startswith("customresourcedefinition/") for label in labels[:ready])
    assert labels[ready + 1] == "namespace/muster-system"


@on_virtual_time
async def test_a_definition_of_somebody_else_stays_as_it_is(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await put(store, kinds.CUSTOM_RESOURCE_DEFINITION, a_definition(CLUSTER_QUEUES, ["v1beta1", "v1beta2"]))
        before = await store.get(kinds.CUSTOM_RESOURCE_DEFINITION, Key("", CLUSTER_QUEUES))
        await establish(store, CLUSTER_QUEUES)
        steps = {step.label: step for step in await install(store, clock)}
        after = await store.get(kinds.CUSTOM_RESOURCE_DEFINITION, Key("", CLUSTER_QUEUES))
        assert steps[f"customresourcedefinition/{CLUSTER_QUEUES}"].outcome is Outcome.KEPT
        assert after.document()["spec"] == before.document()["spec"]
        await uninstall(store, clock, everything=True)
        await store.get(kinds.CUSTOM_RESOURCE_DEFINITION, Key("", CLUSTER_QUEUES))


@on_virtual_time
async def test_a_definition_of_somebody_else_that_is_too_old_is_told(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await put(store, kinds.CUSTOM_RESOURCE_DEFINITION, a_definition(CLUSTER_QUEUES, ["v1beta1"]))
        steps = {step.label: step for step in await install(store, clock)}
    step = steps[f"customresourcedefinition/{CLUSTER_QUEUES}"]
    assert step.is_warning
    assert "serves v1beta1, and Muster reads v1beta2" in step.note


@on_virtual_time
async def test_a_definition_that_is_not_established_is_waited_for_and_named(clock: VirtualClock) -> None:
    async with a_cluster(clock, establishes=False) as store:
        with pytest.raises(errors.Timeout, match=r"pytorchjobs\.kubeflow\.org: not established after 60 s"):
            await install(store, clock)
    assert clock.monotonic() > waiting.PATIENCE_SECONDS


@on_virtual_time
async def test_a_dry_run_changes_nothing(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        steps = outcomes(await install(store, clock, dry_run=True))
        assert steps["deployment/muster-controller"] is Outcome.CREATED
        assert not (await store.list(Selection(kinds.CUSTOM_RESOURCE_DEFINITION))).items
        assert (await removing.plan(store, names.NAMESPACE)).is_empty


@on_virtual_time
async def test_what_helm_has_installed_is_left_to_helm(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        labels = {"app.kubernetes.io/managed-by": "Helm"}
        await put(store, core.NAMESPACE, {"metadata": {"name": names.NAMESPACE}})
        await put(store, kinds.DEPLOYMENT, a_deployment(names.NAMESPACE, names.CONTROLLER, labels))
        with pytest.raises(errors.Conflict, match="helm upgrade"):
            await install(store, clock)


@on_virtual_time
async def test_removing_leaves_no_trace_but_kinds_that_are_used(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await install(store, clock)
        flavor = {"metadata": {"name": "a100", "finalizers": ["kueue.x-k8s.io/resource-in-use"]}, "spec": {}}
        await put(store, kueue.RESOURCE_FLAVOR, flavor)
        steps = {step.label: step for step in await uninstall(store, clock)}
        kept = [step.label for step in steps.values() if step.outcome is Outcome.KEPT]
        assert kept == ["customresourcedefinition/resourceflavors.kueue.x-k8s.io"]
        assert steps["deployment/muster-controller"].outcome is Outcome.DELETED
        await uninstall(store, clock, everything=True)
        assert (await store.get(kueue.RESOURCE_FLAVOR, Key("", "a100"))).meta.finalizers == ()
        assert (await removing.plan(store, names.NAMESPACE)).is_empty


@on_virtual_time
async def test_the_data_of_a_server_stays_unless_all_shall_go(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await install(store, clock, server=True)
        steps = outcomes(await uninstall(store, clock))
        assert steps["deployment/muster-server"] is Outcome.DELETED
        assert steps["persistentvolumeclaim/muster-server"] is Outcome.KEPT
        assert steps["namespace/muster-system"] is Outcome.KEPT
        assert (await removing.plan(store, names.NAMESPACE)).lost == ["the data in volume muster-server"]
        await uninstall(store, clock, everything=True)
        assert (await removing.plan(store, names.NAMESPACE)).is_empty


@on_virtual_time
async def test_pods_that_queued_can_go_when_nobody_looks_after_them(clock: VirtualClock) -> None:
    metadata = {"namespace": "default", "name": "p", "labels": {MANAGED: "true"}, "finalizers": ["other/one", MANAGED]}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    async with a_cluster(clock) as store:
        await install(store, clock)
        await put(store, core.POD, pod)
        steps = {step.label: step for step in await uninstall(store, clock)}
        assert steps["pods that queued"].note == "1 no longer held by a finalizer"
        assert (await store.get(core.POD, Key("default", "p"))).meta.finalizers == ("other/one",)


@on_virtual_time
async def test_a_namespace_that_was_there_before_is_not_removed(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": names.NAMESPACE}}))
        await install(store, clock)
        await uninstall(store, clock, everything=True)
        await store.get(core.NAMESPACE, Key("", names.NAMESPACE))


@on_virtual_time
async def test_an_installation_that_somebody_has_damaged_is_made_whole(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        await install(store, clock)
        key = Key(names.NAMESPACE, names.CONTROLLER)
        await write_one(store, Delete(kinds.SERVICE_ACCOUNT, key))
        await write_one(store, Patch(kinds.DEPLOYMENT, key, {"spec": {"replicas": 0}}))
        repaired = outcomes(await install(store, clock))
        assert repaired["serviceaccount/muster-controller"] is Outcome.CREATED
        assert repaired["deployment/muster-controller"] is Outcome.CONFIGURED
        assert (await store.get(kinds.DEPLOYMENT, key)).document()["spec"]["replicas"] == 2


@on_virtual_time
async def test_where_others_run_unlabelled_objects_are_theirs(clock: VirtualClock) -> None:
    async with a_cluster(clock) as store:
        assert installing.whose_unlabelled(await surroundings.neighbours(store)) is Unlabelled.OURS
        labels = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
        await put(store, core.NAMESPACE, {"metadata": {"name": "kueue-system"}})
        await put(store, kinds.DEPLOYMENT, a_deployment("kueue-system", "kueue-controller-manager", labels))
        found = await surroundings.neighbours(store)
        assert [(each.project, each.deployment) for each in found] == [
            ("Kueue", "kueue-system/kueue-controller-manager")
        ]
        assert installing.whose_unlabelled(found) is Unlabelled.THEIRS
