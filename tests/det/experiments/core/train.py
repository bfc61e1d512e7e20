"""A program over Core API that pretends to train: what it is to do comes as hyperparameters, and what it knows is in
its checkpoints."""

import json
import pathlib
import sys
import time

import determined as det
from determined import core


def main(context: core.Context, info: det.ClusterInfo) -> None:
    hparams = info.trial.hparams
    begin = restored(context, info.latest_checkpoint)
    print(f"begins after step {begin}", flush=True)
    for step in range(begin + 1, hparams["steps"] + 1):
        time.sleep(hparams.get("pause", 0))
        context.train.report_training_metrics(steps_completed=step, metrics={"loss": hparams["scale"] / step})
        context.train.report_progress(step / hparams["steps"])
        is_asked = context.preempt.should_preempt()
        if step % hparams.get("every", 1) == 0 or is_asked:
            context.train.report_validation_metrics(steps_completed=step, metrics={"loss": 2 * hparams["scale"] / step})
            saved(context, step)
        if is_asked:
            print(f"stops after step {step}", flush=True)
            return
        if step == hparams.get("fails_after"):
            sys.exit(hparams.get("code", 1))
    print("has trained", flush=True)


def restored(context: core.Context, checkpoint: "str | None") -> int:
    if checkpoint is None:
        return 0
    with context.checkpoint.restore_path(checkpoint) as path:
        return int(json.loads((path / "state.json").read_text())["step"])


def saved(context: core.Context, step: int) -> None:
    with context.checkpoint.store_path({"steps_completed": step, "who": "train.py"}) as (path, _):
        (path / "state.json").write_text(json.dumps({"step": step}))
        weights = pathlib.Path(path) / "weights"
        weights.mkdir()
        (weights / "layer.bin").write_bytes(bytes(step))


if __name__ == "__main__":
    found = det.get_cluster_info()
    assert found is not None, "this is not a task"
    with core.init() as context:
        main(context, found)
