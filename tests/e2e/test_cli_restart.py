"""`muster run` goes on across a platform that is killed and started again."""

import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.e2e.cli_platform import MUSTER, Platform, end, processes_of, start, wait_ready

COUNT = 'i=0; while [ $i -lt 60 ]; do echo "line $i of $RANK"; i=$((i+1)); sleep 0.1; done; exit 6'


def test_no_line_is_lost_or_repeated_and_the_exit_code_is_right():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="muster-e2e-", ignore_cleanup_errors=True) as directory:
        data, log = Path(directory) / "data", Path(directory) / "up.log"
        process = start(data, log, ["--port", port])
        try:
            client = wait_ready(process, data, log)
            client.close()
            env = Platform(data, process, client, log).env
            job = subprocess.Popen(
                [*MUSTER, "run", "--replicas", "2", "--", "sh", "-c", COUNT], env=env, stdout=subprocess.PIPE, text=True
            )
            assert job.stdout is not None
            first = [job.stdout.readline() for _ in range(10)]
            process.send_signal(signal.SIGKILL)
            process.wait()
            process = start(data, log, ["--port", port])
            rest, _ = job.communicate(timeout=90)
        finally:
            end(process)
            for left in processes_of(directory):
                left.kill()
    lines = [*map(str.rstrip, first), *rest.splitlines()]
    for rank in (0, 1):
        own = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert own == [f"[{rank}] line {number} of {rank}" for number in range(60)]
    assert job.returncode == 6
