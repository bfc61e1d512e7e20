"""`muster controller` before it reaches any cluster."""

import pytest

from muster.cli import main

CONFIGURATION = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
current-context: here
"""


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(CONFIGURATION)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--webhook-url", "https://10.0.0.5:9443"], "--webhook-url: needs --webhook-port"),
        (["--webhook-port", "9443", "--webhook-url", "http://10.0.0.5:9443"], "API servers ask over https:// only"),
        (["--context", "lab"], "lab"),
        (["--unlabelled", "mine"], "'mine' is not one of 'ours', 'theirs'"),
        (["--scheduler-config", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_what_is_wrong_is_named(capsys, kubeconfig, arguments, says):
    code = main.invoke(["controller", "--kubeconfig", kubeconfig, *arguments])
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert says in printed.err


def test_a_kubeconfig_that_is_not_there_is_named(capsys, tmp_path):
    code = main.invoke(["controller", "--kubeconfig", str(tmp_path / "nowhere")])
    assert code == 2
    assert str(tmp_path / "nowhere") in capsys.readouterr().err
