"""What the commands about experiments ask of the server, and how they tell what it says."""

import io
import json
import tarfile

import click
import pytest
from tests.unit.cli.exp_platform import ExpPlatform, a_trial, an_experiment, lines

from muster.cli import experiments_following, experiments_words, main
from muster.cli.exp import command


@pytest.fixture
def platform(monkeypatch):
    found = ExpPlatform()
    monkeypatch.setattr(experiments_words, "connect", lambda session: found.server)
    monkeypatch.setattr(experiments_following, "LOOK_SECONDS", 0.0)
    return found


@pytest.fixture
def exp(capsys):
    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main.invoke(["exp", *arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def model(tmp_path):
    directory = tmp_path / "model"
    (directory / "data").mkdir(parents=True)
    (directory / "experiment.yaml").write_text("name: digits\nsearcher: {name: single, metric: loss}\n")
    (directory / "train.py").write_text("print(1)\n")
    (directory / "data" / "big.bin").write_bytes(b"x" * 100)
    (directory / ".detignore").write_text("# not these\n*.bin\n")
    return directory


# Making


def created(platform, **more):
    platform.answers["POST /experiments"] = {"experiment": platform.experiment, "config": {}, "warnings": [], **more}


def test_a_directory_is_sent_with_its_configuration_as_it_was_written(platform, exp, model):
    created(platform, warnings=["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"])
    code, out, err = exp("create", str(model), "--paused", "--project", "4")
    assert (code, out) == (0, "experiment 12 (digits) created\n")
    assert "warning: it needs more slots than its pool has now" in err
    [(_, body)] = platform.bodies
    assert body["config"] == (model / "experiment.yaml").read_text()
    assert [file["path"] for file in body["modelDefinition"]] == [".detignore", "data", "experiment.yaml", "train.py"]
    assert (body["activate"], body["projectId"], body["validateOnly"]) == (False, 4, False)


def test_keys_can_be_set_on_the_command_line(platform, exp, model):
    created(platform)
    assert exp("create", str(model), "-c", "searcher.max_trials=4", "-c", "labels=[a, b]")[0] == 0
    config = platform.bodies[0][1]["config"]
    assert "max_trials: 4" in config
    assert "labels:\n- a\n- b" in config


def test_a_dry_run_makes_nothing(platform, exp, model):
    created(platform)
    assert exp("create", str(model), "--dry-run")[1] == "the experiment can be made (dry run)\n"
    assert platform.bodies[0][1]["validateOnly"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the directory of the code, or the configuration with -f"),
        (["{}/data"], "there is neither experiment.yaml nor config.yaml in "),
        (["{}", "-f", "{}/nothing.yaml"], "cannot read "),
        (["{}", "-c", "searcher"], "--config: expected KEY=VALUE, found 'searcher'"),
        (["{}", "-c", "name.first=1"], "--config name.first: "),
    ],
)
def test_what_cannot_be_sent_is_told_before_anything_is(platform, exp, model, arguments, said):
    code, _, err = exp("create", *(argument.format(model) for argument in arguments))
    assert code == 2
    assert said in err
    assert platform.bodies == []


def test_the_servers_word_is_passed_on(platform, exp, model):
    platform.answers["POST /experiments"] = 400, {"error": {"reason": "BadRequest", "error": "searcher.name: unknown"}}
    code, _, err = exp("create", str(model))
    assert (code, err) == (2, "error: searcher.name: unknown\n")


def test_a_preview_counts_trials(platform, exp, model):
    created(platform)
    trials = [
        {"count": 12, "unit": {"maxLength": False, "name": "batches", "value": 25}},
        {"count": 4, "unit": {"maxLength": True}},
    ]
    platform.answers["POST /preview-hp-search"] = {"summary": {"trials": trials}}
    assert exp("preview", str(model))[1].splitlines() == [
        "TRIALS   EACH TRAINS FOR",
        "12       25 batches",
        "4        its whole length",
    ]


# Following


def test_following_tells_news_and_ends_with_the_best(platform, exp, model):
    created(platform)
    states = iter(["STATE_QUEUED", "STATE_RUNNING", "STATE_RUNNING", "STATE_COMPLETED"])
    platform.answers["GET /experiments/12"] = lambda _: {"experiment": an_experiment(state=next(states))}
    platform.trials = platform.trials[:2]
    code, out, err = exp("create", str(model), "--follow")
    assert code == 0
    assert err.splitlines()[:5] == [
        "experiment 12: Queued, 3 trials",
        "experiment 12: best so far: trial 32, loss 0.25",
        "experiment 12: Running, 3 trials",
        "experiment 12: Completed, 3 trials",
        "experiment 12 (digits): Completed after 1m5s",
    ]
    assert out.splitlines()[2].startswith("32 *    Completed   40      0.25")
    assert out.splitlines()[-1] == "Best: trial 32, loss 0.25"


def test_a_failure_shows_the_end_of_the_log(platform, exp):
    platform.experiment = an_experiment(state="STATE_ERROR")
    entries = [{"id": "2", "log": "ValueError: no data\n", "timestamp": "2026-01-02T03:00:01Z"}]
    platform.answers["GET /trials/33/logs"] = (200, lines(*entries))
    code, _, err = exp("wait", "12")
    assert code == 1
    assert err.splitlines()[-2:] == ["trial 33 failed; the end of its log:", "  ValueError: no data"]


def test_an_interrupt_leaves_the_experiment_alone_and_says_how_to_go_on(platform, exp, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    platform.answers["GET /experiments/12"] = interrupted
    code, _, err = exp("wait", "12")
    assert code == 130
    assert "experiment 12 goes on. Wait for it: muster exp wait 12" in err
    assert [asked for asked, _ in platform.bodies] == ["GET /experiments/12"]


def test_waiting_ends_after_a_time(platform, exp):
    platform.experiment = an_experiment(state="STATE_RUNNING")
    code, _, err = exp("wait", "12", "--timeout", "0s")
    assert code == 1
    assert err.splitlines()[-1] == "experiment 12 is not over after 0.0s; it goes on"


# Looking


def test_the_list(platform, exp):
    code, out, _ = exp("ls", "--state", "active", "--label", "small", "--user", "alice", "-n", "5")
    assert code == 0
    header, row = out.splitlines()
    assert header.split() == ["ID", "NAME", "STATE", "DONE", "TRIALS", "BEST", "USER", "AGE", "TIME"]
    assert row.startswith("12   digits   Completed   -      3        loss 0.25   alice")
    [query] = platform.queries("/experiments")
    for part in ("archived=false", "states=STATE_ACTIVE", "labels=small", "users=alice", "limit=5"):
        assert part in query


def test_all_about_one(platform, exp):
    out = exp("describe", "12")[1]
    assert "Experiment:   12 (digits)\nState:        Completed\nUser:         alice\n" in out
    assert "Searcher:     random, loss (smaller is better)\nTrials:       3, 3 over\nBest:" in out
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["32", "31", "33"]
    assert "lr=0.01" in out
    assert "width" not in out.splitlines()[-3]  # it is the same for all


def test_one_that_is_not_there(platform, exp):
    assert exp("describe", "13") == (2, "", "error: there is no /experiments/13\n")


def test_json_is_what_the_server_says(platform, exp):
    assert json.loads(exp("ls", "-o", "json")[1]) == [platform.experiment]
    assert json.loads(exp("best", "12", "-o", "json")[1]) == platform.trials[1]
    assert json.loads(exp("describe", "12", "-o", "json")[1])["trials"] == platform.trials


def test_summaries_of_metrics_the_best_trial_first(platform, exp):
    assert exp("metrics", "12")[1].splitlines() == [
        "TRIAL   GROUP        METRIC   REPORTS   LAST   LEAST   MOST",
        "32      validation   loss     4         0.25   0.25    2",
        "31      validation   loss     4         0.5    0.5     2",
    ]


def test_metrics_of_one_trial_step_by_step(platform, exp):
    reports = [
        {"totalBatches": step, "endTime": f"2026-01-02T03:00:0{step}Z", "metrics": {"avg_metrics": {"loss": 1 / step}}}
        for step in (1, 2, 4)
    ]
    platform.answers["GET /trials/metrics/trial_metrics"] = (200, lines({"metrics": reports}))
    out = exp("metrics", "12", "--trial", "31", "--group", "training", "--tail", "2")[1]
    assert out.splitlines() == [
        "STEP   TIME                   LOSS",
        "2      2026-01-02T03:00:02Z   0.5",
        "4      2026-01-02T03:00:04Z   0.25",
    ]
    assert exp("metrics", "12", "--trial", "99")[2] == "error: experiment 12 has no trial 99\n"


def test_where_larger_is_better_the_largest_is_best(platform, exp):
    platform.experiment["config"] = {"searcher": {"smaller_is_better": False}}
    platform.trials[1] = a_trial(32, "NaN")
    assert exp("best", "12")[1].splitlines()[0] == "Trial:       31"


def test_without_metrics_there_is_no_best(platform, exp):
    platform.trials = [a_trial(31)]
    assert exp("best", "12")[2] == "error: experiment 12: no trial has reported loss yet\n"


def test_the_best_checkpoint_is_fetched_whole_or_not_at_all(platform, exp, tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("weights/model.npz")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"abc"))
    checkpoint = {
        "uuid": "aa-bb",
        "resources": {"weights/model.npz": "3"},
        "metadata": {"steps_completed": 40},
        "training": {"trialId": 31, "searcherMetric": 0.5},
    }
    platform.answers["GET /experiments/12/checkpoints"] = {"checkpoints": [checkpoint]}
    platform.answers["GET /checkpoints/aa-bb"] = (200, [packed.getvalue()[:600]])
    code, _, err = exp("best", "12", "--download", str(tmp_path / "model"))
    assert code == 2
    assert "the checkpoint did not come whole" in err
    assert list(tmp_path.iterdir()) == []
    platform.answers["GET /checkpoints/aa-bb"] = (200, [packed.getvalue()])
    code, _, err = exp("best", "12", "--download", str(tmp_path / "model"))
    assert code == 0
    assert err == f"{tmp_path}/model: checkpoint aa-bb of trial 31 after 40 steps, loss 0.5, 1 files\n"
    assert (tmp_path / "model" / "weights" / "model.npz").read_bytes() == b"abc"
    assert "orderBy=ORDER_BY_ASC" in platform.queries("/experiments/12/checkpoints")[0]
    assert "is there already" in exp("best", "12", "--download", str(tmp_path / "model"))[2]


def test_experiments_side_by_side_with_what_differs(platform, exp):
    other = an_experiment(13, config={**platform.experiment["config"], "name": "wide"})
    platform.answers["GET /experiments/13"] = {"experiment": other}
    platform.answers["GET /experiments/13/trials"] = {"trials": [], "pagination": {}}
    out = exp("compare", "12", "13")[1]
    told = {line.split("  ")[0].strip(): line.split()[-2:] for line in out.splitlines()}
    assert told["best"] == ["0.25", "-"]
    assert told["config name"] == ["digits", "wide"]
    assert "config searcher.max_trials" not in told


# Logs


def entry(number, text):
    return {"id": str(number), "log": f"{text}\n", "timestamp": f"2026-01-02T03:00:0{number}.5Z"}


def test_logs_of_several_trials_carry_the_trial(platform, exp):
    for trial in (31, 32, 33):
        platform.answers[f"GET /trials/{trial}/logs"] = (200, lines(entry(1, f"hello from {trial}")))
    assert exp("logs", "12")[1].splitlines() == [f"[{trial}] hello from {trial}" for trial in (31, 32, 33)]
    assert exp("logs", "12", "--trial", "32", "--timestamps")[1] == "2026-01-02T03:00:01.5Z hello from 32\n"
    assert sorted(exp("logs", "12", "-f")[1].splitlines()) == [
        f"[{trial}] hello from {trial}" for trial in (31, 32, 33)
    ]
    assert exp("logs", "12", "--trial", "99")[2] == "error: experiment 12 has no trial 99\n"


def test_the_last_lines_and_then_what_comes_each_once(platform, exp):
    def answer(_):
        query = platform.transport.requests[-1].path.partition("?")[2]
        if "ORDER_BY_DESC" in query:
            return 200, lines(entry(3, "three"), entry(2, "two"))
        assert "follow=true&timestampAfter=2026-01-02T03%3A00%3A03.499" in query
        return 200, lines(entry(3, "three"), entry(4, "four"))

    platform.answers["GET /trials/31/logs"] = answer
    assert exp("logs", "12", "--trial", "31", "--tail", "2", "-f")[1].splitlines() == ["two", "three", "four"]


# Acting


@pytest.mark.parametrize("action", ["pause", "activate", "cancel", "kill", "archive"])
def test_what_can_be_done_is_done_and_the_rest_is_told(platform, exp, action):
    platform.answers[f"POST /experiments/12/{action}"] = {}
    code, out, err = exp(action, "13", "12")
    assert code == 2
    assert out.startswith("experiment 12 ")
    assert err == f"error: experiment 13: there is no /experiments/13/{action}\n"


def test_deleting_asks_first(platform, exp, monkeypatch):
    platform.answers["DELETE /experiments/12"] = {}
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert exp("delete", "12")[0] == 130
    assert platform.bodies == []
    assert exp("delete", "12", "-y") == (0, "experiment 12 is being deleted\n", "")
    assert exp("archive", "12", "--undo")[0] == 2  # the script has no answer to it
    assert platform.bodies[-1][0] == "POST /experiments/12/unarchive"


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_command_teaches_by_example(name):
    found = command.commands[name]
    assert f"muster exp {name}" in (found.help or "")
    assert all(option.help for option in found.params if isinstance(option, click.Option))
