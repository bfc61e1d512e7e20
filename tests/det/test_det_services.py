"""Notebooks, shells and TensorBoards: real JupyterLab, sshd and TensorBoard, reached through the server."""

import base64
import os
import shlex
import subprocess
import uuid

import pytest
from tests.det.det_client import PYTHON, Det
from tests.det.det_platform import Answer, DetPlatform, eventually
from tests.det.det_tasks import ENDED, Watcher, processes_of_task

OPTIONS = ("--nodes", "2", "--fake-gpus", "2")


@pytest.fixture(scope="module")
def notebook(det: Det, watch: Watcher) -> str:
    det.write("nb/hello.txt", "hello from the context")
    identity = watch.start("notebook", "-c", "nb", "--config", "description=my notebook")
    watch.until_ready(identity)
    return identity


@pytest.fixture(scope="module")
def shell(watch: Watcher, det: Det) -> str:
    det.write("sh/file.txt", "in the shell")
    identity = watch.start("shell", "-c", "sh", "--config", "resources.slots=1")
    watch.until_ready(identity)
    return identity


def address(watch: Watcher, kind: str, identity: str) -> str:
    found: str = watch.get(f"{kind}s/{identity}")[kind]["serviceAddress"]
    return found


def token_of(service: str) -> str:
    return service.partition("token=")[2]


def test_a_notebook_answers_through_the_proxy(notebook: str, watch: Watcher, platform: DetPlatform):
    service = address(watch, "notebook", notebook)
    assert service.startswith(f"/proxy/{notebook}/?token=")
    page = platform.http("GET", f"/proxy/{notebook}/lab", token=watch.token)
    assert page.status == 200
    assert "JupyterLab" in page.text
    listed = platform.http("GET", f"/proxy/{notebook}/api/contents?token={token_of(service)}", token=watch.token)
    assert "hello.txt" in [each["name"] for each in listed.json["content"]]
    content = platform.http(
        "GET", f"/proxy/{notebook}/api/contents/hello.txt", headers={"Authorization": f"token {token_of(service)}"}
    )
    assert content.status == 200, content.text
    assert content.json["content"] == "hello from the context"


def test_a_kernel_runs_a_cell_through_the_web_socket(notebook: str, watch: Watcher, platform: DetPlatform):
    token = token_of(address(watch, "notebook", notebook))
    script = f"""
import json, uuid, urllib.request, websocket
base = "{platform.master}/proxy/{notebook}"
headers = {{"Authorization": "token {token}", "Content-Type": "application/json"}}
request = urllib.request.Request(base + "/api/kernels", b'{{"name": "python3"}}', headers, method="POST")
kernel = json.load(urllib.request.urlopen(request))["id"]
ws = websocket.create_connection(base.replace("http", "ws") + f"/api/kernels/{{kernel}}/channels",
                                 header=["Authorization: token {token}"], timeout=40)
message = uuid.uuid4().hex
ws.send(json.dumps({{"channel": "shell", "parent_header": {{}}, "metadata": {{}}, "buffers": [],
    "header": {{"msg_id": message, "msg_type": "execute_request", "username": "", "session": "s", "version": "5.3"}},
    "content": {{"code": "print('cell', 6 * 7)", "silent": False, "store_history": False, "user_expressions": {{}},
                 "allow_stdin": False}}}}))
while True:
    answer = json.loads(ws.recv())
    if answer["msg_type"] == "stream":
        print(answer["content"]["text"], end="")
    is_own = answer["parent_header"].get("msg_id") == message
    if is_own and answer["msg_type"] == "status" and answer["content"]["execution_state"] == "idle":
        break
ws.close()
"""
    assert watch.det.python(script).splitlines() == ["cell 42"]


def test_a_notebook_is_listed_opened_and_reprioritised(notebook: str, det: Det, watch: Watcher):
    row = next(row for row in det("notebook", "list").rows if row["id"] == notebook)
    assert row["state"] == "RUNNING"
    assert "description: my notebook" in det("notebook", "config", notebook).out
    assert notebook in det("notebook", "open", notebook).out  # the browser of these tests prints the address
    det("notebook", "set", "priority", notebook, "33")
    job = next(each for each in det("job", "list", "--json").json["jobs"] if each["entityId"] == notebook)
    assert job["priority"] == 33
    assert "is running" in det("notebook", "logs", notebook).out
    preview = det("notebook", "start", "--preview", "--config", "resources.slots=2").out
    assert "slots: 2" in preview
    assert len(det("notebook", "list").rows) == 1


def test_a_notebook_is_closed_to_strangers(notebook: str, platform: DetPlatform, watch: Watcher, det: Det):
    assert platform.http("GET", f"/proxy/{notebook}/api/contents").status in {302, 303, 401, 403}
    assert platform.http("GET", f"/proxy/{notebook}/api/contents?token=wrong").status in {302, 303, 401, 403}
    det("workspace", "create", "elsewhere")
    stranger = platform.new_user("stranger")
    det("rbac", "unassign-role", "Editor", "--username-to-assign", "stranger", "--workspace-name", "Uncategorized")
    answer = platform.http("GET", f"/proxy/{notebook}/lab", token=platform.token(stranger))
    assert answer.status in {401, 403, 404}
    assert "hello" not in answer.text
    shown = platform.http("GET", f"/api/v1/notebooks/{notebook}", token=platform.token(stranger))
    assert "token=" not in shown.text
    for port in (22, 80, platform.port, 1, 65535):
        closed = platform.http("GET", f"/proxy/{notebook}:{port}/", token=watch.token)
        assert closed.status == 404, (port, closed.text)


def test_starting_a_notebook_waits_until_it_can_be_used(det: Det, watch: Watcher, platform: DetPlatform):
    started = det("notebook", "start", "--no-browser", timeout=90)
    assert "Jupyter Notebook is running at" in started.out
    url = next(line for line in started.lines if "Connect to remote" in line)
    path = url[url.index("/proxy/") :]
    identity = path.split("/")[2]
    assert platform.http("GET", path.replace("/?", "/lab?"), token=watch.token).status == 200
    assert processes_of_task(identity)
    det("notebook", "kill", identity)
    watch.until_state("notebook", identity, ENDED)
    assert processes_of_task(identity) == []
    assert platform.http("GET", path, token=watch.token).status in {404, 502, 503}


def test_ssh_runs_a_command_in_a_shell(shell: str, det: Det):
    opened = det("shell", "open", shell, "cat file.txt; echo; echo task $DET_TASK_ID slots $DET_SLOT_IDS", timeout=90)
    assert "in the shell" in opened.out
    assert f"task {shell} slots [" in opened.out
    assert "To reconnect, run: det shell open" in opened.out


def test_starting_a_shell_opens_it(det: Det, watch: Watcher):
    started = det("shell", "start", "echo inside $((20 + 22)); exit 0", timeout=90)
    assert "inside 42" in started.out
    identity = next(word for word in started.out.split() if _is_uuid(word))
    assert processes_of_task(identity)
    det("shell", "kill", identity)
    watch.until_state("shell", identity, ENDED)
    assert processes_of_task(identity) == []


def test_the_ssh_command_that_is_shown_works(shell: str, det: Det):
    shown = det("shell", "show-ssh-command", shell).out
    command = shlex.split(next(line for line in shown.splitlines() if "ProxyCommand" in line))
    done = subprocess.run(
        [*command, "seq 1 20000 | md5sum"], env=det.environment, capture_output=True, text=True, timeout=60, check=False
    )
    expected = subprocess.run("seq 1 20000 | md5sum", shell=True, capture_output=True, text=True, check=True).stdout
    assert expected.split()[0] in done.stdout, done.stderr


def test_a_shell_wants_its_key(shell: str, det: Det, platform: DetPlatform, watch: Watcher):
    key = det.home / "other-key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    proxy = f"{PYTHON} -m determined.cli.tunnel {platform.master} %h"
    done = subprocess.run(
        ["ssh", "-o", f"ProxyCommand={proxy}", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes",
         "-o", "IdentitiesOnly=yes", "-i", str(key), f"root@{shell}", "echo got in"],
        env=det.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 255
    assert "got in" not in done.stdout
    assert "Permission denied" in done.stderr
    ines = platform.new_user("ines")
    shown = platform.http("GET", f"/api/v1/shells/{shell}", token=platform.token(ines))
    assert "PRIVATE KEY" not in shown.text
    assert "PRIVATE KEY" in watch.http("GET", f"shells/{shell}").text


def test_a_shell_is_listed(shell: str, det: Det):
    assert shell in det("shell", "list", "-q").lines
    assert "slots: 1" in det("shell", "config", shell).out
    assert "Server listening" in det("shell", "logs", shell).out
    det("shell", "set", "priority", shell, "20")


def test_tensorboard_answers(det: Det, watch: Watcher, platform: DetPlatform):
    """Without experiments, which a later issue brings, it shows what is in its context directory."""
    det.python(
        "from tensorboard.summary.writer.event_file_writer import EventFileWriter as W\n"
        "from tensorboard.compat.proto.event_pb2 import Event\n"
        "from tensorboard.compat.proto.summary_pb2 import Summary\n"
        "w = W('events')\n"
        "value = Summary.Value(tag='loss', simple_value=.5)\n"
        "w.add_event(Event(step=1, wall_time=1.0, summary=Summary(value=[value])))\n"
        "w.close()\n"
    )
    (events,) = (det.home / "events").iterdir()
    file = {
        "path": f"run/{events.name}", "type": 48, "content": base64.b64encode(events.read_bytes()).decode(),
        "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0,
    }  # fmt: skip
    answer = watch.http("POST", "tensorboards", {"files": [file], "config": {}})
    assert answer.status == 200, answer.text
    identity = answer.json["tensorboard"]["id"]
    watch.until_ready(identity)

    def tags() -> Answer | None:
        found = platform.http("GET", f"/proxy/{identity}/data/plugin/scalars/tags", token=watch.token)
        return found if found.status == 200 and "loss" in found.text else None

    assert eventually(tags, seconds=40).json["run"].keys() == {"loss"}
    assert "TensorBoard" in platform.http("GET", f"/proxy/{identity}/", token=watch.token).text
    assert identity in det("tensorboard", "list", "-q").lines
    assert det("tensorboard", "config", identity).code == 0
    det("tensorboard", "kill", identity)
    watch.until_state("tensorboard", identity, ENDED)
    assert processes_of_task(identity) == []


def test_tensorboard_of_an_experiment_that_is_not_there_is_refused(det: Det):
    refused = det("tensorboard", "start", "4711", code=1)
    assert "experiment 4711 not found" in refused.text.lower()
    assert det("tensorboard", "list", "-q", "--all").out.count("4711") == 0


def test_declared_ports_of_a_command_are_reached_and_no_others(det: Det, watch: Watcher, platform: DetPlatform):
    port = 13_000 + os.getpid() % 10_000
    config = f"environment: {{proxy_ports: [{{proxy_port: {port}}}]}}\n"
    det.write("web/index.html", "<p>a page of mine</p>")
    # As with notebooks, the service sees the path under which it is reached.
    identity = watch.command(
        f'mkdir proxy && ln -s .. "proxy/$DET_TASK_ID:{port}" && python3 -m http.server --bind $DET_POD_IP {port}',
        *("--config-file", det.write("web.yaml", config), "-c", "web"),
    )
    path = f"/proxy/{identity}:{port}/index.html"
    answer = eventually(lambda: _page(platform, path, watch.token), seconds=30)
    assert answer.text == "<p>a page of mine</p>"
    assert platform.http("GET", path).status in {302, 303, 401, 403}
    assert platform.http("GET", f"/proxy/{identity}:{port + 1}/", token=watch.token).status == 404
    assert platform.http("GET", f"/proxy/{identity}/", token=watch.token).status == 404
    det("cmd", "kill", identity)


def _page(platform: DetPlatform, path: str, token: str) -> Answer | None:
    answer = platform.http("GET", path, token=token)
    return answer if answer.status == 200 else None


def test_a_notebook_that_nobody_uses_ends_by_itself(watch: Watcher, det: Det):
    identity = watch.start("notebook", "--config", "idle_timeout=5s", "--config", "notebook_idle_type=activity")
    watch.until_ready(identity)
    watch.until_state("notebook", identity, ENDED, seconds=30)
    assert "idle" in watch.logs(identity).lower()


def _is_uuid(word: str) -> bool:
    try:
        uuid.UUID(word)
    except ValueError:
        return False
    return True
