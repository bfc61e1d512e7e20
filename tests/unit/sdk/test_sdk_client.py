import pytest
from tests.unit.sdk.scripted_transport import Tap, a_client, discovery, refused

from muster.access.credentials import Credential, FileCredentials
from muster.access.kubeconfig import Cluster
from muster.api import errors, raw
from muster.sdk import resources
from muster.sdk.client import LogOptions
from muster.sdk.config import Connection
from muster.sdk.resources import EVERYTHING, Selection
from muster.sdk.watching import Watching


def a_pod(name, version, **more):
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}, **more}


def test_words_for_a_kind_are_found_by_discovery():
    client, _ = a_client(discovery)
    for word in ("pods", "pod", "po", "Pod"):
        assert client.resource(word).plural == "pods"
    assert client.resource("jobs").group == "batch"
    assert client.resource("jobs.batch.volcano.sh").group == "batch.volcano.sh"
    assert client.resource("job.v1alpha1.batch.volcano.sh").group == "batch.volcano.sh"
    assert client.resource("vcjob").version == "v1alpha1"
    assert {found.kind for found in client.catalog().category("all")} == {"Pod", "Job"}
    with pytest.raises(errors.NotFound, match="it has events, jobs, nodes, podgroups, pods"):
        client.resource("gadgets")
    with pytest.raises(errors.NotFound, match="did you mean podgroups"):
        client.resource("podgruops")


def test_documents_are_matched_to_the_kinds_that_exist():
    client, _ = a_client(discovery)
    assert client.catalog().of_document({"apiVersion": "v1", "kind": "Pod"}).plural == "pods"
    with pytest.raises(errors.NotFound, match=r"the server has it in batch.volcano.sh/v1alpha1, batch/v1"):
        client.catalog().of_document({"apiVersion": "batch/v2", "kind": "Job"})
    with pytest.raises(errors.BadRequest, match="apiVersion and kind are required"):
        client.catalog().of_document({"kind": "Pod"})


def test_list_reads_all_pages_and_says_what_each_item_is():
    def answer(request):
        if "continue" not in request.query:
            return {"metadata": {"continue": "more", "resourceVersion": "5"}, "items": [a_pod("a", 1)]}
        return {"metadata": {"resourceVersion": "5"}, "items": [a_pod("b", 2)]}

    client, transport = a_client(answer)
    found = client.list(resources.PODS, Selection("default", labels="x=y"))
    assert [item["metadata"]["name"] for item in found] == ["a", "b"]
    assert found[0]["kind"] == "Pod"
    assert [request.path for request in transport.requests] == ["/api/v1/namespaces/default/pods"] * 2
    assert transport.requests[1].query["labelSelector"] == "x=y"


def test_errors_come_back_as_their_class_with_causes():
    causes = [errors.FieldError("spec.containers", "FieldValueRequired", "Required value")]
    client, _ = a_client(lambda request: errors.invalid("Pod", "x", causes))
    with pytest.raises(errors.Invalid) as caught:
        client.create({"metadata": {"name": "x"}}, resources.PODS)
    assert caught.value.causes == tuple(causes)


def test_an_error_that_is_not_a_status_document_is_still_an_error():
    client, _ = a_client(lambda request: (502, b"<html>bad gateway</html>"))
    with pytest.raises(errors.ApiError, match="bad gateway"):
        client.get(resources.PODS, "x")


def test_unauthorized_says_which_variable_to_set():
    client, _ = a_client(lambda request: errors.Unauthorized("no token"))
    with pytest.raises(errors.Unauthorized, match="MUSTER_TOKEN"):
        client.get(resources.PODS, "x")


CLUSTER = Connection(
    "https://lab", cluster=Cluster("https://lab", FileCredentials(Credential), source='context "lab" of config')
)


def test_a_cluster_that_lets_nobody_in_is_told_with_what_was_tried():
    client, _ = a_client(lambda request: errors.Unauthorized("Unauthorized"), CLUSTER)
    with pytest.raises(errors.Unauthorized, match='nobody by what is in context "lab" of config'):
        client.get(resources.PODS, "x")


def test_a_cluster_without_our_kinds_says_how_to_get_them_but_not_for_a_name_that_is_not_there():
    client, _ = a_client(lambda request: (404, b"404 page not found\n"), CLUSTER)
    with pytest.raises(errors.NotFound, match="clusterqueues: `muster install` defines the kinds"):
        client.list(resources.CLUSTER_QUEUES)
    client, _ = a_client(lambda request: errors.NotFound('pods "x" not found'), CLUSTER)
    with pytest.raises(errors.NotFound, match=r'^pods "x" not found$'):
        client.get(resources.PODS, "x")


@pytest.mark.parametrize("name", ["a/b", "..", "a?b", "a%2fb", "a#b", ""])
def test_a_name_cannot_reach_another_path(name):
    client, transport = a_client(lambda request: {})
    with pytest.raises(errors.BadRequest):
        client.get(resources.PODS, name)
    assert transport.requests == []


def test_a_field_that_the_server_does_not_know_is_refused_unless_one_says_otherwise():
    client, transport = a_client(lambda request: discovery(request) or {"metadata": {}})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    client.create(pod, dry_run=True)
    assert transport.requests[-1].query == {"fieldManager": "muster", "fieldValidation": "Strict", "dryRun": "All"}
    for write in (client.create, client.apply):
        write(pod, strict=False)
        assert transport.requests[-1].query["fieldValidation"] == "Ignore"


def test_apply_is_server_side_with_our_manager():
    client, transport = a_client(lambda request: discovery(request) or {"metadata": {}})
    client.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}, force=True)
    sent = transport.requests[-1]
    assert (sent.method, sent.path) == ("PATCH", "/api/v1/namespaces/default/pods/x")
    assert sent.query == {"fieldManager": "muster", "fieldValidation": "Strict", "force": "true"}
    assert sent.headers["Content-Type"] == "application/apply-patch+yaml"


def test_apply_without_a_name_is_refused_here():
    client, _ = a_client(discovery)
    with pytest.raises(errors.BadRequest, match=r"metadata\.name"):
        client.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "x-"}})


def test_delete_sends_its_options_and_cluster_kinds_have_no_namespace():
    client, transport = a_client(lambda request: {"kind": "Status"})
    client.delete(resources.NODES, "n", grace_seconds=0)
    sent = transport.requests[0]
    assert sent.path == "/api/v1/nodes/n"
    assert isinstance(sent.body, bytes)
    assert raw.decode(sent.body)["gracePeriodSeconds"] == 0


def test_watch_lists_first_and_then_follows():
    tap = Tap()

    def answer(request):
        if request.query.get("watch"):
            assert request.query["resourceVersion"] == "7"
            return tap
        return {"metadata": {"resourceVersion": "7"}, "items": [a_pod("a", 3)]}

    client, _ = a_client(answer)
    tap.pour("MODIFIED", a_pod("a", 8))
    tap.pour("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    tap.pour("DELETED", a_pod("a", 10))
    changes = client.watch(resources.PODS)
    assert [next(changes).type for _ in range(3)] == ["ADDED", "MODIFIED", "DELETED"]


def test_watch_resumes_from_the_last_version_it_saw_bookmarks_included():
    first, second = Tap(), Tap()
    taps = iter([first, second])
    client, transport = a_client(lambda request: next(taps))
    first.pour("ADDED", a_pod("a", 3))
    first.pour("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
    first.end()
    second.pour("ADDED", a_pod("b", 21))
    changes = client.watch(resources.PODS, since="1")
    assert [next(changes).object["metadata"]["name"] for _ in range(2)] == ["a", "b"]
    assert [request.query["resourceVersion"] for request in transport.requests] == ["1", "20"]


def test_watch_that_the_server_has_forgotten_lists_again_and_makes_up_for_what_was_missed():
    first, second = Tap(), Tap()
    answers = iter(
        [
            {"metadata": {"resourceVersion": "5"}, "items": [a_pod("gone", 1), a_pod("same", 2), a_pod("changed", 3)]},
            first,
            {
                "metadata": {"resourceVersion": "50"},
                "items": [a_pod("same", 2), a_pod("changed", 40), a_pod("new", 41)],
            },
            second,
        ]
    )
    client, _ = a_client(lambda request: next(answers))
    first.poured.put(
        raw.encode({"type": "ERROR", "object": {"kind": "Status", "reason": "Expired", "code": 410}}) + b"\n"
    )
    changes = client.watch(resources.PODS)
    seen = [next(changes) for _ in range(6)]
    assert [(change.type, change.object["metadata"]["name"]) for change in seen] == [
        ("ADDED", "gone"),
        ("ADDED", "same"),
        ("ADDED", "changed"),
        ("DELETED", "gone"),
        ("MODIFIED", "changed"),
        ("ADDED", "new"),
    ]


def test_a_broken_connection_is_tried_again():
    waits: list[float] = []
    tap = Tap()
    answers = iter([refused(), refused(), tap])
    client, _ = a_client(lambda request: next(answers))
    tap.pour("ADDED", a_pod("a", 3))
    watching = Watching(client, resources.PODS, EVERYTHING, since="1", sleep=waits.append)
    assert next(watching.changes()).type == "ADDED"
    assert waits == sorted(waits)
    assert len(waits) == 2


def test_a_server_that_stays_away_ends_the_watch_with_its_error():
    client, _ = a_client(lambda request: refused())
    with pytest.raises(errors.Unavailable):
        next(Watching(client, resources.PODS, EVERYTHING, since="1", sleep=lambda seconds: None).changes())


def test_wait_looks_before_it_watches_and_sees_deletion():
    tap = Tap()
    tap.pour("DELETED", a_pod("a", 9))
    answers = iter([{"metadata": {"resourceVersion": "5"}, "items": [a_pod("a", 3)]}, tap])
    client, transport = a_client(lambda request: next(answers))
    client.wait_gone(resources.PODS, "a")
    assert transport.requests[1].query["fieldSelector"] == "metadata.name=a"
    assert transport.requests[1].query["resourceVersion"] == "5"


def test_log_lines_stay_whole_across_chunks():
    client, transport = a_client(lambda request: [b"one\ntw", b"o\n", b"\xff last"])
    assert list(client.logs("p", options=LogOptions(follow=True, tail=3))) == ["one", "two", "\ufffd last"]
    assert transport.requests[0].query == {"follow": "true", "tailLines": "3"}


def test_wait_sees_a_deletion_that_the_server_has_forgotten():
    forgotten = Tap()
    forgotten.end(errors.Expired("too old"))
    answers = iter(
        [
            {"metadata": {"resourceVersion": "5"}, "items": [a_pod("a", 3)]},
            forgotten,
            {"metadata": {"resourceVersion": "90"}, "items": []},
        ]
    )
    client, _ = a_client(lambda request: next(answers))
    client.wait_gone(resources.PODS, "a")


def test_a_watched_table_goes_on_where_its_connection_ended():
    def row(version):
        return {"rows": [{"cells": ["a"], "object": a_pod("a", version)}]}

    first, second = Tap(), Tap()
    first.pour("ADDED", row(8))
    first.end()
    second.pour("MODIFIED", row(9))
    taps = iter([first, second])
    client, transport = a_client(lambda request: next(taps))
    changes = client.watch_table(resources.PODS, Selection("default"), "7")
    assert [next(changes).type for _ in range(2)] == ["ADDED", "MODIFIED"]
    assert [request.query["resourceVersion"] for request in transport.requests] == ["7", "8"]
