"""Commands: what the unmodified client submits really runs on a node, with its files, and its log comes back."""

import json
import re
import time

import pytest
from tests.det.det_client import Det
from tests.det.det_platform import DetPlatform, eventually
from tests.det.det_tasks import ENDED, Watcher, new_mark, processes

OPTIONS = ("--nodes", "2", "--fake-gpus", "2", "--set", "tasks.bind_mounts=[/usr/share]")
pytestmark = pytest.mark.usefixtures("emptied")


def test_a_command_runs_and_its_log_comes_back(det: Det, watch: Watcher):
    ran = det("cmd", "run", "echo the answer is $((6 * 7)); echo oops >&2; hostname")
    assert "the answer is 42" in ran.out
    assert "oops" in ran.out
    listed = det("cmd", "list", "--json").json[0]
    assert (listed["state"], listed["username"], listed["resourcePool"]) == ("TERMINATED", "admin", "default")
    assert "after all of its resources exited" in watch.exit_status(listed["id"])
    task = watch.task(listed["id"])
    assert task["endTime"] is not None
    assert task["taskType"] == "TASK_TYPE_COMMAND"
    assert len(task["allocations"]) == 1


def test_words_are_words_and_one_word_is_a_line_of_shell(det: Det):
    assert "a  b $HOME" in det("cmd", "run", "printf", "%s\\n", "a  b $HOME").out
    assert "x-y" in det("cmd", "run", "V=y; echo x-$V").out


def test_a_failure_is_told(det: Det, watch: Watcher):
    det("cmd", "run", "echo so far so good; exit 7")
    failed = det("cmd", "list", "--json").json
    newest = max(failed, key=lambda each: each["startTime"])
    assert newest["exitStatus"].endswith("exited with code 7")
    assert "exited with code 7" in det("cmd", "describe", newest["id"], "--json").out


def test_the_context_directory_is_there(det: Det):
    det.write("project/main.py", "print('from main', open('data/deep/x.txt').read())\n")
    det.write("project/data/deep/x.txt", "deep")
    det.write("project/secret.txt", "not sent")
    det.write("project/.detignore", "secret.txt\n")
    script = det.write("project/run.sh", "#!/bin/sh\necho executable\n")
    (det.home / script).chmod(0o755)
    det.write("extra/more.txt", "included")
    ran = det("cmd", "run", "-c", "project", "-i", "extra/more.txt",
              "python3 main.py; ./run.sh; cat more.txt; echo; ls secret.txt; pwd")  # fmt: skip
    assert "from main deep" in ran.out
    assert "executable" in ran.out
    assert "included" in ran.out
    assert "not sent" not in ran.out
    assert "No such file" in ran.out
    assert "/run/determined/workdir" in ran.out


def test_configuration_reaches_the_process(det: Det, watch: Watcher):
    det.write("tpl.yaml", "environment: {environment_variables: [FROM_TEMPLATE=t, BOTH=template]}\n")
    det("template", "set", "variables", det.write("tpl.yaml", (det.home / "tpl.yaml").read_text()))
    config = det.write(
        "c.yaml", "description: with variables\nenvironment: {environment_variables: [BOTH=file, ONE=1]}\n"
    )
    ran = det("cmd", "run", "--config-file", config, "--template", "variables", "--config", "resources.slots=1",
              "echo $FROM_TEMPLATE $BOTH $ONE; echo slots $DET_SLOT_IDS; echo type $DET_TASK_TYPE; echo gpu "
              "$CUDA_VISIBLE_DEVICES")  # fmt: skip
    assert "t file 1" in ran.out
    assert "type COMMAND" in ran.out
    assert re.search(r"slots \[\d\]", ran.out)
    newest = max(det("cmd", "list", "--json").json, key=lambda each: each["startTime"])
    assert newest["description"] == "with variables"
    shown = det("cmd", "config", newest["id"]).out
    assert "slots: 1" in shown
    assert "FROM_TEMPLATE=t" in shown


def test_directories_of_the_node_are_there_where_that_is_allowed(det: Det):
    mounted = det("cmd", "run", "-v", "/usr/share/common-licenses:/mnt/licenses", "ls /mnt/licenses")
    assert "Apache-2.0" in mounted.out
    for place in ("/etc", "/usr/share/../../etc", "/"):
        refused = det("cmd", "run", "-d", "-v", f"{place}:/mnt/x", "true", code=1)
        assert "bind_mounts" in refused.text


def test_a_policy_of_the_cluster_wins_over_the_user(det: Det):
    det("workspace", "create", "ruled")
    policy = det.write("rule.yaml", "invariant_config: {environment: {environment_variables: [RULED=yes]}}\n"
                       "constraints: {resources: {max_slots: 1}}\n")  # fmt: skip
    det("config-policies", "set", "tasks", policy, "-w", "ruled")
    ran = det("cmd", "run", "-w", "ruled", "--config", "environment.environment_variables=[RULED=no]", "echo r=$RULED")
    assert "r=yes" in ran.out
    refused = det("cmd", "run", "-w", "ruled", "--config", "resources.slots=2", "true", code=1)
    assert "max_slots" in refused.text or "slots" in refused.text


def test_the_clients_own_library_works_inside_of_a_task(det: Det):
    script = (
        "import determined as d; i = d.get_cluster_info(); print('info', i.task_type, i.task_id, len(i.slot_ids));"
        "from determined.experimental import client; print('me', client.whoami().username)"
    )
    ran = det("cmd", "run", "--config", "resources.slots=2", "python3", "-W", "ignore", "-c", script)
    assert "info COMMAND" in ran.out, ran.out
    assert "me admin" in ran.out
    assert "logged in as user 'admin'" in det("cmd", "run", "det user whoami").out


def test_a_killed_command_is_gone_from_the_node(det: Det, watch: Watcher):
    mark = new_mark()
    identity = watch.command(f"trap '' TERM; echo started; (sleep 1000; : {mark}) & while :; do sleep 1; done # {mark}")
    watch.until_logged(identity, "started")
    assert processes(mark)
    asked = time.monotonic()
    det("cmd", "kill", identity)
    watch.until_state("command", identity, ENDED)
    assert time.monotonic() - asked < 10, "it does not listen, and is not waited for long"
    assert processes(mark) == []
    assert watch.exit_status(identity) == "allocation killed after user admin asked for it"
    det("cmd", "kill", identity)  # again: nothing happens


def test_following_ends_when_the_task_ends(det: Det, watch: Watcher):
    identity = watch.command("for i in 1 2 3 4 5; do echo line $i of five; sleep 0.3; done")
    following = det.start("task", "logs", "-f", identity)
    following.until("line 1 of five")
    told = following.wait(30)
    assert told.code == 0
    assert [told.out.count(f"line {number} of five") for number in range(1, 6)] == [1] * 5
    late = det("task", "logs", "-f", identity)  # one that ended long ago ends at once
    assert late.out == told.out


def test_logs_are_filtered_and_cut(det: Det, watch: Watcher):
    identity = watch.command("seq 1 2000; echo '[rank=3] ranked'; echo 'ERROR: bad'; echo to stderr >&2")
    watch.until_ended(identity)
    lines = watch.logs(identity).splitlines()
    numbers = [int(line.rpartition(" || ")[2]) for line in lines if line.rpartition(" || ")[2].isdigit()]
    assert numbers == list(range(1, 2001))
    assert watch.logs(identity, "--head", "3").splitlines() == lines[:3]
    assert watch.logs(identity, "--tail", "3").splitlines() == lines[-3:]
    assert "ranked" in watch.logs(identity, "--rank-id", "3")
    assert "to stderr" not in watch.logs(identity, "--rank-id", "3")
    levels = "levels=LOG_LEVEL_ERROR&levels=LOG_LEVEL_CRITICAL"  # the client's own --level fails before it asks
    bad = watch.http("GET", f"tasks/{identity}/logs?{levels}").text
    assert "ERROR: bad" in bad
    assert "ranked" not in bad
    assert "to stderr" in watch.logs(identity, "--stdtype", "stderr")
    assert "bad" not in watch.logs(identity, "--stdtype", "stderr")
    assert "ranked" in det("cmd", "logs", identity[:8]).out  # by the beginning of its id
    assert json.loads(watch.logs(identity, "--tail", "1", "--json"))["taskId"] == identity


def test_what_does_not_fit_waits_for_its_turn(det: Det, watch: Watcher):
    first = watch.command("sleep 1000", "--config", "resources.slots=2")
    second = watch.command("sleep 1000", "--config", "resources.slots=2")
    for each in (first, second):
        watch.until_state("command", each, "STATE_RUNNING")
    third = watch.command("echo my turn", "--config", "resources.slots=2")
    assert "waits: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu" in watch.until_logged(third, "waits")
    assert watch.state("command", third) == "STATE_QUEUED"
    job = next(each for each in det("job", "list", "--json").json["jobs"] if each["entityId"] == third)
    assert job["summary"]["state"] == "STATE_QUEUED"
    det("cmd", "kill", first)
    watch.until_state("command", third, ENDED)
    assert "my turn" in watch.logs(third)
    det("cmd", "kill", second)


def test_priority_is_set_and_out_of_range_is_refused(det: Det, watch: Watcher):
    identity = watch.command("sleep 1000", "--config", "resources.priority=60")
    watch.until_state("command", identity, "STATE_RUNNING")
    det("cmd", "set", "priority", identity, "30")
    job = next(each for each in det("job", "list", "--json").json["jobs"] if each["entityId"] == identity)
    assert job["priority"] == 30
    assert "priority: must be" in det("cmd", "set", "priority", identity, "500").text
    det("cmd", "kill", identity)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ("resources.slots=-1", "slots"),
        ("resources.slots=many", "slots"),
        ("resources.slots=1000", "must be on one node, and the largest"),
        ("resources.resource_pool=no-such-pool", "no-such-pool"),
        ("nonsense.key=1", "nonsense"),
        ("resources.priority=1000", "priority"),
        ("resources.weight=2", "use resources.priority"),
    ],
)
def test_bad_configuration_is_refused_by_name(det: Det, config: str, word: str):
    refused = det("cmd", "run", "-d", "--config", config, "true", code=1)
    assert word in refused.text
    assert "Traceback" not in refused.text


def test_a_command_without_anything_to_run_is_refused(det: Det):
    assert "entrypoint" in det("cmd", "run", "-d", code=1).text


def test_others_see_and_end_only_what_they_may(det: Det, platform: DetPlatform, watch: Watcher):
    det("workspace", "create", "private")
    otto = platform.new_user("otto")
    mark = new_mark()
    identity = watch.command(f"echo a secret; while :; do sleep 1; done # {mark}", "-w", "private")
    watch.until_logged(identity, "a secret")
    assert identity not in otto("cmd", "list", "--all").out
    for words in (
        ("cmd", "describe", identity),
        ("cmd", "config", identity),
        ("cmd", "kill", identity),
        ("cmd", "logs", identity),
        ("task", "logs", identity),
    ):
        refused = otto(*words, code=1)
        assert "a secret" not in refused.text
    hidden = platform.http("POST", f"/api/v1/commands/{identity}/set_priority", token=platform.token(otto), body={})
    assert hidden.status == 404
    refused = otto("cmd", "run", "-d", "-w", "private", "true", code=1)
    assert "not found" in refused.text.lower() or "may not" in refused.text
    assert processes(mark)
    det("rbac", "assign-role", "Viewer", "--username-to-assign", "otto", "--workspace-name", "private")
    assert "a secret" in otto("task", "logs", identity).out
    assert "may not" in otto("cmd", "kill", identity, code=1).text
    assert processes(mark)
    det("cmd", "kill", identity)
    eventually(lambda: not processes(mark))
    own = otto("cmd", "run", "echo I am $DET_USER").out
    assert "I am otto" in own


def test_many_at_once(det: Det, watch: Watcher):
    """More than the nodes have CPUs for zero-slot tasks at once would still end, one after the other."""
    identities = [watch.command(f"echo number {number}") for number in range(12)]
    for number, identity in enumerate(identities):
        watch.until_ended(identity, 60)
        assert f"number {number}" in watch.logs(identity)
    assert set(identities) <= set(det("cmd", "list", "-q").lines)
