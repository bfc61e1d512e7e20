import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, raw
from muster.api.everything import REGISTRY
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.server import columns, tables
from muster.server.columns import printing
from muster.server.paths import Target

NOW = Instant(1_700_000_000.0)
BORN = "2023-11-14T22:12:20Z"  # a minute before


def row(kind, document) -> dict:
    meta = {"name": "x", "resourceVersion": "7", "creationTimestamp": BORN, **document.pop("metadata", {})}
    found = Object(kind, raw.encode({"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **document}))
    view = tables.TableView(Target(kind, kind.group, kind.version, None), "v1", "Metadata", NOW)
    table = raw.decode(tables.encode(view, [found], {"resourceVersion": "7"}))
    names = [column["name"] for column in table["columnDefinitions"]]
    assert len(table["rows"][0]["cells"]) == len(names)
    assert table["rows"][0]["object"]["metadata"]["name"] == "x"
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


def container(name="main", *, restarts=0, ready=False, **state) -> dict:
    last = state.pop("last", None)
    found = {"name": name, "restartCount": restarts, "ready": ready, "state": state}
    return found | ({"lastState": last} if last else {})


WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
RUNNING = {"running": {"startedAt": BORN}}
READY = [{"type": "Ready", "status": "True"}]


def pod(containers=1, init=(), meta=None, spec=None, **status) -> dict:
    return {
        "metadata": meta or {},
        "spec": {
            "containers": [{"name": f"c{i}"} for i in range(containers)],
            "initContainers": list(init),
            **(spec or {}),
        },
        "status": status,
    }


@pytest.mark.parametrize(
    ("sentence", "document", "expected"),
    [
        ("nothing known yet", pod(phase="Pending"), ("0/1", "Pending", "0")),
        (
            "creating",
            pod(phase="Pending", containerStatuses=[container(waiting={"reason": "ContainerCreating"})]),
            ("0/1", "ContainerCreating", "0"),
        ),
        (
            "running",
            pod(phase="Running", containerStatuses=[container(ready=True, **RUNNING)]),
            ("1/1", "Running", "0"),
        ),
        (
            "one of two ready",
            pod(
                2, phase="Running", containerStatuses=[container("a", ready=True, **RUNNING), container("b", **RUNNING)]
            ),
            ("1/2", "Running", "0"),
        ),
        (
            "crash loop",
            pod(
                phase="Running",
                containerStatuses=[
                    container(restarts=3, last={"terminated": {"exitCode": 1, "finishedAt": BORN}}, **WAITING)
                ],
            ),
            ("0/1", "CrashLoopBackOff", "3 (60s ago)"),
        ),
        ("completed", pod(phase="Succeeded", containerStatuses=[container(**DONE)]), ("0/1", "Completed", "0")),
        (
            "out of memory",
            pod(phase="Failed", containerStatuses=[container(terminated={"exitCode": 137, "reason": "OOMKilled"})]),
            ("0/1", "OOMKilled", "0"),
        ),
        (
            "exit code only",
            pod(phase="Failed", containerStatuses=[container(terminated={"exitCode": 3})]),
            ("0/1", "ExitCode:3", "0"),
        ),
        (
            "signal only",
            pod(phase="Failed", containerStatuses=[container(terminated={"exitCode": 137, "signal": 9})]),
            ("0/1", "Signal:9", "0"),
        ),
        ("evicted", pod(phase="Failed", reason="Evicted"), ("0/1", "Evicted", "0")),
        (
            "first init container runs",
            pod(init=[{"name": "i"}], phase="Pending", initContainerStatuses=[container("i", **RUNNING)]),
            ("0/1", "Init:0/1", "0"),
        ),
        (
            "second init container failed",
            pod(
                init=[{"name": "i"}, {"name": "j"}],
                phase="Pending",
                initContainerStatuses=[
                    container("i", **DONE),
                    container("j", terminated={"exitCode": 1, "reason": "Error"}),
                ],
            ),
            ("0/1", "Init:Error", "0"),
        ),
        (
            "init container loops",
            pod(init=[{"name": "i"}], phase="Pending", initContainerStatuses=[container("i", restarts=2, **WAITING)]),
            ("0/1", "Init:CrashLoopBackOff", "2"),
        ),
        (
            "sidecar counts",
            pod(
                init=[{"name": "s", "restartPolicy": "Always"}],
                phase="Running",
                initContainerStatuses=[{**container("s", ready=True, **RUNNING), "started": True}],
                containerStatuses=[container(ready=True, **RUNNING)],
            ),
            ("2/2", "Running", "0"),
        ),
        (
            "gated",
            pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
            ("0/1", "SchedulingGated", "0"),
        ),
        (
            "one done, one runs",
            pod(
                2,
                phase="Running",
                conditions=READY,
                containerStatuses=[container("a", **DONE), container("b", ready=True, **RUNNING)],
            ),
            ("1/2", "Running", "0"),
        ),
        (
            "being deleted",
            pod(
                meta={"deletionTimestamp": BORN}, phase="Running", containerStatuses=[container(ready=True, **RUNNING)]
            ),
            ("1/1", "Terminating", "0"),
        ),
        (
            "deleted after the end",
            pod(meta={"deletionTimestamp": BORN}, phase="Succeeded", containerStatuses=[container(**DONE)]),
            ("0/1", "Completed", "0"),
        ),
        (
            "its node is lost",
            pod(meta={"deletionTimestamp": BORN}, phase="Running", reason="NodeLost"),
            ("0/1", "Unknown", "0"),
        ),
    ],
)
def test_pods_say_what_a_person_wants_to_know(sentence, document, expected):
    shown = row(core.POD, document)
    assert (shown["Ready"], shown["Status"], shown["Restarts"]) == expected
    assert shown["Age"] == "60s"


def test_every_kind_has_a_row_even_for_an_empty_object():
    for kind in REGISTRY:
        shown = row(kind, {})
        assert any(shown.get(name) is not None for name in ("Age", "Last Seen", "Created At"))


@pytest.mark.parametrize(
    ("kind", "document", "expected"),
    [
        (
            "node",
            {"status": {"conditions": READY, "nodeInfo": {"kubeletVersion": "v1"}}, "spec": {"unschedulable": True}},
            {"Status": "Ready,SchedulingDisabled", "Roles": "<none>", "Version": "v1"},
        ),
        ("configmap", {"data": {"a": "1"}, "binaryData": {"b": "MQ=="}}, {"Data": 2}),
        ("secret", {"data": {"a": "MQ=="}, "type": "Opaque"}, {"Data": 1, "Type": "Opaque"}),
        (
            "jobs.batch",
            {"spec": {"completions": 3}, "status": {"succeeded": 1, "startTime": BORN}},
            {"Completions": "1/3", "Duration": "60s", "Status": "Running"},
        ),
        (
            "jobs.batch.volcano.sh",
            {"status": {"state": {"phase": "Running"}, "minAvailable": 2, "running": 1}},
            {"Status": "Running", "minAvailable": 2, "RUNNINGS": 1},
        ),
        (
            "podgroups",
            {"spec": {"minMember": 4}, "status": {"phase": "Inqueue"}},
            {"Status": "Inqueue", "minMember": 4},
        ),
        (
            "clusterqueues",
            {"spec": {"cohortName": "all"}, "status": {"pendingWorkloads": 2}},
            {"Cohort": "all", "Pending Workloads": 2},
        ),
        (
            "workloads",
            {
                "spec": {"queueName": "q"},
                "status": {"admission": {"clusterQueue": "cq"}, "conditions": [{"type": "Admitted", "status": "True"}]},
            },
            {"Queue": "q", "Reserved in": "cq", "Admitted": "True", "Finished": ""},
        ),
        ("priorityclasses", {"value": 7, "globalDefault": True}, {"Value": 7, "Global-Default": True}),
        ("leases", {"spec": {"holderIdentity": "me"}}, {"Holder": "me"}),
        ("poddisruptionbudgets", {"spec": {"minAvailable": "50%"}}, {"Min Available": "50%", "Max Unavailable": "N/A"}),
        (
            "events",
            {
                "type": "Warning",
                "reason": "Failed",
                "message": "no\n",
                "count": 4,
                "firstTimestamp": BORN,
                "lastTimestamp": BORN,
                "involvedObject": {"kind": "Pod", "name": "p"},
            },
            {"Last Seen": "60s (x4 over 60s)", "Object": "pod/p", "Message": "no"},
        ),
    ],
)
def test_columns_of_other_kinds(kind, document, expected):
    found = REGISTRY.find(kind)
    assert found is not None
    shown = row(found, document)
    assert expected.items() <= shown.items()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_000, "3h3m"),
        (30_000, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (700_000, "8d"),
        (63_071_999, "729d"),
        (63_072_000, "2y"),
        (64_000_000, "2y10d"),
        (300_000_000, "9y"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds, text):
    assert printing.duration(seconds) == text


@given(st.integers(0, 10**9))
def test_an_age_never_claims_more_than_has_passed(seconds):
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "y": 31_536_000}
    total, number = 0, ""
    for letter in printing.duration(seconds):
        if letter.isdigit():
            number += letter
        else:
            total, number = total + int(number) * units[letter], ""
    assert total <= seconds


def test_the_wide_columns_come_behind_the_others_where_kubectl_cuts_them_off():
    for kind in REGISTRY:
        names = [column.name for column in columns.of(kind).columns if column.priority == 0]
        assert names, kind
