"""What pods use: the processes of each, of a machine that is written down in files."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from muster.agent.sampling import Occupant, Sampler

TICKS, PAGE = 100, 4096


@dataclass
class Machine:
    folder: Path
    seconds: float = 100.0
    sampler: Sampler = field(init=False)

    def __post_init__(self) -> None:
        self.sampler = Sampler(lambda: self.seconds, self.folder)

    def process(self, pid: int, parent: int, cpu: float = 0.0, pages: int = 0, read: int = 0, name: str = "sh") -> None:
        """`cpu`: seconds of its own; its children that have ended add nothing here."""
        here = self.folder / str(pid)
        here.mkdir(exist_ok=True)
        fields = [f"S {parent} {pid} {pid} 0 -1 0 0 0 0 0", f"{round(cpu * TICKS)} 0 0 0", "20 0 1 0 5 0", str(pages)]
        (here / "stat").write_text(f"{pid} ({name}) {' '.join(fields)} 0 0\n")
        (here / "io").write_text(f"rchar: 1\nread_bytes: {read}\nwrite_bytes: {2 * read}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr("muster.agent.sampling._TICKS", TICKS)
    monkeypatch.setattr("muster.agent.sampling._PAGE_BYTES", PAGE)
    (tmp_path / "meminfo").write_text("")
    return Machine(tmp_path)


def test_a_pod_uses_what_all_its_processes_use(machine: Machine) -> None:
    machine.process(10, 1, cpu=5, pages=2)
    machine.process(11, 10, cpu=1, pages=3, read=1000, name="odd) name (of a program")
    machine.process(12, 11, cpu=1, pages=4)
    machine.process(20, 1, cpu=50, pages=100)
    pods = [Occupant("a", [10]), Occupant("b", [20]), Occupant("gone", [999])]
    first = machine.sampler.sample(pods)
    assert first["a"]["memory"]["pod_memory_used"] == 9 * PAGE
    assert "cpu" not in first["a"]  # nothing to compare with yet
    machine.seconds += 10
    machine.process(11, 10, cpu=16, pages=3, read=6000)
    second = machine.sampler.sample(pods)
    assert second["a"]["cpu"]["pod_cpu_cores"] == 1.5
    assert second["a"]["disk"]["pod_disk_throughput_read"] == 500.0
    assert second["a"]["disk"]["pod_disk_throughput_write"] == 1000.0
    assert second["b"]["cpu"]["pod_cpu_cores"] == 0.0
    assert second["gone"]["memory"]["pod_memory_used"] == 0.0
    machine.process(11, 1)  # it has ended, and another has its number
    machine.seconds += 10
    assert machine.sampler.sample(pods)["a"]["cpu"]["pod_cpu_cores"] == 0.0


def test_figures_of_the_machine_have_the_names_of_the_profiler(machine: Machine) -> None:
    machine.sampler.sample([Occupant("a", [10])])
    machine.seconds += 1
    found = machine.sampler.sample([Occupant("a", [10], ["GPU-that-is-none"])])["a"]
    assert set(found) == {"cpu", "memory", "disk", "network"}
    assert "cpu_util_simple" in found["cpu"]
    assert "memory_free" in found["memory"]
    assert {"disk_iops", "disk_throughput_read", "disk_throughput_write", "/"} <= set(found["disk"])
    assert set(found["network"]) == {"net_throughput_sent", "net_throughput_recv"}


def test_where_processes_are_not_written_down_the_machine_still_is(tmp_path: Path) -> None:
    found = Sampler(lambda: 1.0, tmp_path / "none").sample([Occupant("a", [1])])
    assert found["a"]["memory"]["pod_memory_used"] == 0.0


@pytest.fixture
def busy() -> Iterator[int]:
    """A real process, whose child works."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    yield process.pid
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are not written down here")
def test_real_processes_are_found_below_their_leader(busy: int) -> None:
    sampler = Sampler(time.monotonic)
    sampler.sample([Occupant("a", [busy])])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        time.sleep(0.1)
        found = sampler.sample([Occupant("a", [busy])])["a"]
        if found["cpu"]["pod_cpu_cores"] > 0.05:  # type: ignore[operator]
            return
    pytest.fail(f"it was never seen to work: {found}")


def test_thousands_of_pods_are_looked_through_at_once(machine: Machine) -> None:
    for number in range(2000):
        machine.process(10 + number, 1, cpu=1, pages=1)
    pods = [Occupant(str(number), [10 + number]) for number in range(2000)]
    used = time.process_time()
    assert len(machine.sampler.sample(pods)) == 2000
    assert time.process_time() - used < 2  # 0.1 here
