"""`muster install` before it asks any cluster."""

from muster.api import raw
from muster.cli import main


def run(capsys, *arguments):
    code = main.invoke(["install", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_manifests_are_printed_with_the_values_of_file_and_flags(capsys, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text("image: {repository: from-file, tag: '1'}\nreplicas: 3\n")
    code, out, _ = run(capsys, "--print", "-n", "elsewhere", "-f", str(file), "--set", "image.tag=2")
    parts = out.split("---\n")
    assert (code, parts[0].splitlines()[1]) == (0, "kind: CustomResourceDefinition")  # large, and slow to read
    others = "---\n".join(part for part in parts if "kind: CustomResourceDefinition" not in part)
    documents = {(each["kind"], each["metadata"]["name"]): each for each in raw.decode_yaml(others)}
    spec = documents["Deployment", "muster-controller"]["spec"]
    assert (spec["replicas"], spec["template"]["spec"]["containers"][0]["image"]) == (3, "from-file:2")
    assert documents["Deployment", "muster-controller"]["metadata"]["namespace"] == "elsewhere"
    assert ("Namespace", "elsewhere") in documents


def test_a_configuration_with_which_controllers_would_not_start_is_refused(capsys):
    plugins = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{plugin: {}}]}"
    code, out, err = run(capsys, "--print", "--set", f"scheduler={plugins}")
    assert (code, out) == (2, "")
    assert 'KubeSchedulerConfiguration "value scheduler" is invalid' in err
    assert "profiles[0].plugin" in err


def test_settings_with_which_the_server_would_not_start_are_refused(capsys):
    code, out, err = run(capsys, "--print", "--set", "server.settings.tasks.cpus=4")
    assert (code, out) == (2, "")
    assert "value server.settings" in err
    assert "tasks.cpus" in err


def test_a_kubeconfig_that_is_not_there_is_named(capsys, tmp_path):
    code, _, err = run(capsys, "--kubeconfig", str(tmp_path / "nowhere"))
    assert code == 2
    assert f"there is no kubeconfig at {tmp_path / 'nowhere'}" in err
