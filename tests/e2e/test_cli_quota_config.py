"""`muster up --quota-config`: what is wrong is told before anything starts; what is right is used."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.e2e.cli_platform import MUSTER, platform

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def started(command: str, data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MUSTER, command, "--port", "0", "--data", str(data), *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "XDG_CONFIG_HOME": str(data.parent / "config")},
    )


@pytest.mark.parametrize("command", ["up", "serve"])
def test_every_mistake_is_named_and_nothing_starts(command: str, tmp_path: Path) -> None:
    file = tmp_path / "quota.yaml"
    file.write_text(HEAD + "waitForPodsReady: {timeout: soon}\nfeatureGates: {PartialAdmision: true}\n")
    done = started(command, tmp_path / "data", "--quota-config", str(file))
    assert done.returncode == 2
    assert "waitForPodsReady.timeout: " in done.stderr
    assert "did you mean PartialAdmission?" in done.stderr
    assert str(file) in done.stderr
    assert not (tmp_path / "data").exists()


def test_the_configuration_file_names_one_too(tmp_path: Path) -> None:
    (tmp_path / "config" / "muster").mkdir(parents=True)
    (tmp_path / "config" / "muster" / "config.yaml").write_text(f"quota: {tmp_path / 'nowhere.yaml'}\n")
    done = started("serve", tmp_path / "data")
    assert (done.returncode, "cannot read the configuration of quota" in done.stderr) == (2, True)


def test_what_has_no_effect_is_told_and_the_platform_starts(tmp_path: Path) -> None:
    file = tmp_path / "quota.yaml"
    file.write_text(HEAD + "manageJobsWithoutQueueName: true\nresources: {quotaCheckStrategy: IgnoreUndeclared}\n")
    with platform("--quota-config", str(file)) as running:
        assert "manageJobsWithoutQueueName: has no effect here" in running.log.read_text()
