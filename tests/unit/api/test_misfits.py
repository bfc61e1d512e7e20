"""Which field has the wrong type, where msgspec only says in which map it is."""

import pytest

from muster.api import core, errors, objects, raw, reading
from muster.api.core.views import Pod

CASES = {
    "a label": ({"metadata": {"labels": {"a": "x", "b": 3}}}, "metadata.labels[b]"),
    "a list in a map": ({"metadata": {"annotations": {"a.b/c": ["x"]}}}, "metadata.annotations[a.b/c]"),
    "no map": ({"spec": {"containers": [{"name": 1}]}}, "spec.containers[0].name"),
    "a map below a list": (
        {"spec": {"containers": [{"resources": {"limits": {"cpu": "1", "memory": {}}}}]}},
        "spec.containers[0].resources.limits[memory]",
    ),
    "the document": ([], ""),
}


@pytest.mark.parametrize(("document", "path"), CASES.values(), ids=CASES)
def test_the_field_is_named(document: raw.JSON, path: str) -> None:
    for read in (
        lambda: objects.view_of(core.POD, document),
        lambda: objects.decode_view(core.POD, raw.encode(document)),
    ):
        with pytest.raises(errors.Invalid) as caught:
            read()
        assert [cause.path for cause in caught.value.causes] == [path or "<document>"]


def test_configurations_are_told_alike() -> None:
    found = reading.read(Pod, {"metadata": {"labels": {"a": 1}}}, "template")
    assert isinstance(found, list)
    assert str(found[0]) == "template.metadata.labels[a]: Expected `str`, got `int`"
