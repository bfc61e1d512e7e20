import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import environment
from muster.api import errors
from muster.sdk import gangs, names
from muster.sdk.gangs import Gang, Phase, Rendezvous

HERE = Rendezvous("127.0.0.1", 5555)


def env_of(pod):
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}


def a_pod(rank, phase="Running", code=None, *, ended="", name="train", **more):
    state = {}
    if code is not None:
        state = {"terminated": {"exitCode": code, "finishedAt": ended, "reason": "Error" if code else "Completed"}}
    elif phase == "Running":
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return {
        "metadata": {"name": f"{name}-{rank}", "labels": {gangs.RANK_LABEL: str(rank)}, **more},
        "spec": {"nodeName": "" if phase == "Pending" else f"node-{rank}"},
        "status": {"phase": phase, "containerStatuses": [{"name": "main", "state": state}] if state else []},
    }


def test_pods_carry_what_distributed_training_reads():
    gang = Gang("train", ["python", "t.py"], replicas=3, gpus=2, cpu="1", memory="1Gi", workdir="/w", timeout_seconds=9)
    first, second, _ = gangs.pods(gang, "uid-1", HERE)
    assert env_of(second) == {
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "NODE_RANK": "1",
        "MUSTER_JOB": "train",
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "5555",
    }
    assert first["metadata"]["name"] == "train-0"
    assert first["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "train"}
    assert first["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert first["spec"]["activeDeadlineSeconds"] == 9
    assert first["spec"]["restartPolicy"] == "Never"
    assert first["spec"]["schedulerName"] == "muster"
    container = first["spec"]["containers"][0]
    assert container["workingDir"] == "/w"
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}
    assert container["resources"]["limits"] == {"memory": "1Gi", "nvidia.com/gpu": "2"}
    assert gangs.pod_group(gang)["spec"] == {"minMember": 3}


def test_the_user_s_own_variables_win_and_an_unknown_address_is_left_out():
    gang = Gang("train", ["x"], env={"RANK": "9", "A": "b"})
    found = env_of(gangs.pods(gang, "u", Rendezvous("", 0))[0])
    assert found["RANK"] == "9"
    assert found["A"] == "b"
    assert "MASTER_ADDR" not in found


@given(st.text(alphabet="$()PATH x"))
def test_a_command_survives_the_expansion_of_variables(text):
    assert environment.expand(gangs.literal(text), {"PATH": "/bin", "P": "p", "": "x"}) == text


def test_plain_shell_variables_are_left_as_they_are():
    assert gangs.literal("echo $HOME ${X}") == "echo $HOME ${X}"
    assert gangs.literal("echo $(date) $$") == "echo $$(date) $$$$"


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(errors.Invalid) as caught:
        Gang("Bad_Name", [], replicas=0, gpus=-1, env={"A=B": "c"}, timeout_seconds=0).check()
    assert {cause.path for cause in caught.value.causes} == {"name", "command", "replicas", "gpus", "env", "timeout"}
    with pytest.raises(errors.Invalid, match="52"):
        Gang("x" * 53, ["true"]).check()


@pytest.mark.parametrize(
    ("pods", "phase", "code"),
    [
        ([], Phase.PENDING, 0),
        ([a_pod(0, "Pending"), a_pod(1, "Pending")], Phase.PENDING, 0),
        ([a_pod(0), a_pod(1, "Pending")], Phase.RUNNING, 0),
        ([a_pod(0), a_pod(1)], Phase.RUNNING, 0),
        ([a_pod(0), a_pod(1, "Succeeded", 0)], Phase.RUNNING, 0),
        ([a_pod(0, "Succeeded", 0), a_pod(1, "Succeeded", 0)], Phase.SUCCEEDED, 0),
        ([a_pod(0, "Succeeded", 0), a_pod(1, "Failed", 3)], Phase.FAILED, 3),
        ([a_pod(0, "Succeeded", 0)], Phase.STOPPED, 0),
        ([a_pod(0, "Failed", 7)], Phase.FAILED, 7),
        ([a_pod(0, deletionTimestamp="2026-01-01T00:00:00Z"), a_pod(1)], Phase.STOPPING, 0),
    ],
)
def test_phase_and_exit_code_follow_from_the_pods(pods, phase, code):
    status = gangs.observe("train", pods, {"spec": {"minMember": 2}})
    assert (status.phase, status.exit_code) == (phase, code)


def test_the_first_failure_by_time_gives_the_exit_code_and_rank_breaks_ties():
    late, early = "2026-01-01T00:00:09Z", "2026-01-01T00:00:01Z"
    pods = [a_pod(0, "Failed", 1, ended=late), a_pod(1, "Failed", 137, ended=early), a_pod(2, "Failed", 2, ended=early)]
    assert gangs.observe("train", pods).exit_code == 137


def test_a_failed_pod_without_a_code_still_fails_and_a_deadline_reads_like_timeout():
    pod = a_pod(0, "Failed")
    assert gangs.observe_pod(pod).exit_code == 1
    pod["status"]["reason"] = "DeadlineExceeded"
    assert gangs.observe_pod(pod).exit_code == 124
    # The container ended well when it was told to; the pod has failed nevertheless.
    assert gangs.observe_pod(a_pod(0, "Failed", 0)).exit_code == 1


def test_a_pending_gang_says_why_in_the_scheduler_s_words():
    pod = a_pod(0, "Pending")
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes: insufficient GPU"}
    ]
    assert gangs.observe("train", [pod, a_pod(1, "Pending")]).waiting == "0/4 nodes: insufficient GPU"
    group = {"status": {"conditions": [{"type": "Unschedulable", "status": "True", "message": "no room"}]}}
    assert gangs.observe("train", [a_pod(0, "Pending")], group).waiting == "no room"


def test_names_are_dns_labels_and_differ():
    chance = random.Random(7)
    found = {names.readable(chance) for _ in range(200)}
    assert len(found) > 190
    assert all(re.fullmatch(r"[a-z]+-[a-z]+-\d{3}", name) for name in found)
