"""Following a job of any dialect to its end, over a transport that the test pours into."""

import pytest
from tests.unit.sdk.job_documents import a_condition, a_pod, a_workload, batch, volcano
from tests.unit.sdk.scripted_transport import Tap, a_client

from muster.api import errors
from muster.sdk import job_following
from muster.sdk.job_following import Ended, JobFollower, Moved
from muster.sdk.log_reading import Line
from muster.sdk.summaries import State

PATIENCE = 5.0


class Played:
    """One tap for each kind that is watched."""

    def __init__(self, job, *, with_logs=False):
        self.taps = {name: Tap() for name in ("jobs", "pods", "workloads", "podgroups")}
        self.log = [b"2026-01-01T00:00:00Z hello\n", b"2026-01-01T00:00:01Z bye\n"]
        self.client, _ = a_client(self._answer)
        self.follower = JobFollower(self.client, job, with_logs=with_logs)

    def _answer(self, request):
        if request.path.endswith("/log"):
            assert request.query["container"] == "main"
            return 200, self.log
        kind = request.path.rpartition("/")[2]
        if "watch" in request.query:
            return 200, self.taps[kind]
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    def pour(self, kind, document, event="MODIFIED"):
        self.taps[kind].pour(event, document)

    def until(self, type):
        seen: list[job_following.Event] = []
        while not seen or not isinstance(seen[-1], type):
            event = self.follower.next(PATIENCE)
            assert event is not None, f"nothing came after {seen}"
            seen.append(event)
        return seen

    def states(self, events):
        return [str(event.summary.state) for event in events if isinstance(event, Moved)]


@pytest.fixture
def playing():
    made = []

    def play(job, **options):
        made.append(Played(job, **options))
        return made[-1]

    yield play
    for played in made:
        for tap in played.taps.values():
            tap.end()
        played.follower.close()


def test_a_job_is_followed_from_waiting_to_its_end(playing):
    played = playing(volcano("Pending"))
    played.pour("workloads", a_workload(a_condition("Waiting", message="1 ahead")))
    [waiting] = played.until(Moved)
    assert (waiting.summary.state, waiting.summary.why) == (State.PENDING, "1 ahead")
    played.pour("jobs", volcano("Running", running=4).document)
    assert played.until(Moved)[-1].summary.ready == 4
    played.pour("jobs", volcano("Completed", succeeded=4).document)
    ended = played.until(Ended)[-1]
    assert (ended.exit_code, ended.summary.state) == (0, State.SUCCEEDED)


def test_the_code_is_that_of_the_pod_that_failed_even_if_it_is_gone(playing):
    played = playing(batch(active=1))
    failed = a_pod("train-x", "Failed", code=9)
    played.pour("pods", failed)
    played.until(Moved)
    played.pour("pods", failed, "DELETED")
    played.pour("jobs", batch(a_condition("Failed", message="too often")).document)
    assert played.until(Ended)[-1].exit_code == 9


def test_pods_of_others_do_not_count(playing):
    played = playing(batch(active=1))
    played.pour("pods", a_pod("stranger", "Failed", code=9, owner="somebody"))
    played.pour("pods", a_pod("train-x", "Failed", code=4))
    played.pour("jobs", batch(a_condition("Failed")).document)
    assert played.until(Ended)[-1].exit_code == 4


def test_a_job_that_is_deleted_has_been_stopped(playing):
    played = playing(volcano("Running"))
    played.pour("jobs", volcano("Running").document, "DELETED")
    ended = played.until(Ended)[-1]
    assert (ended.exit_code, ended.summary.state, ended.summary.why) == (143, State.STOPPED, "it was deleted")


def test_another_job_of_the_same_name_is_not_it(playing):
    played = playing(volcano("Running"))
    other = volcano("Completed").document
    played.pour("jobs", {**other, "metadata": {**other["metadata"], "uid": "another"}})
    played.pour("jobs", volcano("Failed").document)
    played.pour("pods", a_pod("train-worker-0", "Failed", code=2))
    assert played.until(Ended)[-1].exit_code == 2


def test_lines_carry_their_pod_and_come_before_the_end(playing):
    played = playing(volcano("Running"), with_logs=True)
    running = a_pod("train-worker-0")
    running["status"]["containerStatuses"] = [{"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
    played.pour("pods", running)
    played.pour("jobs", volcano("Completed").document)
    lines = [event for event in played.until(Ended) if isinstance(event, Line)]
    assert [(played.follower.label(line.rank), line.text) for line in lines] == [
        ("worker-0", "hello"),
        ("worker-0", "bye"),
    ]


def test_waiting_has_an_end_too(playing):
    played = playing(volcano("Running"))
    with pytest.raises(errors.Timeout, match="Running"):
        job_following.wait(played.client, volcano("Running"), timeout=0.05)
