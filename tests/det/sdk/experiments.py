"""Every call of the SDK about experiments and trials, run by the client's own interpreter: `MODEL CONFIG`."""

import json
import os
import sys

from determined.experimental import client

model, config = sys.argv[1], json.loads(sys.argv[2])
client.login(user=os.environ["DET_USER"], password=os.environ["DET_PASS"])

experiment = client.create_experiment(config, model, includes=[f"{model}/../mlp"])
trial = experiment.await_first_trial(interval=0.1)
assert experiment.wait(interval=0.1) == client.ExperimentState.COMPLETED
assert client.get_experiment(experiment.id).name == config["name"]
listed = client.list_experiments(
    sort_by=client.ExperimentSortBy.ID,
    order_by=client.OrderBy.DESC,
    labels=["sdk"],
    users=["admin"],
    states=[client.ExperimentState.COMPLETED],
)
assert [found.id for found in listed] == [experiment.id]
assert [found.id for found in client.list_experiments(experiment_ids=[experiment.id], name="sd")] == [experiment.id]
assert client.list_experiments(labels=["none such"]) == []

# What can be changed

experiment.set_name("by the sdk")
experiment.set_description("described")
experiment.set_notes("noted")
experiment.add_label("a")
experiment.add_label("b")
experiment.remove_label("a")
again = client.get_experiment(experiment.id)
assert (again.name, again.description, again.notes) == ("by the sdk", "described", "noted")
assert set(again.labels or ()) == {"b", "sdk"}, again.labels
experiment.set_labels({"x"})
experiment.archive()
again.reload()
assert (again.archived, set(again.labels or ())) == (True, {"x"})
experiment.unarchive()
workspace = client.create_workspace("sdk-lab")
project = workspace.create_project("sdk-shelf")
experiment.move_to_project("sdk-lab", "sdk-shelf")
assert [found.id for found in project.list_experiments()] == [experiment.id]

# Trials and metrics

assert [found.id for found in experiment.list_trials()] == [trial.id]
assert [found.id for found in experiment.iter_trials(order_by=client.OrderBy.DESC)] == [trial.id]
found = client.get_trial(trial.id)
assert found.hparams == config["hyperparameters"]
assert found.summary_metrics["avg_metrics"]["loss"]["count"] == 3, found.summary_metrics
assert found.summary_metrics["validation_metrics"]["loss"]["min"] < 0.67
assert found.get_experiment().id == experiment.id
logs = list(trial.iter_logs(tail=3))
assert len(logs) == 3, logs
assert any("has trained" in line for line in trial.iter_logs(follow=True, search_text="trained"))
assert [report.steps_completed for report in trial.iter_metrics("training")] == [1, 2, 3]
(first, *_) = trial.iter_metrics("validation")
assert (first.metrics, first.trial_id, first.group) == ({"loss": 2.0}, trial.id, "validation")
assert next(iter(trial.stream_training_metrics())).metrics["loss"] == 1.0
assert [report.steps_completed for report in client.stream_trials_validation_metrics([trial.id])] == [1, 2, 3]
assert [report.steps_completed for report in client.stream_trials_training_metrics([trial.id])] == [1, 2, 3]
assert len(list(client.iter_trials_metrics([trial.id], "training"))) == 3

# Checkpoints of both

by_metric = experiment.list_checkpoints(sort_by="loss", order_by=client.OrderBy.ASC)
assert [found.metadata["steps_completed"] for found in by_metric] == [3, 2, 1]
best = experiment.list_checkpoints(max_results=1)
assert [found.uuid for found in best] == [by_metric[0].uuid]
assert experiment.top_checkpoint().uuid == by_metric[0].uuid
assert [found.uuid for found in experiment.top_n_checkpoints(2)] == [by_metric[0].uuid]  # one of each trial
assert len(trial.list_checkpoints()) == 3
latest = trial.list_checkpoints(
    sort_by=client.CheckpointSortBy.BATCH_NUMBER, order_by=client.OrderBy.DESC, max_results=1
)
assert [found.metadata["steps_completed"] for found in latest] == [3]
assert trial.select_checkpoint(best=True).uuid == by_metric[0].uuid
assert trial.select_checkpoint(latest=True).metadata["steps_completed"] == 3

# The rest of a life

code = experiment.download_code("code")
assert os.path.exists(code), code
experiment.delete_tensorboard_files()
long = client.create_experiment({**config, "hyperparameters": {"steps": 1000, "scale": 1.0, "pause": 0.1}}, model)
running = long.await_first_trial()
long.pause()
long.activate()
long.cancel()
assert long.wait(interval=0.1) == client.ExperimentState.CANCELED
other = client.create_experiment({**config, "hyperparameters": {"steps": 1000, "scale": 1.0, "pause": 0.1}}, model)
other.await_first_trial().kill()
assert other.wait(interval=0.1) == client.ExperimentState.CANCELED, other.state
third = client.create_experiment({**config, "hyperparameters": {"steps": 1000, "scale": 1.0, "pause": 0.1}}, model)
third.kill()
assert third.wait(interval=0.1) == client.ExperimentState.CANCELED
third.delete()
print(json.dumps({"experiment": experiment.id, "code": code}))
