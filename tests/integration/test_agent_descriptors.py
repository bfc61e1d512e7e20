"""More attempts than a process may have files open."""

import subprocess
import sys

import pytest

FEW = 90
ATTEMPTS = 120
SCRIPT = f"""
import asyncio, os, resource, signal, sys
from pathlib import Path

soft, hard = {FEW}, int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.runtime import Attempt, Launch
from muster.runtime.clock import SystemClock

async def main(home):
    runtime = HostProcessRuntime(SystemClock())
    attempts = [Attempt(home / f"c{{n}}", 0) for n in range({ATTEMPTS})]
    for attempt in attempts:
        argv = ["sh", "-c", "ulimit -Sn; exec sleep 60"]
        name = f"few-{{os.getpid()}}-{{attempt.directory.name}}"
        await runtime.start(Launch(attempt, name, argv, {{"PATH": os.environ["PATH"]}}, home))
    waiting = asyncio.gather(*(runtime.wait(attempt) for attempt in attempts))
    await asyncio.sleep(0.5)
    for file in [open(os.devnull) for _ in range(10)]:
        file.close()
    for attempt in attempts:
        await runtime.signal(attempt, signal.SIGTERM)
    ends = await waiting
    assert {{end.signal for end in ends}} == {{signal.SIGTERM}}, ends
    said = b"".join([piece async for piece in runtime.logs(attempts[0], LogOptions())])
    assert said == b"{FEW}\\n", said
    await runtime.close()

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("hard", [FEW, 4096], ids=["no more are allowed", "more are allowed"])
def test_a_crowd_of_attempts_leaves_descriptors_for_others(tmp_path: object, hard: int) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
