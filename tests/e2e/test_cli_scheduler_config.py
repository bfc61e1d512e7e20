"""`muster up --scheduler-config`: what is wrong is told before anything starts; what is right is used."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.e2e.cli_platform import MUSTER, ROOT, platform

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
EXAMPLE = ROOT / "examples" / "plugins"


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
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        HEAD
        + "podInitialBackoffSeconds: 0\nprofiles:\n- plugins:\n    filter:\n      enabled: [{name: NodeResourceFit}]\n"
    )
    done = started(command, tmp_path / "data", "--scheduler-config", str(file))
    assert done.returncode == 2
    assert "podInitialBackoffSeconds: " in done.stderr
    assert "profiles[0].plugins.filter.enabled[0].name: " in done.stderr
    assert "did you mean NodeResourcesFit?" in done.stderr
    assert str(file) in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_file_that_is_not_there_and_certificates_that_are_not_are_told(tmp_path: Path) -> None:
    missing = started("up", tmp_path / "data", "--scheduler-config", str(tmp_path / "nowhere.yaml"))
    assert (missing.returncode, "nowhere.yaml" in missing.stderr) == (2, True)
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        HEAD + "extenders:\n- urlPrefix: https://x\n  filterVerb: f\n  tlsConfig: {caFile: /nowhere/ca.pem}\n"
    )
    done = started("up", tmp_path / "data", "--scheduler-config", str(file))
    assert done.returncode == 2
    assert "extenders[0].tlsConfig: " in done.stderr


def test_the_configuration_file_names_one_too(tmp_path: Path) -> None:
    (tmp_path / "config" / "muster").mkdir(parents=True)
    (tmp_path / "config" / "muster" / "config.yaml").write_text(f"scheduler: {tmp_path / 'scheduler.yaml'}\n")
    (tmp_path / "scheduler.yaml").write_text(HEAD + "profile: []\n")
    done = started("serve", tmp_path / "data")
    assert done.returncode == 2
    assert "  profile: " in done.stderr


def test_a_plugin_of_another_distribution_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "muster_maintenance-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: muster-maintenance\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[muster.placement]\nMaintenance = muster_maintenance:Maintenance\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(EXAMPLE)]))
    file = tmp_path / "scheduler.yaml"
    file.write_text((EXAMPLE / "scheduler.yaml").read_text() + "parallelism: 4\n")
    label = "example.com/maintenance=tonight"
    with platform("--scheduler-config", str(file), "--label", label) as running:
        assert "parallelism: has no effect here" in running.log.read_text()
        running.muster("run", "--detach", "--name", "waits", "--", "true")
        deadline = time.monotonic() + 20
        said = ""
        while "about to be serviced" not in said and time.monotonic() < deadline:
            said = running.muster("get", "pods", "-o", "json").stdout
            time.sleep(0.2)
        assert "0/1 nodes are available: 1 node(s) are about to be serviced." in said
