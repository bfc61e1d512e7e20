"""What LimitRanges and RuntimeClasses make of pods that are created."""

import pytest

from muster.api import core, errors, node, raw
from muster.api.core import limiting
from muster.api.node import admission
from muster.api.objects import Key, Object, decode_view
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, write_one
from muster.testing.virtual import on_virtual_time


def a_range(name="bounds", **item):
    document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"limits": [{"type": "Container", **item}]}}
    core.LIMIT_RANGE.default(document)
    return document


def a_view(document):
    return decode_view(core.LIMIT_RANGE, raw.encode(document))


def a_pod(*containers, **spec):
    listed = [{"name": f"c{index}", "image": "host", "resources": found} for index, found in enumerate(containers)]
    document = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": listed, **spec}}
    core.POD.default(document)
    return document


def a_spec(pod) -> core.PodSpec:
    view = decode_view(core.POD, raw.encode(pod))
    assert isinstance(view, core.Pod)
    return view.spec


def test_what_a_container_does_not_say_comes_from_the_first_range_that_does():
    pod = a_pod({"requests": {"cpu": "2"}}, {})
    ranges = [
        a_view(a_range("a", defaultRequest={"cpu": "1"}, default={"cpu": "3"})),
        a_view(a_range("b", defaultRequest={"cpu": "9", "memory": "1Gi"})),
    ]
    limiting.fill_in(pod, ranges)
    said, silent = (container["resources"] for container in pod["spec"]["containers"])
    assert said == {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3"}}
    assert silent == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "3"}}
    assert pod["metadata"]["annotations"][limiting.ANNOTATION] == (
        "LimitRanger plugin set: cpu limit for container c0; cpu request for container c1; cpu limit for container c1; "
        "memory request for container c0; memory request for container c1"
    )
    assert pod["status"]["qosClass"] == "Burstable"


def test_a_limit_without_a_request_is_the_request_before_the_range_has_its_say():
    pod = a_pod({"limits": {"cpu": "4"}})
    limiting.fill_in(pod, [a_view(a_range(defaultRequest={"cpu": "1"}))])
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    assert "annotations" not in pod["metadata"]


BOUNDS = {
    "too much": ({"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "limits[cpu]", "maximum cpu usage per Container"),
    "no limit": ({"max": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, "limits[cpu]", "no limit is specified"),
    "too little": ({"min": {"cpu": "1"}}, {"requests": {"cpu": "500m"}}, "requests[cpu]", "but request is 500m"),
    "a limit too low": (
        {"min": {"cpu": "1"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "500m"}}, "limits[cpu]", "limit is 500m"
    ),
    "no request": ({"min": {"cpu": "1"}}, {}, "requests[cpu]", "no request is specified"),
    "a limit far above the request": (
        {"maxLimitRequestRatio": {"cpu": "2"}},
        {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
        "limits[cpu]",
        "but provided ratio is 3",
    ),
    "no ratio at all": ({"maxLimitRequestRatio": {"cpu": "2"}}, {}, "requests[cpu]", "no request is specified or"),
}  # fmt: skip


@pytest.mark.parametrize(("item", "resources", "field", "words"), BOUNDS.values(), ids=BOUNDS.keys())
def test_bounds(item, resources, field, words):
    spec = a_spec(a_pod(resources))
    found = limiting.check(spec, [a_view({"spec": {"limits": [{"type": "Container", **item}]}})])
    assert (f"spec.containers[0].resources.{field}", True) in [(one.path, words in one.message) for one in found]


def test_a_pod_is_bounded_as_a_whole_and_by_what_is_said_of_it_as_a_whole():
    bounds = [a_view({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "3"}}]}})]
    two = {"limits": {"cpu": "2"}}
    apart = a_spec(a_pod(two, two, overhead={"cpu": "9"}))
    assert [one.message for one in limiting.check(apart, bounds)] == [
        "maximum cpu usage per Pod is 3, but limit is 4",
        "maximum cpu usage per Pod is 3, but request is 4",
    ]
    together = a_spec(a_pod({}, {}, resources={"limits": {"cpu": "3"}}))
    assert limiting.check(together, bounds) == []


# Runtime classes

KATA = {
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m"}},
    "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]},
}
PLAIN = {"metadata": {"name": "plain"}, "handler": "runc"}


def classes(kind, key):
    known = {"kata": KATA, "plain": PLAIN}
    assert kind is node.RUNTIME_CLASS
    found = known.get(key.name)
    return None if found is None else Object(node.RUNTIME_CLASS, raw.encode(found))


def test_a_runtime_class_gives_its_overhead_and_its_nodes():
    pod = a_pod({}, runtimeClassName="kata", nodeSelector={"zone": "a"})
    assert admission.fill_in(pod, classes) == ""
    assert pod["spec"]["overhead"] == {"cpu": "250m"}
    assert pod["spec"]["nodeSelector"] == {"zone": "a", "vm": "yes"}
    assert {"key": "vm", "operator": "Exists"} in pod["spec"]["tolerations"]
    again = raw.copy(pod)
    assert admission.fill_in(again, classes) == ""
    assert again == pod


REFUSED = {
    "no such class": ({"runtimeClassName": "gvisor"}, 'RuntimeClass "gvisor" not found'),
    "an overhead of its own": ({"overhead": {"cpu": "1"}}, "no RuntimeClass says so"),
    "another overhead": ({"runtimeClassName": "kata", "overhead": {"cpu": "1"}}, "differs from that of"),
    "an overhead too many": ({"runtimeClassName": "plain", "overhead": {"cpu": "1"}}, "has none"),
    "other nodes": ({"runtimeClassName": "kata", "nodeSelector": {"vm": "no"}}, 'nodeSelector[vm] is "no"'),
}


@pytest.mark.parametrize(("spec", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(spec, words):
    assert words in admission.fill_in(a_pod({}, **spec), classes)


def test_the_same_overhead_written_otherwise_is_the_same():
    assert admission.fill_in(a_pod({}, runtimeClassName="kata", overhead={"cpu": "0.25"}), classes) == ""


def problems(document, old=None):
    view = decode_view(node.RUNTIME_CLASS, raw.encode(document))
    if old is not None:
        return [
            one.path
            for one in node.RUNTIME_CLASS.validate_update(decode_view(node.RUNTIME_CLASS, raw.encode(old)), view)
        ]
    return [one.path for one in node.RUNTIME_CLASS.validate(view)]


def test_a_runtime_class_has_a_handler_that_stays():
    assert problems(KATA) == []
    assert problems({**KATA, "handler": ""}) == ["handler"]
    assert problems({**KATA, "handler": "No Good"}) == ["handler"]
    assert problems({**KATA, "overhead": {"podFixed": {"cpu": "much"}}}) == ["overhead.podFixed[cpu]"]
    assert problems({**KATA, "handler": "other"}, KATA) == ["handler"]
    assert problems({**KATA, "overhead": None}, KATA) == []


# In the store


@on_virtual_time
async def test_a_store_fills_in_and_refuses_whoever_makes_the_pod(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await write_one(store, Create(node.RUNTIME_CLASS, raw.copy(KATA)))
        await write_one(store, Create(core.LIMIT_RANGE, a_range(default={"cpu": "1"}, max={"cpu": "2"})))
        await write_one(store, Create(core.POD, a_pod({}, runtimeClassName="kata")))
        made = (await store.get(core.POD, Key("default", "p"))).document()["spec"]
        assert made["containers"][0]["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
        assert made["overhead"] == {"cpu": "250m"}
        large = a_pod({"limits": {"cpu": "3"}})
        large["metadata"]["name"] = "large"
        with pytest.raises(errors.Forbidden) as refused:
            await write_one(store, Create(core.POD, large))
        assert refused.value.message.startswith('pods "large" is forbidden: spec.containers[0].resources.limits[cpu]: ')
        assert [cause.path for cause in refused.value.causes] == [
            "spec.containers[0].resources.limits[cpu]",
            "spec.containers[0].resources.requests[cpu]",
        ]
        nameless = a_pod({}, runtimeClassName="gvisor")
        nameless["metadata"]["name"] = "other"
        with pytest.raises(errors.Forbidden, match='pod rejected: RuntimeClass "gvisor" not found'):
            await write_one(store, Create(core.POD, nameless))
