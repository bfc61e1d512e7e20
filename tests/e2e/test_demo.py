"""`make demo` itself, and that it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.cli_platform import ROOT, processes_of

DEMO = [sys.executable, str(ROOT / "examples" / "demo.py"), "--epochs", "4"]


def test_the_demo_trains_shows_a_result_and_leaves_nothing(tmp_path):
    done = subprocess.run(DEMO, env=environment(tmp_path), capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "epoch 4/4" in done.stdout
    assert "Final accuracy" in done.stdout
    assert len({line.split()[1] for line in done.stdout.splitlines() if line[:1].isdigit()}) == 4  # one node each
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("after", ["Platform up", "epoch 1/"])
def test_an_interrupted_demo_leaves_nothing(tmp_path, after):
    process = subprocess.Popen(DEMO, env=environment(tmp_path), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if after in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert_nothing_left(tmp_path)


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1", "XDG_CONFIG_HOME": str(tmp_path / "none")}


def assert_nothing_left(tmp_path: Path) -> None:
    deadline = time.monotonic() + 3  # a killed process is still listed for a moment
    while processes_of(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
