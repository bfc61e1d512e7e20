"""`muster sim replay` as somebody types it."""

import json
from pathlib import Path

import pytest

from muster.cli.main import invoke

PHILLY = Path(__file__).parents[4] / "shared" / "data" / "traces" / "philly.csv"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    lines = [f"{60 * number},{30 + number * 97 % 900},{1 + number * 5 % 12},{'ab'[number % 2]}" for number in range(30)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["timestamp,duration,num_gpus,cluster", *lines]) + "\n")
    return path


def test_one_policy_is_told_in_full(trace, capsys):
    assert invoke(["sim", "replay", str(trace), "--nodes", "2x8"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("30 jobs in 2 queues over 29m; 2 nodes with 16 GPUs")
    assert "fifo" in said
    assert "SLOWDOWN" in said


def test_all_policies_are_compared_and_the_price_of_reservations_is_told(trace, tmp_path, capsys):
    out, drawn = tmp_path / "out.json", tmp_path / "out.svg"
    wanted = ["sim", "replay", str(trace), "--nodes", "2x8", "--policy", "all", "--bound", "1m", "-o", str(out)]
    assert invoke([*wanted, "--workers", "1", "--plot", str(drawn)]) == 0
    said = capsys.readouterr().out
    assert "backfill: nodes were reserved for" in said
    assert "The price: reserved nodes stood idle for" in said
    assert "than with best-effort" in said
    assert drawn.read_text().lstrip().startswith("<?xml")
    found = json.loads(out.read_text())["policies"]
    assert [each["policy"] for each in found] == ["fifo", "best-effort", "fair", "shortest", "backfill"]
    for each in found:
        assert each["jobs"] == 30 == sum(spread["count"] for spread in each["waitBySize"].values())
        assert 0 < each["utilisation"] <= 1
        assert each["completion"]["mean"] >= each["wait"]["mean"]


def test_processes_at_once_find_the_same_as_one_after_the_other(trace, tmp_path):
    written = []
    for workers in ("1", "2"):
        out = tmp_path / "out.json"
        policies = ["--policy", "best-effort", "--policy", "fair", "--workers", workers]
        assert invoke(["sim", "replay", str(trace), "--nodes", "2x8", *policies, "-o", str(out)]) == 0
        written.append(out.read_bytes())
    assert written[0] == written[1]


def test_a_job_that_can_never_start_is_told_by_whichever_process_finds_it(trace, capsys):
    policies = ["--policy", "best-effort", "--policy", "fair", "--workers", "2"]
    assert invoke(["sim", "replay", str(trace), "--nodes", "1x8", *policies]) != 0
    assert "a job asks for 9 GPUs" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(trace, tmp_path):
    written = []
    for seed in ("1", "1", "2"):
        out = tmp_path / "out.json"
        policies = ["--policy", "shortest", "--policy", "backfill", "--noise", "2", "--bound", "1m", "--workers", "1"]
        assert invoke(["sim", "replay", str(trace), "--nodes", "2x8", *policies, "--seed", seed, "-o", str(out)]) == 0
        written.append(out.read_bytes())
    assert written[0] == written[1] != written[2]


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_a_picture_has_the_same_bytes_each_time(trace, tmp_path, kind):
    drawn = [tmp_path / f"{name}.{kind}" for name in "ab"]
    for path in drawn:
        assert invoke(["sim", "replay", str(trace), "--nodes", "2x8", "--policy", "fair", "--plot", str(path)]) == 0
    assert drawn[0].read_bytes() == drawn[1].read_bytes()


def test_without_nodes_the_cluster_is_one_that_the_trace_keeps_busy(trace, capsys):
    assert invoke(["sim", "replay", str(trace)]) == 0
    assert "8 nodes with 64 GPUs" in capsys.readouterr().out, "50 would be busy on average"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "lots"], "nodes: 'lots'"),
        (["--nodes", "1x8"], "a job asks for 9 GPUs"),
        (["--nodes", "2x8", "--queues", "a=16"], "jobs in b"),
        (["--nodes", "2x8", "--bound", "soon"], "'soon' is not a length of time"),
        (["--nodes", "2x8", "--plot", "out.txt"], "expected a name that ends in"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(trace, arguments, said, capsys):
    assert invoke(["sim", "replay", str(trace), *arguments]) != 0
    assert said in capsys.readouterr().err


@pytest.mark.skipif(not PHILLY.exists(), reason="no Philly trace beside this clone, at ../shared/data/traces")
def test_the_beginning_of_a_real_trace(tmp_path):
    out = tmp_path / "out.json"
    assert invoke(["sim", "replay", str(PHILLY), "--nodes", "64x8", "--first", "500", "-o", str(out)]) == 0
    (found,) = json.loads(out.read_text())["policies"]
    assert found["jobs"] == 500
    assert found["wait"]["max"] == 0, "so few jobs find a cluster of 512 GPUs empty enough"
