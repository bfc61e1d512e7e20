from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import batch, core, errors
from muster.api.everything import REGISTRY
from muster.server import paths


def parse(path: str) -> paths.Target:
    versioned = paths.version_of(paths.segments(path))
    assert versioned is not None
    return paths.parse(REGISTRY, *versioned)


@pytest.mark.parametrize(
    ("path", "kind", "namespace", "name", "subresource"),
    [
        ("/api/v1/pods", core.POD, None, "", ""),
        ("/api/v1/namespaces/a/pods", core.POD, "a", "", ""),
        ("/api/v1/namespaces/a/pods/p", core.POD, "a", "p", ""),
        ("/api/v1/namespaces/a/pods/p/log", core.POD, "a", "p", "log"),
        ("/api/v1/namespaces", core.NAMESPACE, None, "", ""),
        ("/api/v1/namespaces/a", core.NAMESPACE, None, "a", ""),
        ("/api/v1/namespaces/a/status", core.NAMESPACE, None, "a", "status"),
        ("/api/v1/namespaces/a/finalize", core.NAMESPACE, None, "a", "finalize"),
        ("/api/v1/nodes/n", core.NODE, None, "n", ""),
        ("/apis/batch/v1/namespaces/a/jobs/j/status", batch.JOB, "a", "j", "status"),
        ("/apis/events.k8s.io/v1/namespaces/a/events", core.EVENT, "a", "", ""),
        ("/api/v1/namespaces/namespaces/pods", core.POD, "namespaces", "", ""),
        ("/api/v1/namespaces/a/pods/na%6De", core.POD, "a", "name", ""),
    ],
)
def test_a_path_names_one_thing(path, kind, namespace, name, subresource):
    target = parse(path)
    assert (target.kind, target.namespace, target.name, target.subresource) == (kind, namespace, name, subresource)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/unknowns",
        "/api/v1/pods/p",
        "/api/v1/namespaces/a/nodes",
        "/api/v1/namespaces/a/pods/p/log/more",
        "/api/v2/pods",
        "/apis/batch/v1/pods",
        "/api/v1/namespaces//pods",
        "/api/v1/namespaces/a//pods",
        "/apis/batch/v1/namespaces/a",
    ],
)
def test_what_is_not_served_is_not_found(path):
    with pytest.raises(errors.NotFound):
        parse(path)


@pytest.mark.parametrize(
    "name", ["..", ".", "%2e%2e", "..%2f", "a%2Fb", "%2Fetc%2Fpasswd", "a%00b", "a%0ab", "%25", "%ff"]
)
def test_names_that_could_climb_out_are_refused(name):
    with pytest.raises(errors.BadRequest, match="segment"):
        parse(f"/api/v1/namespaces/default/pods/{name}")


def test_the_version_that_was_spoken_is_remembered():
    assert parse("/apis/events.k8s.io/v1/events").is_stored_version is False
    assert parse("/api/v1/events").is_stored_version is True


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1))
def test_a_name_is_read_back_as_it_was_encoded_or_refused(name):
    try:
        target = parse(f"/api/v1/namespaces/default/pods/{quote(name, safe='')}")
    except errors.BadRequest:
        assert "/" in name or "%" in name or name in (".", "..") or not name.isprintable()
    else:
        assert target.name == name


@given(st.text())
def test_any_path_is_parsed_or_refused(path):
    try:
        parts = paths.segments(path)
        versioned = paths.version_of(parts)
        if versioned is not None:
            paths.parse(REGISTRY, *versioned)
    except (errors.NotFound, errors.BadRequest):
        pass
