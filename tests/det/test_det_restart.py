"""The server is killed without a warning while tasks run. Nothing ends, nothing is doubled, nothing is lost."""

import contextlib
import re
import threading
import time

import psutil
import urllib3
from tests.det.det_client import Det
from tests.det.det_platform import DetPlatform, eventually
from tests.det.det_tasks import ENDED, Watcher, new_mark, processes, processes_of_task

OPTIONS = ("--nodes", "2", "--fake-gpus", "1")


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"count (\d+)\b", text)]


def tasks_of(watch: Watcher) -> set[str]:
    return {each["taskId"] for each in watch.get("tasks")["allocationIdToSummary"].values()}


def identities(found: list[psutil.Process]) -> set[tuple[int, float]]:
    """A process id may be used again; together with when it began it is one process for ever."""
    kept = set()
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            kept.add((process.pid, process.create_time()))
    return kept


def program(task: str) -> list[psutil.Process]:
    """What is around it, and what that has started; not what comes and goes below."""
    found = [process for process in processes_of_task(task) if process.is_running()]
    parents = {process.pid: process.info["ppid"] for process in found}
    around = {pid for pid, parent in parents.items() if parent not in parents}
    return [process for process in found if process.pid in around or parents[process.pid] in around]


def test_tasks_outlive_the_server(det: Det, platform: DetPlatform, watch: Watcher):
    marks = {"counting": new_mark(), "ending": new_mark()}
    end = platform.directory / "end"
    counting = watch.command(
        f"i=0; while [ ! -e {end} ]; do i=$((i+1)); echo count $i; sleep 0.1; done; exit 5 # {marks['counting']}",
        "--config", "resources.slots=1",
    )  # fmt: skip
    notebook = watch.start("notebook", "--config", "resources.slots=0")
    shell = watch.start("shell", "--config", "resources.slots=1")
    waiting = watch.command("echo my turn", "--config", "resources.slots=1")
    short = watch.command(f"sleep 3; echo ended meanwhile; exit 3 # {marks['ending']}", "--config", "resources.slots=0")
    for identity in (notebook, shell):
        watch.until_ready(identity)
    watch.until_logged(counting, "count 3")

    def running() -> list[set[tuple[int, float]]]:
        return [identities(processes(marks["counting"])), *(identities(program(each)) for each in (notebook, shell))]

    before = running()
    assert all(before)
    known = tasks_of(watch)
    assert {counting, notebook, shell, waiting} <= known

    platform.kill()
    # The program ends; what is around it waits for somebody to take its last lines.
    eventually(lambda: not [each for each in processes(marks["ending"]) if each.name() == "sh"])
    time.sleep(1)
    assert running() == before
    platform.start()

    again = Watcher(platform, det, watch.token)  # sessions outlive it too
    assert again.get("me")["user"]["username"] == "admin"
    for kind, identity in (("command", counting), ("notebook", notebook), ("shell", shell)):
        again.until_state(kind, identity, "STATE_RUNNING")
    assert running() == before
    assert tasks_of(again) >= {counting, notebook, shell, waiting}
    assert tasks_of(again) <= known
    again.until_state("command", short, ENDED)
    assert again.exit_status(short).endswith("exited with code 3")
    assert again.logs(short).count("ended meanwhile") == 1

    seen = max(numbers(again.logs(counting)))
    eventually(lambda: max(numbers(again.logs(counting))) > seen + 5)
    page = platform.http("GET", f"/proxy/{notebook}/lab", token=again.token)
    assert page.status == 200
    assert "JupyterLab" in page.text
    assert "still here" in det("shell", "open", shell, "echo still here", timeout=60).out

    following = det.start("task", "logs", "-f", counting)
    following.until(f"count {seen}")
    end.touch()
    told = following.wait(30)
    counted = numbers(told.out)
    assert counted == list(range(1, len(counted) + 1))
    again.until_state("command", counting, ENDED)
    assert again.exit_status(counting).endswith("exited with code 5")
    det("notebook", "kill", notebook)
    det("shell", "kill", shell)
    again.until_state("notebook", notebook, ENDED)
    again.until_state("shell", shell, ENDED)
    assert running() == [set(), set(), set()]
    again.until_state("command", waiting, ENDED)
    assert again.logs(waiting).count("my turn") == 1
    eventually(lambda: tasks_of(again) == set())
    free = {slot["task_name"] for slot in det("slot", "list", "--json").json}
    assert free == {"FREE"}


def test_what_was_asked_for_just_before_the_crash_is_done_once(platform: DetPlatform, watch: Watcher):
    """Acknowledged is durable: each such submit is run exactly once, each such kill kills. What was not acknowledged
    may have been taken or not, but is not run twice either."""
    where = platform.directory / "ran"
    where.mkdir()
    killed = watch.command("while :; do sleep 1; done")
    watch.until_state("command", killed, "STATE_RUNNING")
    asked: dict[int, str] = {}

    def submit() -> None:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            for number in range(1000):
                script = f"echo x >> {where}/{number}"
                config = {"entrypoint": ["sh", "-c", script], "resources": {"slots": 0}}
                answer = watch.http("POST", "commands", {"config": config})
                assert answer.status == 200, answer.text
                asked[number] = answer.json["command"]["id"]

    submitting = threading.Thread(target=submit)
    submitting.start()
    eventually(lambda: len(asked) >= 8, every=0.01)
    assert watch.http("POST", f"commands/{killed}/kill").status == 200
    platform.kill()
    submitting.join(30)
    platform.start()
    for identity in (*asked.values(), killed):
        watch.until_ended(identity, 60)
    eventually(lambda: tasks_of(watch) == set(), seconds=60)
    ran = {int(file.name): file.read_text() for file in where.iterdir()}
    assert set(ran.values()) == {"x\n"}
    assert set(asked) <= set(ran) <= set(range(len(asked) + 1))
    listed = {command["id"] for command in watch.get("commands")["commands"]}
    assert set(asked.values()) <= listed


def test_no_process_is_left_behind(platform: DetPlatform):
    """What is around a task ends with it: no shipper of logs, no idle watch, no tunnel."""

    def left() -> list[str]:
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            environ = process.info["environ"] or {}
            if "DET_ALLOCATION_ID" in environ and str(platform.directory) in str(environ):
                found.append(" ".join(process.info["cmdline"]))
        return found

    eventually(lambda: left() == [])
