import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import errors, patching, raw

scalars = st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=3)
names = st.text("ab/~0", max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=10
)  # without null, which a merge patch cannot carry
nullable = st.recursive(
    scalars | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)
documents = st.dictionaries(names, values, max_size=4)


def difference(one, other):
    """The merge patch from one to the other."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    gone = {name: None for name in one if name not in other}
    return gone | {
        n: difference(one.get(n), v) for n, v in other.items() if n not in one or not patching._same(one[n], v)
    }


MERGES = {
    "RFC 7386: a value is replaced": ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    "RFC 7386: a value is added": ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    "RFC 7386: null deletes": ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    "RFC 7386: arrays are replaced": ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    "RFC 7386: an object merges, its nulls delete": (
        {"a": {"b": "c"}},
        {"a": {"b": "d", "c": None}},
        {"a": {"b": "d"}},
    ),
    "RFC 7386: an array inside stays as it is, null and all": ({"a": [{"b": "c"}]}, {"a": [None, 1]}, {"a": [None, 1]}),
    "RFC 7386: a scalar patch replaces all": ({"a": "foo"}, "bar", "bar"),
    "RFC 7386: null replaces all": ({"a": "foo"}, None, None),
    "RFC 7386: a null in the document stays": ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    "RFC 7386: an object replaces an array": ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    "RFC 7386: nulls are dropped from what is added": ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
}


@pytest.mark.parametrize(("document", "patch", "expected"), MERGES.values(), ids=MERGES.keys())
def test_merge(document, patch, expected):
    assert patching.merge(document, patch) == expected


@given(documents, st.dictionaries(names, nullable, max_size=4))
def test_merging_twice_is_merging_once_and_arguments_stay(document, patch):
    before = raw.copy([document, patch])
    once = patching.merge(document, patch)
    assert patching.merge(once, patch) == once
    assert [document, patch] == before


@given(documents, documents)
def test_the_difference_of_two_documents_turns_one_into_the_other(one, other):
    assert patching.merge(one, difference(one, other)) == other


@given(documents, documents)
def test_the_result_shares_nothing_with_document_or_patch(document, patch):
    before = raw.copy([document, patch])
    for found in list(_containers(patching.merge(document, patch))):
        found.clear()
    assert [document, patch] == before


@given(documents, documents)
def test_what_is_shared_is_left_as_it_was(document, patch):
    before = raw.copy([document, patch])
    assert patching.merge(document, patch, shares=True) == patching.merge(*before)
    assert [document, patch] == before


def _containers(value):
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


def test_a_merge_far_too_deep_is_a_bad_request():
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    try:
        with pytest.raises(errors.BadRequest, match="nested too deeply"):
            patching.merge({}, deep)
    finally:
        while deep:
            deep = deep.pop("a")  # its destructor alone would overflow the stack on some builds


# --- JSON patch


def op(verb, path, value=..., **more):
    return {"op": verb, "path": path, **({} if value is ... else {"value": value}), **more}


JSON_PATCHES = {
    "add to an object": ({"foo": "bar"}, [op("add", "/baz", "qux")], {"foo": "bar", "baz": "qux"}),
    "add inserts into an array": ({"foo": ["a", "c"]}, [op("add", "/foo/1", "b")], {"foo": ["a", "b", "c"]}),
    "add at the end of an array": ({"foo": ["a"]}, [op("add", "/foo/-", ["b"])], {"foo": ["a", ["b"]]}),
    "add replaces what is there": ({"a": 1}, [op("add", "/a", None)], {"a": None}),
    "add at the root replaces all": ({"a": 1}, [op("add", "", {"b": 2})], {"b": 2}),
    "remove from an object": ({"a": 1, "b": 2}, [op("remove", "/b")], {"a": 1}),
    "remove from an array": ({"a": [1, 2, 3]}, [op("remove", "/a/1")], {"a": [1, 3]}),
    "replace": ({"a": [1, {"b": 2}]}, [op("replace", "/a/1/b", 3)], {"a": [1, {"b": 3}]}),
    "replace the root": ({"a": 1}, [op("replace", "", [])], []),
    "move": ({"a": {"b": 1}, "c": {}}, [op("move", "/c/d", **{"from": "/a/b"})], {"a": {}, "c": {"d": 1}}),
    "move within an array": ({"a": [1, 2, 3]}, [op("move", "/a/2", **{"from": "/a/0"})], {"a": [2, 3, 1]}),
    "move onto itself": ({"a": 1}, [op("move", "/a", **{"from": "/a"})], {"a": 1}),
    "copy": ({"a": {"b": 1}}, [op("copy", "/c", **{"from": "/a"})], {"a": {"b": 1}, "c": {"b": 1}}),
    "a copy is no alias": (
        {"a": {"b": 1}},
        [op("copy", "/c", **{"from": "/a"}), op("add", "/c/b", 2)],
        {"a": {"b": 1}, "c": {"b": 2}},
    ),
    "test passes": ({"a": [1, 1.0]}, [op("test", "/a", [1.0, 1])], {"a": [1, 1.0]}),
    "escapes": ({"a/b": 1, "m~n": 2}, [op("test", "/a~1b", 1), op("remove", "/m~0n")], {"a/b": 1}),
    "~01 is ~1": ({"~1": 1}, [op("remove", "/~01")], {}),
    "the empty name": ({"": 1}, [op("replace", "/", 2)], {"": 2}),
    "operations run in order": ({}, [op("add", "/a", {}), op("add", "/a/b", 1)], {"a": {"b": 1}}),
}


@pytest.mark.parametrize(("document", "operations", "expected"), JSON_PATCHES.values(), ids=JSON_PATCHES.keys())
def test_json_patch(document, operations, expected):
    before = raw.copy([document, operations])
    assert patching.json_patch(document, operations) == expected
    assert [document, operations] == before


REFUSED = {
    "a failing test": ([op("test", "/a", 2)], "operation 0 (test /a): the test failed: found 1"),
    "true is not 1": ([op("test", "/a", True)], "the test failed"),
    "a path that is missing": (
        [op("test", "/a", 1), op("remove", "/x/y")],
        "operation 1 (remove /x/y): there is nothing",
    ),
    "replace of nothing": ([op("replace", "/x", 1)], "there is nothing at /x"),
    "add below nothing": ([op("add", "/x/y", 1)], "there is nothing at /x"),
    "an index beyond the end": ([op("add", "/l/3", 1)], "there is nothing at /l/3: the array has"),
    "an index with a leading zero": ([op("remove", "/l/01")], "there is nothing at /l/01"),
    "a negative index": ([op("remove", "/l/-1")], "there is nothing at /l/-1"),
    "the place after the end is not there": ([op("remove", "/l/-")], "there is nothing at /l/-"),
    "an index that is a word": ([op("add", "/l/a", 1)], "there is nothing at /l/a"),
    "an index beyond all numbers": ([op("remove", "/l/" + "9" * 5000)], "there is nothing"),
    "a digit of another script": ([op("remove", "/l/²")], "there is nothing"),
    "below a scalar": ([op("add", "/a/b", 1)], "/a is neither object nor array"),
    "into itself": ([op("move", "/o/p/q", **{"from": "/o"})], "cannot move from /o into itself"),
    "copy from nowhere": ([op("copy", "/b", **{"from": "/x"})], "there is nothing at /x"),
}


@pytest.mark.parametrize(("operations", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_json_patch_that_does_not_fit_is_unprocessable(operations, message):
    with pytest.raises(errors.Invalid) as caught:
        patching.json_patch({"a": 1, "l": [1, 2], "o": {"p": {}}}, operations)
    assert message in caught.value.message


MALFORMED = {
    "not a list": ({"op": "add"}, "array of operations, found object"),
    "not an object": (["add"], "operation 0: expected an object, found string"),
    "unknown verb": ([op("add", "/a", 1), op("increment", "/a")], "operation 1: op must be one of add, remove"),
    "no verb": ([{"path": "/a"}], "found None"),
    "verb of another type": ([{"op": [], "path": "/a"}], "op must be one of"),
    "no path": ([{"op": "remove"}], "path must be a JSON pointer"),
    "path without slash": ([op("remove", "a")], "path must be a JSON pointer"),
    "no value": ([op("add", "/a")], "add needs a value"),
    "no source": ([op("move", "/a")], "from must be a JSON pointer"),
}


@pytest.mark.parametrize(("operations", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_json_patch_is_a_bad_request(operations, message):
    with pytest.raises(errors.BadRequest) as caught:
        patching.json_patch({}, operations)
    assert message in caught.value.message


def test_copies_cannot_double_without_end():
    bomb = [op("copy", "/a/-", **{"from": "/a"})] * 100
    with pytest.raises(errors.TooLarge, match="copies exceed"):
        patching.json_patch({"a": ["x"]}, bomb)


def test_too_many_operations_are_too_large():
    with pytest.raises(errors.TooLarge, match="10000 operations"):
        patching.json_patch({}, [op("test", "", {})] * 10_001)


def _pointers(value, path=""):
    yield path, value
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _pointers(item, f"{path}/{str(step).replace('~', '~0').replace('/', '~1')}")


@given(documents, values, st.data())
def test_each_operation_has_an_inverse(document, value, data):
    path, old = data.draw(st.sampled_from(list(_pointers(document))))
    replaced = patching.json_patch(document, [op("replace", path, value), op("test", path, value)])
    assert patching.json_patch(replaced, [op("replace", path, old)]) == document
    if path:
        removed = patching.json_patch(document, [op("remove", path)])
        assert patching.json_patch(removed, [op("add", path, old)]) == document


@given(documents, documents)
def test_move_is_copy_and_remove(document, other):
    both = {"from": document, "to": other}
    moved = patching.json_patch(both, [op("move", "/to/x", **{"from": "/from"})])
    assert moved == patching.json_patch(both, [op("copy", "/to/x", **{"from": "/from"}), op("remove", "/from")])


@given(nullable, nullable)
def test_nonsense_is_refused_and_never_raises_anything_else(document, operations):
    with pytest.raises((errors.Invalid, errors.BadRequest)):
        patching.json_patch(document, [operations] if operations else {})
