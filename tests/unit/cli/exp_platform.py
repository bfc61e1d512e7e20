"""Experiments as the server tells them, answered without a socket."""

import re

from tests.unit.sdk.scripted_transport import ScriptedTransport

from muster.api import raw
from muster.sdk.determined import Determined
from muster.sdk.transport import Request

CONFIG = {
    "name": "digits",
    "searcher": {"name": "random", "metric": "loss", "smaller_is_better": True, "max_trials": 3},
    "hyperparameters": {"lr": {"type": "log"}, "net": {"width": 8}},
}


def an_experiment(id=12, state="STATE_COMPLETED", **more):
    return {
        "id": id, "name": "digits", "state": state, "username": "alice", "numTrials": 3, "progress": 0.5,
        "startTime": "2026-01-02T03:00:00Z", "endTime": "2026-01-02T03:01:05Z", "searcherType": "random",
        "searcherMetric": "loss", "config": CONFIG, "labels": ["small"], "bestTrialSearcherMetric": 0.25, **more,
    }  # fmt: skip


def a_trial(id, metric=None, state="STATE_COMPLETED", lr=0.1, **more):
    summary = {"count": 4, "last": metric, "min": metric, "max": 2.0, "type": "number"}
    device = {"count": 1, "last": {"used": 3.0}, "type": "object"}
    return {
        "id": id, "experimentId": 12, "state": state, "hparams": {"lr": lr, "net": {"width": 8}}, "restarts": 0,
        "startTime": "2026-01-02T03:00:00Z", "endTime": "2026-01-02T03:00:30Z", "totalBatchesProcessed": 40,
        "bestValidation": None if metric is None else {"metrics": {"avgMetrics": {"loss": metric}}},
        "summaryMetrics": {} if metric is None else {"validation_metrics": {"loss": summary}, "cpu": {"vm": device}},
        **more,
    }  # fmt: skip


class ExpPlatform:
    """`answers`: by method and path, what is said; functions are called with the body. What is asked is kept."""

    def __init__(self) -> None:
        self.transport = ScriptedTransport(self._answer)
        self.server = Determined(self.transport)
        self.trials = [a_trial(31, 0.5), a_trial(32, 0.25, lr=0.01), a_trial(33, state="STATE_ERROR")]
        self.experiment = an_experiment()
        self.answers: dict[str, object] = {
            "GET /experiments/12/trials": lambda _: self._page("trials", self.trials),
            "GET /experiments/12": lambda _: {"experiment": self.experiment},
            "GET /experiments": lambda _: self._page("experiments", [self.experiment]),
        }
        self.bodies: list[tuple[str, dict]] = []

    def queries(self, path: str) -> list[str]:
        return [request.path.partition("?")[2] for request in self.transport.requests if f"v1{path}?" in request.path]

    @staticmethod
    def _page(key, found):
        return {key: found, "pagination": {"endIndex": len(found), "total": len(found)}}

    def _answer(self, request: Request):
        path = re.sub(r"^/api/v1", "", request.path.partition("?")[0])
        asked = f"{request.method} {path}"
        body = request.body if isinstance(request.body, bytes) or request.body is None else request.body.read()
        self.bodies.append((asked, raw.decode(body) if body else {}))
        answer = self.answers.get(asked, (404, {"error": {"reason": "NotFound", "error": f"there is no {path}"}}))
        return answer(self.bodies[-1][1]) if callable(answer) else answer


def lines(*documents):
    return [raw.encode({"result": document}) + b"\n" for document in documents]
