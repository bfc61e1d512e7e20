"""Control groups against a pretended file system: which layout is found and what is written."""

import os
from pathlib import Path

import pytest

from muster.agent import cgroups
from muster.agent.runtime import Limits


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    """A delegated v2 group: directories get their files when they are made, which a plain file system does not do."""
    (tmp_path / "root/own").mkdir(parents=True)
    (tmp_path / "root/cgroup.controllers").write_text("cpu memory pids\n")
    for name, content in {
        "cgroup.controllers": "cpu memory\n",
        "cgroup.subtree_control": "",
        "cgroup.procs": "",
    }.items():
        (tmp_path / "root/own" / name).write_text(content)
    (tmp_path / "membership").write_text("0::/own\n")
    return tmp_path


def test_v2_is_found_below_our_own_group(v2: Path) -> None:
    found = cgroups.find(v2 / "root", v2 / "membership")
    assert isinstance(found, cgroups.CgroupsV2)
    assert (v2 / "root/own/cgroup.subtree_control").read_text() == "+memory +cpu"


def test_v2_writes_limits(v2: Path) -> None:
    found = cgroups.find(v2 / "root", v2 / "membership")
    assert found is not None
    group = v2 / "root/own/muster/pod-main-0"
    group.mkdir(parents=True)
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max"):
        (group / name).write_text("")
    assert found.create("pod-main-0", Limits(memory_bytes=2**20, cpu_milli=1500)) == (str(group),)
    contents = {file.name: file.read_text() for file in group.iterdir()}
    assert contents == {
        "memory.max": "1048576",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
    }


def test_v2_without_the_memory_controller_is_no_use(v2: Path) -> None:
    (v2 / "root/own/cgroup.controllers").write_text("pids\n")
    assert cgroups.find(v2 / "root", v2 / "membership") is None


def test_v1_is_found_below_our_own_group_of_each_hierarchy(tmp_path: Path) -> None:
    for hierarchy in ("memory/mine", "cpu"):
        (tmp_path / hierarchy).mkdir(parents=True)
        (tmp_path / hierarchy / "cgroup.procs").write_text("")
    (tmp_path / "membership").write_text("4:memory:/mine\n1:cpu,cpuacct:/\n0::/\n")
    found = cgroups.find(tmp_path, tmp_path / "membership")
    assert isinstance(found, cgroups.CgroupsV1)
    memory, cpu = tmp_path / "memory/mine/muster/x", tmp_path / "cpu/muster/x"
    memory.mkdir(parents=True)
    cpu.mkdir(parents=True)
    for path in (memory / "memory.limit_in_bytes", cpu / "cpu.cfs_period_us", cpu / "cpu.cfs_quota_us"):
        path.write_text("")
    assert found.create("x", Limits(memory_bytes=1000, cpu_milli=1)) == [str(memory), str(cpu)]
    assert (memory / "memory.limit_in_bytes").read_text() == "1000"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "1000", "the kernel takes no less"
    assert found.create("x", Limits(cpu_milli=2000)) == [str(cpu)]


def test_nothing_to_find(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("0::/\n")
    assert cgroups.find(tmp_path, tmp_path / "membership") is None
    assert cgroups.find(tmp_path, tmp_path / "missing") is None


def test_leftovers_are_removed(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    cgroups.kill_and_remove([str(group), str(tmp_path / "gone")])
    assert not os.path.exists(group)
