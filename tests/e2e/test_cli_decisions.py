"""What the scheduler of a real platform decided comes out again, decision by decision."""

from pathlib import Path

from tests.e2e.cli_platform import platform


def test_the_log_of_a_real_platform_replays(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    with platform("--nodes", "3", "--fake-gpus", "2") as up:
        for replicas in ("1", "3", "2"):
            assert up.muster("run", "--replicas", replicas, "--gpus", "1", "--", "true").returncode == 0
        log.write_text(up.muster("decisions").stdout)
        again = up.muster("decisions", "replay", str(log))
        otherwise = up.muster("decisions", "replay", "--seed", "12345", str(log))
    assert again.returncode == 0, again.stdout + again.stderr
    assert "3 decisions, 0 differ" in again.stdout
    assert otherwise.returncode == 1
    assert "replayed" in otherwise.stdout


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("something else\n")
    with platform() as up:
        refused = up.muster("decisions", "replay", str(other))
    assert refused.returncode == 2
    assert "no log of decisions" in refused.stderr
