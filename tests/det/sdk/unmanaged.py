"""Trains outside of the cluster, twice under the same name, with core_v2: `CHECKPOINTS`."""

import json
import pathlib
import sys

from determined.experimental import core_v2

for _ in range(2):
    core_v2.init(
        defaults=core_v2.DefaultConfig(
            name="elsewhere",
            hparams={"rate": 0.5},
            labels=["outside"],
            searcher={"name": "single", "metric": "loss", "max_length": 4},
            checkpoint_storage={"type": "directory", "container_path": sys.argv[1]},
        ),
        unmanaged=core_v2.UnmanagedConfig(external_experiment_id="the-e", external_trial_id="the-t"),
    )
    begin = 0
    if core_v2.info.latest_checkpoint is not None:
        with core_v2.checkpoint.restore_path(core_v2.info.latest_checkpoint) as path:
            begin = json.loads((path / "state.json").read_text())
    print(f"begins after {begin} in trial {core_v2.info.trial.trial_id}", flush=True)
    for step in range(begin + 1, begin + 3):
        core_v2.train.report_training_metrics(steps_completed=step, metrics={"loss": 1 / step})
        core_v2.train.report_validation_metrics(steps_completed=step, metrics={"loss": 2 / step})
        with core_v2.checkpoint.store_path({"steps_completed": step}) as (path, _):
            pathlib.Path(path, "state.json").write_text(json.dumps(step))
    print(core_v2.url_reverse_webui_exp_view(), flush=True)
    core_v2.close()
