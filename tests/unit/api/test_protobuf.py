"""The vectors were written by Kubernetes' own serializer (Go, k8s.io/api v0.34.1) next to the JSON of the same objects,
from which empty structs and nulls were dropped."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import errors, protobuf
from muster.api.protobuf import decoding

VECTORS = json.loads(Path(__file__).with_name("test_protobuf_vectors.json").read_text())
BODIES = {vector["name"]: bytes.fromhex(vector["hex"]) for vector in VECTORS}


def varint(value):
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value % 2**64)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(content, version="v1", kind="Pod", **more):
    head = field(1, field(1, version) + field(2, kind))
    tail = b"".join(field({"encoding": 3, "media": 4}[name], value) for name, value in more.items())
    return b"k8s\x00" + head + field(2, content) + tail


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_document_is_what_the_same_object_is_as_json(vector):
    assert protobuf.decode(bytes.fromhex(vector["hex"])) == vector["document"]


def pod(spec):
    return protobuf.decode(body(field(2, spec)))["spec"]


def test_an_explicit_zero_of_an_optional_field_counts_and_another_zero_does_not():
    assert pod(field(4, 0) + field(3, "") + field(11, 0) + field(11, 1)) == {
        "terminationGracePeriodSeconds": 0,
        "hostNetwork": True,
    }


def test_numbers_may_be_negative_and_packed():
    assert pod(field(25, -(2**31))) == {"priority": -(2**31)}
    assert pod(field(14, field(4, 1) + field(4, varint(2) + varint(3)))) == {
        "securityContext": {"supplementalGroups": [1, 2, 3]}
    }


def test_a_message_in_pieces_is_one_message():
    meta = [field(1, field(1, "name")), field(1, field(3, "space"))]
    assert protobuf.decode(body(b"".join(meta)))["metadata"] == {"name": "name", "namespace": "space"}


def test_fields_of_a_newer_client_are_passed_over():
    unknown = varint(9999 << 3 | 1) + b"12345678" + varint(9998 << 3 | 5) + b"1234" + field(9997, 5) + field(9996, "x")
    assert protobuf.decode(body(unknown + field(1, field(1, "p")))) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
    }


def test_a_later_time_keeps_its_microseconds_and_an_empty_one_is_absent():
    def lease(time):
        return protobuf.decode(body(field(2, field(4, time)), "coordination.k8s.io/v1", "Lease")).get("spec", {})

    assert lease(field(1, 1) + field(2, 5_000)) == {"renewTime": "1970-01-01T00:00:01.000005Z"}
    assert lease(b"") == {}


def test_json_in_the_envelope_is_taken_as_it_is():
    made = protobuf.decode(body(b'{"spec":{"x":1}}', media="application/json"))
    assert made == {"apiVersion": "v1", "kind": "Pod", "spec": {"x": 1}}


BAD = {
    "no magic": (b'{"kind":"Pod"}', "does not begin with"),
    "nothing": (b"", "does not begin with"),
    "no kind": (b"k8s\x00", 'kind "" in version ""'),
    "a kind without protobuf": (body(b"", "kueue.x-k8s.io/v1beta2", "Workload"), 'kind "Workload" .*send JSON'),
    "a kind of another version": (body(b"", "batch/v2", "Job"), "batch/v2"),
    "compressed": (body(b"", encoding="gzip"), "encoded as 'gzip'"),
    "another media type": (body(b"", media="text/plain"), "holds 'text/plain'"),
    "cut off within a field": (body(field(1, b"xx")[:-1]), "cut off"),
    "cut off within a number": (body(b"\x80"), "cut off"),
    "a number without end": (body(b"\xff" * 20), "more than ten bytes"),
    "a length beyond everything": (body(b"\x0a" + varint(2**63)), "cut off"),
    "a group": (body(b"\x0b\x0c"), "wire type 3"),
    "field zero": (body(b"\x00\x00"), "field number 0"),
    "a number for a message": (body(field(1, 5)), "a number stands where bytes"),
    "bytes for a number": (body(field(2, field(25, "x"))), "bytes stand where a number"),
    "text that is none": (body(field(1, field(1, b"\xff"))), "not UTF-8"),
    "a time after the end of time": (body(field(1, field(8, field(1, 2**60)))), "year 9999"),
    "more nanoseconds than a second has": (body(field(1, field(8, field(2, -1)))), "-1 nanoseconds"),
    "ownership that is no JSON": (body(field(1, field(17, field(7, field(1, "{"))))), "not valid JSON"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD.keys())
def test_what_makes_no_sense_is_a_bad_request(data, message):
    with pytest.raises(errors.BadRequest, match=message):
        protobuf.decode(data)


@given(st.sampled_from(list(BODIES.values())), st.data())
def test_a_body_cut_anywhere_is_refused_or_decoded_but_never_breaks_the_decoder(whole, data):
    cut = data.draw(st.integers(0, len(whole) - 1))
    with contextlib.suppress(errors.BadRequest):
        protobuf.decode(whole[:cut])


@given(
    st.sampled_from(list(BODIES.values())), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4)
)
def test_flipped_bytes_never_break_the_decoder(whole, flips):
    spoiled = bytearray(whole)
    for at, byte in flips:
        spoiled[4 + at % (len(whole) - 4)] = byte
    with contextlib.suppress(errors.BadRequest):
        json.dumps(protobuf.decode(bytes(spoiled)))


@given(st.sampled_from(sorted(decoding._table().kinds)), st.binary(max_size=64))
def test_no_content_breaks_the_decoder(kind, content):
    version, _, name = kind.partition(" ")
    with contextlib.suppress(errors.BadRequest):
        protobuf.decode(body(content, version.replace("*", "v1"), name))


def test_every_type_in_the_table_can_be_decoded():
    table = decoding._table()
    known = set(decoding._DECODERS) | set(table.messages) | set(table.lists)
    types = {found.type for message in table.messages.values() for found in message.values()}
    assert types | set(table.kinds.values()) | set(table.lists.values()) <= known
    assert not {found for found in decoding._DECODERS if "." in found} & set(table.messages)
