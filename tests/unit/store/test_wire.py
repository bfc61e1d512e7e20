"""The Kubernetes API as bytes."""

from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, raw
from muster.api.objects import Key
from muster.store import wire
from muster.store.protocol import Apply, Create, Delete, Options, Patch

_texts = st.text(max_size=12)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_managed = st.lists(st.dictionaries(_texts, _values, max_size=3), min_size=1, max_size=3)


_more = st.dictionaries(_texts.map("x-{}".format), _values, max_size=3)


@given(_managed, _more, _more, _values)
def test_objects_come_without_who_manages_their_fields(managed, before, after, spec):
    tricky = {"labels": {"managedFields": '"managedFields":[]'}}
    kept = {**before, "resourceVersion": "5", **tricky, **after}
    whole = {**before, "resourceVersion": "5", "managedFields": managed, **tricky, **after}
    item = {"metadata": whole, "spec": spec}
    (listed,) = wire.page(core.CONFIG_MAP, raw.encode({"metadata": {"resourceVersion": "9"}, "items": [item]})).items
    assert listed.document() == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": kept, "spec": spec}
    event = wire.event(core.CONFIG_MAP, raw.encode({"type": "ADDED", "object": item}))
    assert event.object is not None
    assert (event.object.document(), event.revision) == ({"metadata": kept, "spec": spec}, 5)


def test_who_manages_fields_may_stand_anywhere():
    managed = '"managedFields":[{"manager":"x","fieldsV1":{"f:a":{}}}]'
    for before, after in (("", ""), ('"name":"a",', ""), ("", ',"name":"a"'), ('"uid":"u",', ',"name":"a"')):
        line = f'{{"type":"ADDED","object":{{"metadata":{{{before}{managed}{after}}}}}}}'
        found = wire.event(core.POD, line.encode()).object
        assert found is not None
        assert set(found.document()["metadata"]) == set(raw.decode_object(f"{{{before}{managed}{after}}}")) - {
            "managedFields"
        }


def test_requests_name_what_they_are_about():
    key = Key("team", "a b/c")
    options = Options(manager="some one", dry_run=True, unknown_fields="Strict")
    patch = wire.request(Patch(core.POD, key, {}, subresource="status", options=options))
    query = "fieldManager=some+one&fieldValidation=Strict&dryRun=All"
    assert patch.target == f"/api/v1/namespaces/team/pods/a%20b%2Fc/status?{query}"
    made = wire.request(Create(core.NODE, {"metadata": {"name": "n"}}))
    assert made.path == "/api/v1/nodes"
    forced = wire.request(Apply(core.NODE, Key("", "n"), {}, force=True))
    assert forced.target == "/api/v1/nodes/n?fieldManager=muster&fieldValidation=Ignore&force=true"


def test_a_pod_that_may_only_go_within_its_budgets_is_evicted():
    request = wire.request(Delete(core.POD, Key("team", "p"), grace_seconds=5, uid="u", within_budgets=True))
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/team/pods/p/eviction")
    body = raw.decode_object(request.body)
    assert body["deleteOptions"]["gracePeriodSeconds"] == 5
    assert body["deleteOptions"]["preconditions"] == {"uid": "u"}
