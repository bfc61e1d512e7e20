"""What `muster` itself promises: it answers at once, knows its commands, and its errors are one line."""

import importlib
import subprocess
import sys

import click
import pytest

from muster.api import errors
from muster.cli import main, reporting

SLOW = ("rich", "numpy", "asyncio", "urllib3", "msgspec", "yaml", "muster.api", "muster.sdk", "importlib.metadata")


def test_help_imports_nothing_slow():
    program = (
        "import sys\n"
        "from muster.cli import main\n"
        "code = main.invoke(['--help'])\n"
        f"slow = [name for name in {SLOW!r} if name in sys.modules]\n"
        "print('SLOW', slow, code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "SLOW [] 0"


ALL = [name for section in main.COMMANDS.values() for name in section]


@pytest.mark.parametrize("name", ALL)
def test_every_command_teaches_by_example_and_its_first_line_is_the_one_in_the_list(name):
    command = importlib.import_module(f"muster.cli.{name}").command
    assert isinstance(command, click.Command)
    listed = next(section[name] for section in main.COMMANDS.values() if name in section)
    assert (command.help or "").splitlines()[0] == listed
    assert "Example" in (command.help or "")
    assert f"muster {name}" in (command.help or "")
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} {option.opts} has no help"


def test_an_unknown_command_gets_a_hint(capsys):
    assert main.invoke(["logz"]) == 2
    assert "did you mean `logs`?" in capsys.readouterr().err
    assert main.invoke(["exp", "creat"]) == 2
    assert "did you mean `create`?" in capsys.readouterr().err
    assert main.invoke(["queue", "xyz"]) == 2
    assert "`muster queue --help` lists them" in capsys.readouterr().err


def test_version(capsys):
    assert main.invoke(["--version"]) == 0
    assert capsys.readouterr().out.startswith("muster ")


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    for name in ("MUSTER_SERVER", "MUSTER_KUBECONFIG", "MUSTER_TOKEN", "MUSTER_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "data"))


@pytest.mark.parametrize(
    "line",
    [["ps"], ["nodes"], ["get", "pods"], ["run", "--", "true"], ["stop", "x"], ["logs", "x"], ["describe", "pod/x"]],
)
def test_without_a_platform_every_command_says_how_to_start_one(line, nowhere, capsys):
    assert main.invoke(line) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: no platform found at ")
    assert "start one with `muster up`" in said
    assert len(said.splitlines()) == 1


def test_field_errors_are_listed_one_a_line():
    causes = [
        errors.FieldError("spec.a", "FieldValueInvalid", "Invalid value: 1: too small"),
        errors.FieldError("spec.b", "FieldValueRequired", "Required value"),
    ]
    assert reporting.describe(errors.invalid("Pod", "x", causes)).splitlines() == [
        'error: Pod "x" is invalid:',
        "  spec.a: Invalid value: 1: too small",
        "  spec.b: Required value",
    ]


def test_a_bug_is_called_a_bug_and_says_how_to_see_more():
    assert "MUSTER_DEBUG=1" in reporting.describe(KeyError("x"))


def test_debugging_shows_the_traceback(nowhere, monkeypatch):
    monkeypatch.setenv("MUSTER_DEBUG", "1")
    with pytest.raises(errors.Unavailable):
        main.invoke(["ps"])


@pytest.mark.parametrize("command", ["install", "uninstall", "doctor", "controller", "agent", "serve", "ps", "exp ls"])
def test_a_kubeconfig_before_the_command_is_meant_for_every_command(nowhere, tmp_path, capsys, command):
    missing = tmp_path / "none.yaml"
    assert main.invoke(["--kubeconfig", str(missing), *command.split()]) == 2
    assert f"there is no kubeconfig at {missing}" in capsys.readouterr().err


def test_a_node_joins_no_cluster_because_of_a_variable(nowhere, tmp_path, capsys, monkeypatch):
    file = tmp_path / "cluster.yaml"
    cluster = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]"
    file.write_text(f"current-context: c\n{cluster}\ncontexts: [{{name: c, context: {{cluster: c}}}}]\n")
    monkeypatch.setenv("MUSTER_KUBECONFIG", str(file))
    assert main.invoke(["agent"]) == 2
    assert f'context "c" of {file} is a cluster' in capsys.readouterr().err
