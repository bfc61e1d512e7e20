"""Every acknowledged write survives `kill -9`, and no other half does (promise 1)."""

import subprocess
import sys
from pathlib import Path

import pytest

CRASHES = 50


@pytest.mark.slow
def test_every_acknowledged_write_survives_kill_9(tmp_path: Path) -> None:
    program = Path(__file__).with_name("crashing_writer.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path / "store.db", str(CRASHES), "20261115"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CRASHES} crashes" in done.stdout
