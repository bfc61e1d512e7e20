import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import errors, raw
from muster.server import formats
from muster.server.formats import Shape

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "shape", "version"),
    [
        ("", Shape.OBJECT, "v1"),
        ("*/*", Shape.OBJECT, "v1"),
        ("application/json", Shape.OBJECT, "v1"),
        ("application/vnd.kubernetes.protobuf,application/json", Shape.OBJECT, "v1"),
        (f"{TABLE},application/json", Shape.TABLE, "v1"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", Shape.TABLE, "v1beta1"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Shape.OBJECT, "v1"),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Shape.METADATA, "v1"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Shape.OBJECT, "v1"),
        (f"application/json;q=0.5,{TABLE};q=0.9", Shape.TABLE, "v1"),
    ],
)
def test_the_first_form_we_can_serve_is_chosen(accept, shape, version):
    assert formats.negotiate(accept) == formats.Format(shape, version)


@pytest.mark.parametrize("accept", ["application/vnd.kubernetes.protobuf", "text/html", "application/json;q=0"])
def test_where_nothing_fits_the_client_is_told(accept):
    with pytest.raises(errors.NotAcceptable, match="application/json"):
        formats.negotiate(accept)


@given(st.text())
def test_any_accept_header_is_understood_or_refused(accept):
    with contextlib.suppress(errors.NotAcceptable):
        formats.negotiate(accept)


def test_yaml_and_json_bodies_are_the_same():
    document = {"a": [1, True, None, "x"], "b": {"c": 1.5}}
    assert formats.decode(raw.encode(document), "application/json") == document
    assert formats.decode(raw.to_yaml(document).encode(), "application/yaml; charset=utf-8") == document


def test_yaml_keys_become_strings():
    assert formats.decode(b"{7: a, true: b, 2024-01-01: c}", "application/yaml") == {
        "7": "a",
        "true": "b",
        "2024-01-01": "c",
    }


BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % ((i, i, *[i - 1] * 9)) for i in range(ord("b"), ord("j"))
)


@pytest.mark.parametrize(
    ("body", "content_type", "says"),
    [
        (b"{", "application/json", "not valid JSON"),
        (b'{"a": 1e999}', "application/json", "not valid JSON"),
        (b"[1]", "application/json", "expected a JSON object"),
        (b"[" * 100_000, "application/json", "JSON"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "application/json", "deep"),
        (b"a: [", "application/yaml", "not valid YAML"),
        (b"a: .inf", "application/yaml", "JSON cannot express"),
        (b"? [a]\n: 1", "application/yaml", "YAML"),
        (b"{a: 1}\n---\n{a: 2}", "application/yaml", "found 2"),
        (b"a: !!python/object:os.system x", "application/yaml", "YAML"),
        (b"a: &a\n  b: *a", "application/yaml", "aliases"),
        (BOMB, "application/yaml", "aliases"),
    ],
)
def test_bad_bodies_are_refused_with_the_reason(body, content_type, says):
    with pytest.raises(errors.BadRequest, match=says):
        formats.decode(body, content_type)


def test_other_media_types_are_refused():
    with pytest.raises(errors.UnsupportedMediaType, match="application/yaml"):
        formats.decode(b"<a/>", "application/xml")


@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/yaml", formats.PROTOBUF_TYPE]))
def test_any_body_is_decoded_or_refused(body, content_type):
    with contextlib.suppress(errors.BadRequest):
        assert isinstance(formats.decode(body, content_type), dict)
