import contextlib
import json
import subprocess
import sys
import time

import fsspec
import pytest
from tests.unit.sdk.training_platform import ALLOCATION, TrainingPlatform, environment

from muster.api import errors
from muster.sdk import determined, training, training_calls, training_channels
from muster.sdk.training import StorageError
from muster.tasks.glue import storages

OTHER = "11111111-1111-1111-1111-111111111111"


@pytest.fixture
def platform(monkeypatch):
    """Of a trial, and of what runs elsewhere."""
    found = TrainingPlatform()
    monkeypatch.setattr(training_calls, "of_task", lambda env: found.server)
    monkeypatch.setattr(determined, "connect", lambda connection: found.server)
    return found


@pytest.fixture
def world(monkeypatch, tmp_path):
    """Sets the environment to what a trial has, or to nothing."""

    def setting(is_trial=True, **more):
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MUSTER_SERVER", "MUSTER_TOKEN", "DET_TRIAL_ID"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        monkeypatch.setenv("DET_RUN_DIR", str(tmp_path / "run"))
        for name, value in {**(environment(tmp_path / "kept") if is_trial else {}), **more}.items():
            monkeypatch.setenv(name, value)

    setting()
    return setting


@pytest.fixture
def storage(tmp_path):
    return tmp_path / "kept"


def test_a_trial_knows_what_it_is(platform, world):
    world(RANK="3", LOCAL_RANK="1", WORLD_SIZE="8")
    with training.run({"lr": 5}) as run:
        assert run.hparams == {"lr": 0.1}
        assert (run.trial_id, run.experiment_id, run.seed, run.steps_completed) == (7, 3, 11, 40)
        assert (run.rank, run.local_rank, run.world_size, run.is_chief) == (3, 1, 8, False)
        assert run.config["checkpoint_storage"]["type"] == "directory"


def test_without_a_launcher_each_part_of_a_trial_is_a_rank(platform, world, tmp_path):
    (tmp_path / "run" / "info").mkdir(parents=True)
    met = {"container_addrs": ["10.0.0.1", "10.0.0.2"], "container_rank": 1, "container_slot_counts": [4, 4]}
    (tmp_path / "run" / "info" / "rendezvous.json").write_text(json.dumps(met))
    world(DET_RUN_DIR=str(tmp_path / "run"))
    with training.run() as run:
        assert (run.rank, run.local_rank, run.world_size) == (1, 0, 2)


def test_at_the_end_of_the_block_all_has_arrived(platform, world):
    with training.run() as run:
        run.report(1, {"loss": 2.0})
        run.report(1, {"loss": 3.0}, group=training.VALIDATION)
        run.progress(0.5)
    assert platform.reports == [("training", 1, {"loss": 2.0}), ("validation", 1, {"loss": 3.0})]
    assert platform.said("/progress") == [{"progress": 0.5, "is_raw": True}]


def test_a_program_that_fails_still_says_what_it_had_to_say_and_fails_as_it_did(platform, world):
    def program():
        with training.run() as run:
            run.report(1, {"loss": 2.0})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert len(platform.reports) == 1


def test_only_the_chief_speaks_unless_told(platform, world):
    world(RANK="1", WORLD_SIZE="2")
    with training.run() as run:
        run.report(1, {"loss": 1.0})
        run.progress(0.5)
        with run.checkpoint(1) as directory:
            (directory / "x").write_text("x")
        run.save(directory.parent, 1)
        run.report(1, {"loss": 1.0}, group="rank-1", from_any_rank=True)
        with pytest.raises(TypeError):
            run.report(1, {"loss": b"a"})
    assert platform.reports == [("rank-1", 1, {"loss": 1.0})]
    assert platform.told == []
    assert not directory.exists()


# Stopping


def eventually(answer):
    deadline = time.monotonic() + 5.0
    while not answer():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_stop_that_was_seen_is_acknowledged_once(platform, world):
    with training.run() as run:
        assert not run.should_stop()
        platform.stop.set()
        eventually(run.should_stop)
        assert run.should_stop()
    assert [path for path, _ in platform.told] == [f"/api/v1/allocations/{ALLOCATION}/signals/ack_preemption"]


def test_a_stop_is_known_from_the_first_question_on(platform, world):
    platform.stop.set()
    with training.run() as run:
        assert run.should_stop()


def test_a_rank_that_is_not_the_chief_stops_and_does_not_say_so(platform, world):
    world(RANK="1", WORLD_SIZE="2")
    platform.stop.set()
    with training.run() as run:
        assert run.should_stop()
    assert platform.told == []


def test_all_ranks_take_the_chiefs_word_where_they_can_hear_it(platform, world):
    world(RANK="1", WORLD_SIZE="2")
    heard = []

    def broadcast(value: bool) -> bool:
        heard.append(value)
        return True

    with training.run(broadcast=broadcast) as run:
        assert run.should_stop()
    assert heard == [False]
    assert platform.transport.requests == []


def test_without_an_answer_training_goes_on_and_with_a_dead_session_it_stops(platform, world, caplog):
    platform.away = 3
    with training.run() as run:
        assert not run.should_stop()
        assert "training goes on" in caplog.text
        platform.refusals[f"/api/v1/allocations/{ALLOCATION}/signals/preemption"] = 401, "this session has ended"
        platform.stop.set()
        eventually(run.should_stop)


@pytest.mark.parametrize(
    ("way", "reason"),
    [("stop_early", training_channels.USER_STOP), ("invalid_hparams", training_channels.INVALID_HPARAMS)],
)
def test_giving_up_is_told_after_all_else_and_ends_the_program_well(platform, world, way, reason):
    def program():
        with training.run() as run:
            run.report(1, {"loss": 1.0})
            getattr(run, way)()

    with pytest.raises(SystemExit) as ended:
        program()
    assert not ended.value.code
    assert platform.said("/early_exit") == [{"reason": reason}]
    assert len(platform.reports) == 1


# Checkpoints


def test_a_checkpoint_is_known_when_it_is_whole_and_after_what_came_before_it(platform, world, storage):
    with training.run() as run:
        run.report(50, {"loss": 1.0})
        with run.checkpoint(50, {"note": "good"}) as directory:
            (directory / "inner").mkdir()
            (directory / "inner" / "model.npz").write_bytes(b"12345")
            assert platform.checkpoints == []
        assert len(platform.reports) == 1
        assert run.latest_checkpoint() == directory == storage / platform.checkpoints[0]["uuid"]
    [told] = platform.checkpoints
    assert told["resources"] == {"inner/model.npz": "5"}
    assert told["metadata"] == {"note": "good", "steps_completed": 50}
    assert (told["taskId"], told["allocationId"], told["storageId"]) == ("3.aa", ALLOCATION, 5)
    assert told["state"] == "STATE_COMPLETED"


def test_a_checkpoint_that_was_not_finished_is_not_there(platform, world, storage):
    def program():
        with training.run() as run, run.checkpoint(1) as directory:
            (directory / "half").write_text("x")
            raise RuntimeError("disk")

    with pytest.raises(RuntimeError, match="disk"):
        program()
    assert platform.checkpoints == []
    assert list(storage.iterdir()) == []


def test_a_file_and_a_directory_are_saved_as_they_are(platform, world, tmp_path):
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "a").write_text("a")
    (tmp_path / "one.pt").write_text("one")
    with training.run() as run:
        run.save(tmp_path / "all", 1)
        run.save(tmp_path / "one.pt", 2)
    assert [list(told["resources"]) for told in platform.checkpoints] == [["a"], ["one.pt"]]


def test_reporting_a_checkpoint_survives_a_server_that_is_away(platform, world, caplog):
    with training.run() as run, run.checkpoint(1) as directory:
        (directory / "a").write_text("a")
        platform.away = 2
    assert len(platform.checkpoints) == 1
    assert "trying again" in caplog.text


def test_a_trial_goes_on_from_its_own_checkpoint_where_it_is(platform, world, storage):
    (storage / OTHER).mkdir(parents=True)
    (storage / OTHER / "model").write_text("kept")
    world(DET_LATEST_CHECKPOINT=OTHER)
    with training.run() as run:
        assert run.latest_checkpoint() == storage / OTHER


def test_a_checkpoint_of_another_storage_comes_from_the_server_once(platform, world):
    platform.keep_elsewhere(OTHER, {"deep/model": b"m" * 2000, "note": b"n"})
    world(DET_LATEST_CHECKPOINT=OTHER)
    with training.run() as run:
        found = run.latest_checkpoint()
        assert found is not None
        assert (found / "deep" / "model").read_bytes() == b"m" * 2000
        assert run.latest_checkpoint() == found
    assert len(platform.transport.requests) == 1


def test_a_checkpoint_that_is_gone_is_named(platform, world):
    world(DET_LATEST_CHECKPOINT=OTHER)
    with training.run() as run, pytest.raises(StorageError, match=f"checkpoint {OTHER} is not there any more"):
        run.latest_checkpoint()


def test_in_a_bucket_checkpoints_are_put_and_fetched(platform, world, monkeypatch, storage):
    bucket = storages.Remote(fsspec.filesystem("memory"), "/training-run-test")
    monkeypatch.setattr(storages, "opened", lambda config, shared=None: bucket)
    with training.run() as run:
        with run.checkpoint(5) as directory:
            (directory / "model").write_bytes(b"abc")
        assert not directory.exists()
        found = run.latest_checkpoint()
        assert found is not None
        assert found == storage / "run" / "checkpoints" / platform.checkpoints[0]["uuid"]
        assert (found / "model").read_bytes() == b"abc"
    assert platform.checkpoints[0]["resources"] == {"model": "3"}


# Outside of trials


def test_alone_what_is_said_is_printed(world, capsys):
    world(is_trial=False)
    with training.run({"lr": 0.5}) as run:
        assert run.hparams == {"lr": 0.5}
        assert (run.trial_id, run.rank, run.world_size) == (0, 0, 1)
        assert run.latest_checkpoint() is None
        assert not run.should_stop()
        run.report(3, {"loss": 0.25, "name": "x"})
        run.progress(0.5)
        with run.checkpoint(3) as directory:
            (directory / "a").write_text("abc")
        assert run.latest_checkpoint() == directory
        with run.checkpoint(4) as later:
            pass
        assert run.latest_checkpoint() == later
        assert not directory.exists()
    assert not later.exists()
    lines = capsys.readouterr().out.splitlines()
    assert "runs alone" in lines[0]
    assert lines[1:4] == [
        "[training] step 3  training  loss=0.25  name=x",
        "[training] progress 50%",
        "[training] step 3  checkpoint of 1 files, 3 bytes",
    ]


def test_alone_only_the_chief_prints(world, capsys):
    world(is_trial=False, RANK="1", WORLD_SIZE="2", MUSTER_SERVER="http://scripted")
    with training.run() as run:
        run.report(1, {"a": 1})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("fails", "state"), [(False, "STATE_COMPLETED"), (True, "STATE_ERROR")])
def test_elsewhere_an_experiment_is_made_and_ended(platform, world, capsys, fails, state):
    world(is_trial=False, MUSTER_SERVER="http://scripted", MUSTER_TOKEN="t")
    with (
        pytest.raises(RuntimeError) if fails else contextlib.nullcontext(),
        training.run({"lr": 1}, config={"name": "mine"}) as run,
    ):
        assert (run.experiment_id, run.trial_id) == (9, 21)
        run.progress(1.0)
        if fails:
            raise RuntimeError
    [made] = platform.said("/experiments")
    assert made["unmanaged"] is True
    assert "name: mine" in made["config"]
    assert platform.said("/trials")[0] == {"experimentId": 9, "hparams": {"lr": 1}, "unmanaged": True}
    assert platform.told[-1] == ("/api/v1/trials/21", {"trialId": 21, "state": state})
    assert "reports to experiment 9 at http://scripted" in capsys.readouterr().out


def test_a_platform_that_refuses_the_experiment_says_so(platform, world):
    world(is_trial=False, MUSTER_SERVER="http://scripted", MUSTER_TOKEN="t")
    platform.refusals["/api/v1/experiments"] = 403, "you may not"
    with pytest.raises(errors.Forbidden, match="you may not"), training.run():
        pass


def test_elsewhere_a_directory_that_only_nodes_have_is_not_taken_for_a_storage(platform, world, tmp_path):
    world(is_trial=False, MUSTER_SERVER="http://scripted", MUSTER_TOKEN="t")
    platform.storage = {"type": "shared_fs", "host_path": str(tmp_path / "far" / "away")}

    def program():
        with training.run() as run, run.checkpoint(1):
            pass

    with pytest.raises(StorageError, match="is not on this machine; name a storage that both reach"):
        program()


def test_training_code_gets_nothing_heavy_with_the_api():
    heavy = (
        "numpy",
        "asyncio",
        "aiohttp",
        "starlette",
        "rich",
        "fsspec",
        "sqlalchemy",
        "muster.server",
        "muster.store",
    )
    program = f"import sys, muster.sdk.training\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
