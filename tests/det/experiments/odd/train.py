"""Reports what should not be reported, and says what came of it: the trial of another, a run that is over, the same
again, an earlier step after a later one, and numbers that are none."""

import json
import math
import os
import sys
import urllib.error
import urllib.request

import determined as det
from determined import core


def post(trial: int, run: int, steps: int, loss: "float | str") -> int:
    """What the server answers to a report with this trial's own session."""
    told = {"trialId": trial, "trialRunId": run, "stepsCompleted": steps, "metrics": {"avgMetrics": {"loss": loss}}}
    request = urllib.request.Request(
        f"{os.environ['DET_MASTER']}/api/v1/trials/{trial}/metrics",
        json.dumps({"group": "training", "metrics": told}).encode(),
        {"Grpc-Metadata-x-allocation-token": f"Bearer {os.environ['DET_SESSION_TOKEN']}"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


if __name__ == "__main__":
    info = det.get_cluster_info()
    assert info is not None, "this is not a task"
    own, run, other = info.trial.trial_id, info.trial._trial_run_id, info.trial.hparams["other"]
    with core.init() as context:
        context.train.report_training_metrics(steps_completed=1, metrics={"loss": math.nan})
        context.train.report_validation_metrics(steps_completed=1, metrics={"loss": math.nan, "inf": -math.inf})
        context.train.report_validation_metrics(steps_completed=3, metrics={"loss": 0.5, "inf": math.inf})
    found = {
        "another's": post(other, 1, 9, 1.0),
        "a later run": post(own, run + 1, 9, 1.0),
        "next": post(own, run, 5, 1.0),
        "the same again": post(own, run, 5, 1.0),
        "another value": post(own, run, 5, 2.0),
        "out of order": post(own, run, 4, 1.0),
        "no number": post(own, run, 6, "Infinity"),
    }
    print("answers", json.dumps(found), flush=True)
    sys.exit(0)
