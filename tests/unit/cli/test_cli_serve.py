"""`muster serve` before it reaches any cluster."""

import pytest

from muster.cli import main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--in-cluster", "--context", "lab"], "--in-cluster: there --kubeconfig and --context have no meaning"),
        (["--in-cluster"], "this is not a pod of a cluster"),
        (["--kubeconfig", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--set", "tasks.master_url=10.0.0.1"], "tasks.master_url: write it as"),
    ],
)
def test_what_is_wrong_is_named(capsys, tmp_path, arguments, says):
    code = main.invoke(["serve", "--port", "0", "--data", str(tmp_path), *arguments])
    assert code == 2
    assert says in capsys.readouterr().err
