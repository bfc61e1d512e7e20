"""`muster apply`, `get`, `describe` and `delete` against a real platform."""

import json
from collections.abc import Iterator

import pytest
import yaml
from tests.e2e.cli_platform import ROOT, Platform, platform

CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: '1'}\n"


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform() as found:
        yield found


def test_apply_creates_then_changes_then_leaves_alone(up):
    said = [up.muster("apply", "-f", "-", stdin=text).stdout for text in (CONFIG, CONFIG, CONFIG.replace("'1'", "'2'"))]
    assert said == ["configmap/settings created\n", "configmap/settings unchanged\n", "configmap/settings configured\n"]
    assert up.client.get("configmaps", "settings")["data"] == {"a": "2"}


def test_apply_goes_on_after_a_mistake_and_names_where_it_was(up, tmp_path):
    (tmp_path / "1.yaml").write_text("kind: Pod\n---\n" + CONFIG.replace("settings", "later"))
    (tmp_path / "2.json").write_text('{"apiVersion": "v1", "kind": "Gadget", "metadata": {"name": "x"}}')
    (tmp_path / "ignored.txt").write_text("{{{")
    done = up.muster("apply", "-f", str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == "configmap/later created\n"
    assert "1.yaml, document 1: apiVersion and kind are required" in done.stderr
    assert "2.json, document 1: the server has no kind 'Gadget'" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"), [("a: [1,", "not valid YAML"), ("", "nothing to apply"), ("- 1", "JSON object")]
)
def test_what_is_not_a_document_is_refused(up, text, said):
    done = up.muster("apply", "-f", "-", stdin=text)
    assert done.returncode == 2
    assert said in done.stderr


def test_every_field_error_has_its_own_line(up):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bad"},
        "spec": {"containers": [{"name": "A B"}, {"name": ""}]},
    }
    done = up.muster("apply", "-f", "-", stdin=json.dumps(pod))
    assert done.returncode == 2
    listed = [line for line in done.stderr.splitlines() if line.startswith("  spec.containers[")]
    assert len(listed) >= 2


def test_the_examples_apply_run_and_go(up):
    for name, job in (("pod.yaml", "hello"), ("gang.yaml", "pair")):
        assert up.muster("apply", "-f", str(ROOT / "examples" / name)).returncode == 0
        done = up.muster("logs", "-f", job)
        assert done.returncode == 0, done.stderr
        assert "hello from" in done.stdout or "is one of a pair" in done.stdout
        done = up.muster("delete", "-f", str(ROOT / "examples" / name))
        assert done.returncode == 0, done.stderr
    assert "pair" not in up.muster("ps", "-o", "name").stdout


def test_get_in_all_its_forms(up):
    up.muster("apply", "-f", "-", stdin=CONFIG.replace("settings", "shown"))
    table = up.muster("get", "configmaps", "shown").stdout.splitlines()
    assert table[0].split()[0] == "NAME"
    assert table[1].split()[0] == "shown"
    assert up.muster("get", "cm/shown", "-o", "name").stdout == "configmap/shown\n"
    assert json.loads(up.muster("get", "cm", "shown", "-o", "json").stdout)["data"] == {"a": "1"}
    assert yaml.safe_load(up.muster("get", "cm", "-o", "yaml").stdout)["kind"] == "List"
    assert up.muster("get", "cm", "-A").stdout.split()[:2] == ["NAMESPACE", "NAME"]
    assert "shown" not in up.muster("get", "cm", "-l", "no=such").stdout
    assert up.muster("get", "cm", "--field-selector", "metadata.name=shown", "-o", "name").stdout == "configmap/shown\n"
    mixed = up.muster("get", "cm/shown", "namespace/default").stdout
    assert "configmap/shown" in mixed
    assert "namespace/default" in mixed


def test_get_of_what_is_not_there(up):
    done = up.muster("get", "pods", "-n", "nowhere")
    assert (done.returncode, done.stdout) == (0, "")
    assert "No pods found in namespace nowhere." in done.stderr
    done = up.muster("get", "pod", "nope")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "nope" in done.stderr


def test_watch_prints_changes_as_they_come(up):
    process = up.start("get", "configmaps", "-w", "--field-selector", "metadata.name=watched")
    try:
        up.muster("apply", "-f", "-", stdin=CONFIG.replace("settings", "watched"))
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["NAME", "DATA", "AGE"]
        assert process.stdout.readline().startswith("watched ")
    finally:
        process.kill()
        process.communicate()


def test_delete_by_label_waits_and_reports(up):
    for name in ("one", "two"):
        text = CONFIG.replace("{name: settings}", f"{{name: {name}, labels: {{group: both}}}}")
        up.muster("apply", "-f", "-", stdin=text)
    done = up.muster("delete", "configmaps", "-l", "group=both")
    assert sorted(done.stdout.splitlines()) == ["configmap/one deleted", "configmap/two deleted"]
    assert up.muster("delete", "cm", "one").returncode == 2
    assert up.muster("delete", "cm", "one", "--ignore-not-found").returncode == 0


def test_version_names_both_sides(up):
    assert json.loads(up.muster("version", "-o", "json").stdout)["server"]


@pytest.mark.embedded("a cluster's users come from its kubeconfig")
def test_a_wrong_token_says_what_to_set(up):
    done = up.muster("--server", up.client.connection.server, "--token", "wrong", "get", "pods")
    assert done.returncode == 2
    assert "MUSTER_TOKEN" in done.stderr


def test_a_port_that_is_taken_is_explained(up, tmp_path):
    port = up.client.connection.server.partition("//")[2].partition(":")[2].partition("/")[0]
    done = up.muster("up", "--port", port, "--data", str(tmp_path))
    assert done.returncode == 2
    assert "is in use" in done.stderr
