"""A server without a node, and a node that joins it from a process of its own."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.e2e.cli_platform import MUSTER, Platform, end, processes_of, wait_ready


def test_a_machine_joins_runs_a_job_and_serves_its_logs():
    with tempfile.TemporaryDirectory(prefix="muster-e2e-", ignore_cleanup_errors=True) as directory:
        data, log = Path(directory) / "server", Path(directory) / "agent.log"
        server = subprocess.Popen(
            [*MUSTER, "serve", "--port", "0", "--data", str(data)], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        agent = None
        try:
            said = _banner(server)
            address = re.search(r"address +(\S+)", said)
            assert address, said
            assert "muster agent --server" in said
            wrong = [*MUSTER, "agent", "--server", address[1], "--token", "x", "--data", str(Path(directory) / "wrong")]
            refused = subprocess.run(wrong, capture_output=True, text=True, timeout=60, check=False)
            assert (refused.returncode, refused.stdout) == (2, "")
            assert "does not take this token" in refused.stderr
            token = _token_of("far", (data / "node-token").read_text().strip())
            joining = ["agent", "--server", address[1], "--token", token, "--name", "far", "--label", "rack=r1"]
            with log.open("wb") as output:
                agent = subprocess.Popen(
                    [*MUSTER, *joining, "--data", str(Path(directory) / "agent")], stdout=output, stderr=output
                )
            client = wait_ready(agent, data, log)
            assert client.get("nodes", "far")["metadata"]["labels"]["rack"] == "r1"
            client.close()
            done = Platform(data, agent, client, log).muster(
                "run", "--replicas", "2", "--", "sh", "-c", "echo hi $RANK"
            )
            assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] hi 0", "[1] hi 1"]), done.stderr
        finally:
            for process in (agent, server):
                if process is not None:
                    end(process)
            server.stdout.close()
            for left in processes_of(directory):
                left.kill()


def _token_of(node: str, cluster_token: str) -> str:
    line = [*MUSTER, "agent", "--token", cluster_token, "--name", node, "--print-token"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()


def _banner(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    lines: list[str] = []
    while not lines or "join" not in lines[-1]:
        lines.append(server.stdout.readline())
        assert lines[-1], "the server ended"
    return "".join(lines)


def test_a_node_needs_a_token(tmp_path):
    env = {**os.environ, "MUSTER_TOKEN": "", "XDG_CONFIG_HOME": str(tmp_path)}
    line = [*MUSTER, "agent", "--server", "http://127.0.0.1:9", "--data", str(tmp_path)]
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "node-token" in done.stderr
