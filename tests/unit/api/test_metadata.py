import pytest

from muster.api import core, fields, metadata
from muster.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference

OWNER = OwnerReference(api_version="v1", kind="Pod", name="p", uid="u")


def found(meta, namespaced=True, **options):
    return {(error.path, error.reason) for error in metadata.validate_metadata(namespaced, meta, **options)}


GOOD = {
    "a plain name": ObjectMeta(name="web"),
    "a name with dots": ObjectMeta(name="web.example.com", namespace="default"),
    "a prefix that ends with a dash": ObjectMeta(generate_name="web-"),
    "labels, annotations, finalizers and owners": ObjectMeta(
        name="web",
        labels={"app": "web", "example.com/tier": ""},
        annotations={"example.com/Note": "anything at all\n"},
        finalizers=("example.com/hold", "foregroundDeletion"),
        owner_references=(OWNER, OwnerReference(api_version="v1", kind="Pod", name="q", uid="v", controller=True)),
    ),
}


@pytest.mark.parametrize("meta", GOOD.values(), ids=GOOD.keys())
def test_good_metadata(meta):
    assert found(meta) == set()


BAD = {
    "no name at all": (ObjectMeta(), "metadata.name", "FieldValueRequired"),
    "capitals": (ObjectMeta(name="Web"), "metadata.name", "FieldValueInvalid"),
    "a path": (ObjectMeta(name="../etc/passwd"), "metadata.name", "FieldValueInvalid"),
    "two dots": (ObjectMeta(name="a..b"), "metadata.name", "FieldValueInvalid"),
    "only dots": (ObjectMeta(name=".."), "metadata.name", "FieldValueInvalid"),
    "too long": (ObjectMeta(name="a" * 254), "metadata.name", "FieldValueInvalid"),
    "a line break": (ObjectMeta(name="a\n"), "metadata.name", "FieldValueInvalid"),
    "a prefix that is only a dash": (ObjectMeta(generate_name="-"), "metadata.generateName", "FieldValueInvalid"),
    "a prefix with a space": (ObjectMeta(generate_name="a b-"), "metadata.generateName", "FieldValueInvalid"),
    "a namespace with a dot": (ObjectMeta(name="a", namespace="x.y"), "metadata.namespace", "FieldValueInvalid"),
    "a label key": (ObjectMeta(name="a", labels={"-": "x"}), "metadata.labels", "FieldValueInvalid"),
    "a label value": (ObjectMeta(name="a", labels={"a": "x y"}), "metadata.labels", "FieldValueInvalid"),
    "an annotation key": (ObjectMeta(name="a", annotations={"a b": ""}), "metadata.annotations", "FieldValueInvalid"),
    "a finalizer": (ObjectMeta(name="a", finalizers=("x y",)), "metadata.finalizers[0]", "FieldValueInvalid"),
    "an owner without uid": (
        ObjectMeta(name="a", owner_references=(OwnerReference(api_version="v1", kind="Pod", name="p"),)),
        "metadata.ownerReferences[0].uid",
        "FieldValueRequired",
    ),
    "two controllers": (
        ObjectMeta(
            name="a",
            owner_references=tuple(
                OwnerReference(api_version="v1", kind="Pod", name=n, uid=n, controller=True) for n in "pq"
            ),
        ),
        "metadata.ownerReferences",
        "FieldValueInvalid",
    ),
}


@pytest.mark.parametrize(("meta", "path", "reason"), BAD.values(), ids=BAD.keys())
def test_bad_metadata(meta, path, reason):
    assert found(meta) == {(path, reason)}


def test_a_cluster_scoped_object_has_no_namespace():
    assert found(ObjectMeta(name="a", namespace="b"), namespaced=False) == {
        ("metadata.namespace", "FieldValueForbidden")
    }


def test_a_kind_may_have_a_stricter_rule():
    assert found(ObjectMeta(name="a.b"), name_rule=fields.dns_label) == {("metadata.name", "FieldValueInvalid")}


def test_everything_wrong_is_said_at_once():
    meta = ObjectMeta(name="A", labels={"a": "x y"}, finalizers=("x y",))
    assert len(metadata.validate(core.POD, meta)) == 3


def problems(**selector):
    return [error.path for error in metadata.validate_label_selector("s", LabelSelector(**selector))]


def test_label_selectors():
    def term(operator, *values, key="a"):
        return LabelSelectorRequirement(key=key, operator=operator, values=values)

    assert problems(match_labels={"a": "b"}, match_expressions=(term("In", "x"), term("Exists"))) == []
    assert problems(match_labels={"a b": "b"}) == ["s.matchLabels"]
    assert problems(match_expressions=(term("In"),)) == ["s.matchExpressions[0].values"]
    assert problems(match_expressions=(term("Exists", "x"),)) == ["s.matchExpressions[0].values"]
    assert problems(match_expressions=(term("Near", "x"),)) == ["s.matchExpressions[0].operator"]
    assert problems(match_expressions=(term("Exists", key=""),)) == ["s.matchExpressions[0].key"]
    assert problems(match_expressions=(term("In", "x y"),)) == ["s.matchExpressions[0].values[0]"]
    assert list(metadata.validate_label_selector("s", None)) == []
