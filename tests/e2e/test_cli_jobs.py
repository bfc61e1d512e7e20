"""`muster run` and its companions against a real platform with two nodes."""

import json
import signal
import time
from collections.abc import Iterator

import pytest
from tests.e2e.cli_platform import Platform, platform

from muster.api import errors
from muster.sdk import gangs, jobs, resources
from muster.sdk.resources import Selection


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform("--nodes", "2", "--fake-gpus", "2") as found:
        yield found


def test_output_and_exit_code_of_a_command_pass_through(up):
    done = up.muster("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done.returncode == 7
    assert sorted(done.stdout.split()) == ["err", "out"]
    assert "failed after" in done.stderr
    assert "exit code 7" in done.stderr


def test_the_code_of_a_killed_process_is_137(up):
    assert up.muster("run", "--", "sh", "-c", "kill -KILL $$").returncode == 137


def test_a_command_that_does_not_exist_fails_and_says_so(up):
    done = up.muster("run", "--", "no-such-program")
    assert done.returncode not in (0, 2)
    assert "no-such-program" in done.stderr + done.stdout


def test_the_job_runs_here_with_this_path_and_dollars_stay(up, tmp_path):
    done = up.muster(
        "run",
        "--workdir",
        str(tmp_path),
        "-e",
        "GREETING=a$(RANK)b",
        "--",
        "sh",
        "-c",
        'pwd; echo "$GREETING" $(echo hi)',
    )
    assert done.stdout.splitlines() == [str(tmp_path), "a$(RANK)b hi"]


def test_a_gang_has_ranks_prefixes_and_whole_lines(up):
    script = 'for i in 1 2 3; do printf "a%s" $RANK; sleep 0.02; echo " of $WORLD_SIZE at $MASTER_ADDR"; done'
    done = up.muster("run", "--replicas", "3", "--", "sh", "-c", script)
    assert done.returncode == 0
    expected = sorted(f"[{rank}] a{rank} of 3 at 127.0.0.1" for rank in range(3) for _ in range(3))
    assert sorted(done.stdout.splitlines()) == expected
    assert "3 ranks on " in done.stderr


@pytest.mark.embedded("agents that share one machine each count their pretended GPUs from 0")
def test_gpus_are_shared_out_and_none_is_given_twice(up):
    done = up.muster("run", "--replicas", "2", "--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 0.2")
    assert done.returncode == 0, done.stderr
    given = [device for line in done.stdout.splitlines() for device in line.partition("] ")[2].split(",")]
    assert len(given) == len(set(given)) == 4


def test_many_lines_arrive_complete_and_in_order(up):
    done = up.muster("run", "--", "sh", "-c", "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done")
    assert done.stdout.splitlines() == [f"line {number}" for number in range(5000)]


def test_one_failed_rank_ends_the_gang_with_its_code(up):
    started = time.monotonic()
    done = up.muster("run", "--replicas", "2", "--", "sh", "-c", "[ $RANK = 1 ] && exit 5; sleep 100")
    assert done.returncode == 5
    assert time.monotonic() - started < 30
    assert "rank 1 failed" in done.stderr


def test_timeout_ends_the_job(up):
    done = up.muster("run", "--timeout", "1s", "--", "sleep", "100")
    assert done.returncode not in (0, 2)
    assert "DeadlineExceeded" in done.stderr


def test_a_job_that_waits_says_why_and_can_be_stopped(up):
    up.muster("run", "--detach", "--name", "holder", "--replicas", "2", "--gpus", "2", "--", "sleep", "100")
    process = up.start("run", "--name", "waiter", "--gpus", "1", "--", "true")
    assert process.stderr is not None
    assert "waiter waits: " in process.stderr.readline()
    listed = {job["name"]: job for job in json.loads(up.muster("ps", "-o", "json").stdout)}
    assert listed["waiter"]["state"] == "Pending"
    assert "gpu" in listed["waiter"]["why"].lower()
    assert up.muster("stop", "holder", "--grace-period", "1").returncode == 0
    assert process.wait(30) == 0
    process.communicate()


def test_an_interrupt_without_a_terminal_stops_the_job(up):
    process = up.start("run", "--name", "interrupted", "--", "sh", "-c", "echo started; exec sleep 100")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped" in said
    with pytest.raises(errors.NotFound):
        jobs.status(up.client, "interrupted")


def test_a_polite_kill_stops_the_job_too(up):
    process = up.start("run", "--name", "killed", "--", "sh", "-c", "echo started; exec sleep 100")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert "killed" not in up.muster("ps", "-o", "name").stdout.split()


def test_a_second_kill_while_it_stops_leaves_at_once_and_quietly(up):
    stubborn = "trap '' TERM; echo started; while :; do sleep 1; done"
    process = up.start("run", "--name", "stubborn", "--", "sh", "-c", stubborn)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.terminate()
    while "stopping" not in (line := process.stderr.readline()):
        assert line, "it left without a word"
    process.terminate()
    _, said = process.communicate(timeout=10)
    assert process.returncode == 143
    assert "error" not in said
    assert "Traceback" not in said
    up.client.delete(resources.PODS, "stubborn-0", grace_seconds=0)


def test_detach_ps_logs_describe_stop(up):
    done = up.muster("run", "-d", "--name", "kept", "--replicas", "2", "--", "sh", "-c", "echo hello $RANK")
    assert (done.returncode, done.stdout) == (0, "kept\n")
    followed = up.muster("logs", "-f", "kept")
    assert sorted(followed.stdout.splitlines()) == ["[0] hello 0", "[1] hello 1"]
    up.client.wait(resources.PODS, "kept-0", lambda pod: gangs.observe_pod(pod or {}).is_finished)
    assert up.muster("logs", "kept-1").stdout == "hello 1\n"
    assert up.muster("logs", "kept-1", "--timestamps").stdout.endswith(" hello 1\n")
    assert up.muster("logs", "pod/kept-0", "--tail", "0").stdout == ""
    described = up.muster("describe", "pod/kept-0").stdout
    assert "Owned by:     PodGroup/kept" in described
    assert "Exit code:    0" in described
    assert "kept" in up.muster("ps", "-o", "name").stdout.split()
    assert up.muster("stop", "kept").stdout == "kept stopped\n"
    assert not up.client.list(resources.PODS, Selection("default", labels="muster.dev/job=kept"))
    assert up.muster("stop", "kept").returncode == 2


def test_rm_leaves_nothing(up):
    assert up.muster("run", "--rm", "--name", "brief", "--", "true").returncode == 0
    assert "brief" not in up.muster("ps", "-o", "name").stdout.split()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--name", "Bad_Name", "--replicas", "0"], ["  name: ", "  replicas: "]),
        (["--cpu", "much"], ["cpu", "much"]),
        pytest.param(
            ["--gpus", "999"],
            ["nvidia.com/gpu"],
            marks=pytest.mark.embedded("a cluster may get nodes because a pod waits for them"),
        ),
        (["--env", "NOT_SET_HERE"], ["NOT_SET_HERE"]),
        (["--timeout", "soon"], ["soon"]),
    ],
)
def test_a_mistake_exits_with_2_names_the_field_and_leaves_nothing(up, line, said):
    before = up.muster("ps", "-o", "name").stdout
    done = up.muster("run", *line, "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    for words in said:
        assert words in done.stderr
    assert up.muster("ps", "-o", "name").stdout == before


def test_a_name_that_is_taken_is_refused(up):
    up.muster("run", "--name", "taken", "--", "true")
    done = up.muster("run", "--name", "taken", "--", "true")
    assert done.returncode == 2
    assert "already exists" in done.stderr


def test_a_job_deleted_by_somebody_else_ends_with_143(up):
    process = up.start("run", "--name", "victim", "--", "sh", "-c", "echo started; exec sleep 100")
    assert process.stdout is not None
    process.stdout.readline()
    up.client.delete(resources.POD_GROUPS, "victim", grace_seconds=1)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_nodes_show_their_gpus(up):
    shown = up.muster("nodes").stdout.splitlines()
    assert shown[0].split() == ["NODE", "STATE", "CPU", "MEMORY", "GPUS", "PODS", "AGE"]
    assert len(shown) == 3
    assert all("Ready" in line and "0/2" in line for line in shown[1:])


def test_run_from_python(up):
    result = jobs.run(["sh", "-c", "echo $RANK"], replicas=2, client=up.client, on_line=lambda rank, text: None)
    assert result.exit_code == 0
    assert sorted(result.lines) == [(0, "0"), (1, "1")]
