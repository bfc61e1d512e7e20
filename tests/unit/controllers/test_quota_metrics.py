"""What is measured while workloads come, wait, start, are preempted and end."""

import re
from math import isnan

from tests.unit.controllers.quota_worlds import World, a_check, a_local_queue, a_queue, a_workload, a_world

from muster.api import batch, core, kueue
from muster.api.kueue import names
from muster.api.selectors import parse_labels
from muster.controllers.quota.jobs import JobsController
from muster.controllers.quota.pods import PodsController
from muster.quota.gates import Gates
from muster.quota.settings import AdmissionFairSharing, FairSharing, Metrics, PodsReady, Settings
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Create, write_one
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

_SERIES = re.compile(r"kueue_(\w+)\{(.*)\} (\S+)")


def measured(world: World, metric: str, /, **labels: str) -> dict[tuple[str, ...], float]:
    """Of all series of that name with these labels, the values of the other labels, and the number."""
    found = {}
    for line in world.quota.metrics.text().splitlines():
        match = _SERIES.fullmatch(line)
        if match is None or match[1] != metric:
            continue
        has = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
        assert has.pop("replica_role") == "standalone"
        if labels.items() <= has.items():
            found[tuple(value for label, value in has.items() if label not in labels)] = float(match[3])
    return found


async def finish(world: World, name: str) -> None:
    done = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": None}
    done["lastTransitionTime"] = "2030-01-01T00:00:00Z"
    conditions = (await world.status(name=name))["conditions"]
    await world.change(kueue.WORKLOAD, name, {"status": {"conditions": [*conditions, done]}}, is_status=True)


@on_virtual_time
async def test_from_waiting_to_the_end(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="2"), a_local_queue(), a_workload("first", "2"))
        await clock.sleep(3)
        await world.make(a_workload("second", "2"))
        await clock.sleep(3)
        assert measured(world, "pending_workloads", cluster_queue="cq") == {("active",): 0, ("inadmissible",): 1}
        assert measured(world, "admitted_workloads_total") == {("cq", ""): 1}
        assert measured(world, "reserving_active_workloads") == {("cq",): 1}
        assert measured(world, "admitted_active_workloads") == {("cq",): 1}
        assert measured(world, "admission_attempts_total")[("success",)] == 1
        assert measured(world, "admission_attempts_total")[("inadmissible",)] >= 1
        assert measured(world, "admission_attempt_duration_seconds_count") == measured(
            world, "admission_attempts_total"
        )
        await clock.sleep(60)
        await finish(world, "first")
        await clock.sleep(3)
        assert measured(world, "admitted_workloads_total") == {("cq", ""): 2}
        assert measured(world, "quota_reserved_workloads_total") == {("cq", ""): 2}
        assert measured(world, "finished_workloads_total") == {("cq", ""): 1}
        assert measured(world, "admission_wait_time_seconds_count") == {("cq", ""): 2}
        [waited] = measured(world, "quota_reserved_wait_time_seconds_sum").values()
        assert 60 <= waited <= 70
        assert measured(world, "pending_workloads", cluster_queue="cq") == {("active",): 0, ("inadmissible",): 0}


@on_virtual_time
async def test_quotas_and_what_is_used_of_them(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="4500m", cohortName="all"), a_local_queue(), a_workload(cpu="1500m"))
        await clock.sleep(3)
        line = {"cohort": "all", "cluster_queue": "cq", "flavor": "f", "resource": "cpu"}
        assert measured(world, "cluster_queue_nominal_quota", **line) == {(): 4.5}
        assert measured(world, "cluster_queue_resource_reservation", **line) == {(): 1.5}
        assert measured(world, "cluster_queue_resource_usage", **line) == {(): 1.5}
        assert measured(world, "cluster_queue_borrowing_limit", **line) == {(): float("inf")}
        assert measured(world, "cluster_queue_status", cluster_queue="cq") == {
            ("pending",): 0,
            ("active",): 1,
            ("terminating",): 0,
        }


@on_virtual_time
async def test_preemption_is_counted_for_both_sides(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        policy = {"withinClusterQueue": "LowerPriority"}
        await world.make(a_queue(cpu="2", preemption=policy), a_local_queue(), a_workload("low", "2", priority=1))
        await clock.sleep(3)
        await world.make(a_workload("high", "2", priority=5))
        await clock.sleep(5)
        assert await world.is_admitted("high")
        assert measured(world, "preempted_workloads_total") == {("cq", "InClusterQueue"): 1}
        assert measured(world, "evicted_workloads_total", cluster_queue="cq") == {("Preempted", "", ""): 1}
        assert measured(world, "evicted_workloads_once_total") == measured(world, "evicted_workloads_total")


@on_virtual_time
async def test_a_queue_that_borrows_has_a_share(clock: VirtualClock) -> None:
    async with a_world(clock, Settings(fair_sharing=FairSharing())) as world:
        await world.make(a_queue(cpu="1", cohortName="all"), a_queue("other", cpu="3", cohortName="all"))
        await world.make(a_local_queue(), a_workload(cpu="3"))
        await clock.sleep(3)
        assert measured(world, "cluster_queue_weighted_share") == {("cq", "all"): 500.0, ("other", "all"): 0.0}
        assert measured(world, "cohort_weighted_share") == {("all",): 0.0}


@on_virtual_time
async def test_a_queue_that_is_gone_leaves_no_series(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(), a_local_queue(), a_workload())
        await clock.sleep(3)
        assert measured(world, "admitted_workloads_total")
        await world.delete(kueue.WORKLOAD, "w")
        await world.delete(kueue.CLUSTER_QUEUE, "cq")
        await clock.sleep(5)
        assert '"cq"' not in world.quota.metrics.text()


@on_virtual_time
async def test_a_local_queue_is_measured_like_the_queue_behind_it(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="2"), a_local_queue(), a_local_queue("idle"), a_workload("first", "2"))
        await world.make(a_workload("second", "1"))
        await clock.sleep(3)
        lq, idle = {"name": "lq", "namespace": "default"}, {"name": "idle", "namespace": "default"}
        assert measured(world, "local_queue_admitted_workloads_total") == {("lq", "default", ""): 1}
        assert measured(world, "local_queue_quota_reserved_wait_time_seconds_count", **lq) == {("",): 1}
        assert measured(world, "local_queue_pending_workloads", **lq) == {("active",): 0, ("inadmissible",): 1}
        assert measured(world, "local_queue_pending_workloads", **idle) == {("active",): 0, ("inadmissible",): 0}
        assert measured(world, "local_queue_reserving_active_workloads", **lq) == {(): 1}
        assert measured(world, "local_queue_admitted_active_workloads", **idle) == {(): 0}
        assert measured(world, "local_queue_resource_usage", **lq) == {("f", "cpu"): 2}
        assert measured(world, "local_queue_resource_reservation", **idle) == {("f", "cpu"): 0}
        assert measured(world, "local_queue_status", **lq) == {("True",): 1, ("False",): 0, ("Unknown",): 0}
        await world.change(kueue.LOCAL_QUEUE, "idle", {"spec": {"stopPolicy": "Hold"}})
        await finish(world, "first")
        await clock.sleep(3)
        assert measured(world, "local_queue_status", **idle) == {("True",): 0, ("False",): 1, ("Unknown",): 0}
        assert measured(world, "local_queue_finished_workloads", **lq) == {(): 1}
        assert measured(world, "local_queue_finished_workloads_total", **lq) == {("",): 1}
        assert measured(world, "finished_workloads") == {("cq",): 1}
        await world.delete(kueue.WORKLOAD, "first")
        await world.delete(kueue.WORKLOAD, "second")
        await world.delete(kueue.LOCAL_QUEUE, "lq")
        await clock.sleep(3)
        assert measured(world, "finished_workloads") == {("cq",): 0}
        assert 'name="lq"' not in world.quota.metrics.text()


@on_virtual_time
async def test_only_local_queues_that_are_selected_are_measured(clock: VirtualClock) -> None:
    settings = Settings(metrics=Metrics(local_queue_selector=parse_labels("team=a")))
    async with a_world(clock, settings) as world:
        named = a_local_queue("named")
        named["metadata"]["labels"] = {"team": "a"}
        await world.make(a_queue(), a_local_queue(), named, a_workload(), a_workload("w2", queue="named"))
        await clock.sleep(3)
        assert measured(world, "local_queue_admitted_workloads_total") == {("named", "default", ""): 1}
        assert measured(world, "local_queue_admitted_active_workloads") == {("named", "default"): 1}
        assert measured(world, "admitted_workloads_total") == {("cq", ""): 2}
        await world.change(kueue.LOCAL_QUEUE, "named", {"metadata": {"labels": {"team": "b"}}})
        await clock.sleep(3)
        assert 'name="named"' not in world.quota.metrics.text()


@on_virtual_time
async def test_what_is_switched_off_is_not_served(clock: VirtualClock) -> None:
    off = dict.fromkeys(
        (
            "MetricsForCohorts",
            "MetricForWorkloadCreationLatency",
            "SchedulingEquivalenceHashing",
            "UnadmittedWorkloadsObservability",
        ),
        False,
    )
    settings = Settings(gates=Gates.default().changed(off), metrics=Metrics(amounts=False, local_queues=False))
    async with a_world(clock, settings) as world:
        await world.make(a_queue(cohortName="all"), a_local_queue(), a_workload())
        await clock.sleep(3)
        assert measured(world, "admitted_workloads_total") == {("cq", ""): 1}
        served = " ".join(re.findall(r"# TYPE (\w+)", world.quota.metrics.text()))
        for word in (
            "local_queue",
            "cohort",
            "quota kueue",
            "limit",
            "resource",
            "info kueue_c",
            "unadmitted",
            "hashes",
            "ready",
            "share",
            "creation",
        ):
            assert word not in served, word


@on_virtual_time
async def test_who_is_not_admitted_and_why(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        check = {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}
        await world.make(a_check("c"), a_queue(cpu="2", more=check), a_local_queue())
        await world.activate_check("c")
        await world.make(a_workload("held", "2"))
        await clock.sleep(2)
        await world.make(a_workload("waiting", "1"), a_workload("lost", queue="nowhere"))
        await clock.sleep(8)
        assert measured(world, "unadmitted_workloads") == {
            ("cq", "UnsatisfiedAdmissionChecks", ""): 1,
            ("cq", "NoReservation", "WaitingForQuota"): 1,
            ("", "NoReservation", "Misconfigured"): 1,
        }
        assert measured(world, "local_queue_unadmitted_workloads", name="nowhere") == {
            ("default", "", "NoReservation", "Misconfigured"): 1
        }
        assert measured(world, "reserving_active_workloads") == {("cq",): 1}
        assert measured(world, "admitted_active_workloads") == {("cq",): 0}
        line = {"cluster_queue": "cq", "resource": "cpu"}
        assert measured(world, "cluster_queue_resource_reservation", **line) == {("", "f"): 2}
        assert measured(world, "cluster_queue_resource_usage", **line) == {("", "f"): 0}
        assert measured(world, "cluster_queue_resource_pending", **line) == {("",): 1}
        await world.set_check("c", "Ready", "held")
        await clock.sleep(3)
        assert measured(world, "admission_checks_wait_time_seconds_sum", cluster_queue="cq")[("",)] >= 9
        assert measured(world, "cluster_queue_resource_usage", **line) == {("", "f"): 2}
        assert ("cq", "UnsatisfiedAdmissionChecks", "") not in measured(world, "unadmitted_workloads")


@on_virtual_time
async def test_what_waits_has_shapes_and_asks_for_amounts(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(cpu="2"), a_local_queue(), a_workload("holder", "2"))
        await clock.sleep(2)
        for number in range(5):
            await world.make(a_workload(f"small-{number}", "500m"), a_workload(f"large-{number}", "2"))
        await clock.sleep(3)
        assert measured(world, "pending_workloads", status="inadmissible") == {("cq",): 10}
        assert measured(world, "pending_scheduling_hashes", cluster_queue="cq") == {
            ("active",): 0,
            ("inadmissible",): 2,
        }
        assert measured(world, "local_queue_pending_workloads", status="inadmissible") == {("lq", "default"): 10}
        assert measured(world, "cluster_queue_resource_pending", cluster_queue="cq") == {("", "cpu"): 12.5}
        await world.delete(kueue.WORKLOAD, "large-0")
        await clock.sleep(1)
        assert measured(world, "cluster_queue_resource_pending", cluster_queue="cq") == {("", "cpu"): 10.5}


@on_virtual_time
async def test_pods_that_get_ready_and_a_workload_that_ends(clock: VirtualClock) -> None:
    async with a_world(clock, Settings(pods_ready=PodsReady())) as world:
        await world.make(a_queue(), a_local_queue(), a_workload())
        await clock.sleep(5)
        await world.pods_are("True", "Started")
        await clock.sleep(5)
        await world.pods_are("False", "WaitForRecovery")
        await clock.sleep(5)
        await world.pods_are("True", "Recovered")
        await clock.sleep(1)
        for name in ("ready", "admitted_until_ready"):
            assert measured(world, f"{name}_wait_time_seconds_count") == {("cq", ""): 1}
            assert 4 <= measured(world, f"{name}_wait_time_seconds_sum")[("cq", "")] <= 6
            assert measured(world, f"local_queue_{name}_wait_time_seconds_count") == {("lq", "default", ""): 1}
        await finish(world, "w")
        await clock.sleep(1)
        assert measured(world, "execution_time_seconds_count") == {("cq", ""): 1}
        assert measured(world, "local_queue_execution_time_seconds_count") == {("lq", "default", ""): 1}


@on_virtual_time
async def test_how_long_an_eviction_takes(clock: VirtualClock) -> None:
    async with a_world(clock, Settings(pods_ready=PodsReady())) as world:
        policy = {"withinClusterQueue": "LowerPriority"}
        await world.make(a_queue(cpu="2", preemption=policy), a_local_queue(), a_workload("low", "2", priority=1))
        await clock.sleep(3)
        await world.pods_are("True", "Started", "low")
        await clock.sleep(7)
        await world.make(a_workload("high", "2", priority=5))
        await clock.sleep(5)
        assert await world.is_admitted("high")
        assert measured(world, "workload_eviction_latency_seconds_count") == {("cq", "Preempted"): 1}
        assert 1 <= measured(world, "workload_eviction_latency_seconds_sum")[("cq", "Preempted")] <= 2
        assert measured(world, "pods_ready_to_evicted_time_seconds_count") == {("cq", "Preempted", ""): 1}
        assert 7 <= measured(world, "pods_ready_to_evicted_time_seconds_sum")[("cq", "Preempted", "")] <= 9
        assert measured(world, "local_queue_evicted_workloads_total", reason="Preempted") == {
            ("lq", "default", "", ""): 1
        }


@on_virtual_time
async def test_cohorts_are_told_with_what_is_below_them(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        cohort = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "team"}}
        await world.make({**cohort, "spec": {"parentName": "all"}})
        await world.make(a_queue(cpu="2", cohortName="team"), a_queue("other", cpu="3", cohortName="all"))
        await world.make(a_queue("alone"), a_local_queue(), a_workload(cpu="1500m"))
        await clock.sleep(3)
        assert measured(world, "cluster_queue_info") == {
            ("cq", "team", "all"): 1,
            ("other", "all", "all"): 1,
            ("alone", "", ""): 1,
        }
        assert measured(world, "cohort_info") == {("team", "all", "all"): 1, ("all", "", "all"): 1}
        assert measured(world, "cohort_subtree_quota") == {("team", "f", "cpu"): 2, ("all", "f", "cpu"): 5}
        assert measured(world, "cohort_subtree_resource_reservations", cohort="all") == {("f", "cpu"): 1.5}
        assert measured(world, "cohort_subtree_admitted_active_workloads") == {("team",): 1, ("all",): 1}
        assert measured(world, "cohort_subtree_admitted_workloads_total") == {("team", ""): 1, ("all", ""): 1}
        await world.change(kueue.CLUSTER_QUEUE, "cq", {"spec": {"cohortName": None}})
        await world.delete(kueue.COHORT, "team")
        await clock.sleep(3)
        assert '"team"' not in world.quota.metrics.text()


@on_virtual_time
async def test_a_borrower_without_weight_has_no_share(clock: VirtualClock) -> None:
    async with a_world(clock, Settings(fair_sharing=FairSharing())) as world:
        none = {"fairSharing": {"weight": "0"}}
        await world.make(a_queue(cpu="1", cohortName="all", more=none), a_queue("other", cpu="3", cohortName="all"))
        await world.make(a_local_queue(), a_workload(cpu="3"))
        await clock.sleep(3)
        assert isnan(measured(world, "cluster_queue_weighted_share", cluster_queue="cq")[("all",)])


@on_virtual_time
async def test_what_local_queues_used_before_is_told_where_it_counts(clock: VirtualClock) -> None:
    settings = Settings(admission_fair_sharing=AdmissionFairSharing(half_life=10, sampling_interval=1))
    async with a_world(clock, settings) as world:
        scope = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
        await world.make(a_queue(more=scope), a_queue("plain"), a_local_queue(), a_local_queue("p", "plain"))
        await world.make(a_workload(cpu="2"), a_workload("w2", cpu="2", queue="p"))
        await clock.sleep(30)
        [(labels, usage)] = measured(world, "local_queue_admission_fair_sharing_usage").items()
        assert labels == ("lq", "default")
        assert 1 < usage <= 2


@on_virtual_time
async def test_a_flavor_that_no_queue_names_any_more_leaves_no_series(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.make(a_queue(), a_local_queue(), a_workload())
        await clock.sleep(3)
        assert 'flavor="f"' in world.quota.metrics.text()
        await world.change(kueue.CLUSTER_QUEUE, "cq", {"spec": {"resourceGroups": []}})
        await clock.sleep(3)
        assert 'flavor="f"' not in world.quota.metrics.text()


@on_virtual_time
async def test_how_soon_a_job_has_a_workload_and_a_pod_may_go(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        counted = world.quota.counted
        jobs, pods = (
            JobsController(world.store, clock, metrics=counted),
            PodsController(world.store, clock, None, counted),
        )
        labels = {names.QUEUE_LABEL: "lq"}
        spec = a_workload()["spec"]["podSets"][0]["template"]["spec"]
        job = {"metadata": {"name": "j", "namespace": "default", "labels": labels}}
        gated = {**spec, "schedulingGates": [{"name": names.ADMISSION_GATE}]}
        pod = {"metadata": {"name": "p", "namespace": "default", "labels": {**labels, names.MANAGED: "true"}}}
        await world.make(a_queue(cpu="2"))
        await write_one(world.store, Create(batch.JOB, {**job, "spec": {"suspend": True, "template": {"spec": spec}}}))
        await write_one(world.store, Create(core.POD, {**pod, "spec": gated}))
        await clock.sleep(3)
        async with running(jobs.run, pods.run):
            await clock.sleep(2)
            assert measured(world, "workload_creation_latency_seconds_count") == {("Job",): 1, ("Pod",): 1}
            assert measured(world, "workload_creation_latency_seconds_sum")[("Job",)] >= 3
            await world.make(a_local_queue())
            await clock.sleep(3)
            assert measured(world, "pod_scheduling_gate_removal_seconds_count") == {
                ("cq", names.ADMISSION_GATE, "false"): 1
            }
            assert measured(world, "pod_scheduling_gate_removal_seconds_sum")[("cq", names.ADMISSION_GATE, "false")] < 2


@on_virtual_time
async def test_the_text_is_what_prometheus_reads(clock: VirtualClock) -> None:
    """Each name once, with its help and type before its series; buckets that grow up to the count."""
    async with a_world(clock, Settings(fair_sharing=FairSharing(), pods_ready=PodsReady())) as world:
        await world.make(a_queue(cpu="2"), a_local_queue(), a_workload("first", "2"), a_workload("second", "1"))
        await clock.sleep(3)
        seen: set[str] = set()
        family, buckets = "", list[float]()
        for line in world.quota.metrics.text().splitlines():
            if line.startswith("# HELP "):
                family = line.split()[2]
                assert family not in seen
                seen.add(family)
            elif line.startswith("# TYPE "):
                assert line.split()[2] == family
            else:
                match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
                assert match is not None, line
                assert match[1] in (family, f"{family}_bucket", f"{family}_sum", f"{family}_count"), line
                if match[1] == f"{family}_bucket":
                    buckets.append(float(match[3]))
                elif match[1] == f"{family}_count":
                    assert buckets == sorted(buckets)
                    assert buckets[-1] == float(match[3])
                    buckets.clear()
