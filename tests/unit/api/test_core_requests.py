from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, quantity
from muster.api.core import Container, PodSpec, ResourceRequirements

NAMES = ("cpu", "memory", "nvidia.com/gpu")
amounts = st.sampled_from(["0", "1", "250m", "1.5", "3", "1Ki", "333u"])
lists = st.none() | st.dictionaries(st.sampled_from(NAMES), amounts)
resources = st.none() | st.builds(ResourceRequirements, requests=lists, limits=lists)
containers = st.lists(st.builds(Container, resources=resources), max_size=4).map(tuple)
init_containers = st.lists(
    st.builds(Container, resources=resources, restart_policy=st.sampled_from([None, "Always"])), max_size=4
).map(tuple)
specs = st.builds(PodSpec, containers=containers, init_containers=init_containers, overhead=lists, resources=resources)


def amount(text):
    return Fraction(quantity.parse(text).nano, quantity.NANO)


def asked(container, part, name):
    """What one container asks of one resource, or None."""
    found = container.resources or ResourceRequirements()
    value = (getattr(found, part) or {}).get(name)
    if value is None and part == "requests":
        value = (found.limits or {}).get(name)
    return None if value is None else amount(value)


def reference(spec, part, name):
    """Walk through the pod's life, moment by moment, and see the most that is in use at once."""
    moments: list[list[Container]] = []
    running: list[Container] = []
    for container in spec.init_containers:
        moments.append([*running, container])
        if container.restart_policy == "Always":
            running.append(container)
    moments.append([*running, *spec.containers])
    given = [[a for c in moment if (a := asked(c, part, name)) is not None] for moment in moments]
    total = max((sum(values) for values in given if values), default=None)
    if name in ("cpu", "memory"):
        whole = asked(spec, part, name)
        total = whole if whole is not None else total
    extra = (spec.overhead or {}).get(name)
    if extra is not None and (part == "requests" or total):
        total = (total or 0) + amount(extra)
    if total is None:
        return None
    scaled = total * 1000 if name == "cpu" else total
    return -(-scaled // 1)


@given(specs)
def test_requests_are_the_most_that_is_in_use_at_once(spec):
    found = core.pod_requests(spec)
    assert {name: found.get(name) for name in NAMES} == {name: reference(spec, "requests", name) for name in NAMES}


@given(specs)
def test_limits_are_the_most_that_may_be_in_use_at_once(spec):
    found = core.pod_limits(spec)
    assert {name: found.get(name) for name in NAMES} == {name: reference(spec, "limits", name) for name in NAMES}


def container(restart_policy=None, **requests):
    return Container(restart_policy=restart_policy, resources=ResourceRequirements(requests=requests))


def test_a_sidecar_counts_under_later_init_containers_and_under_the_rest():
    spec = PodSpec(
        init_containers=(container(cpu="3"), container("Always", cpu="1"), container(cpu="2")),
        containers=(container(cpu="500m"), container(cpu="1")),
    )
    assert core.pod_requests(spec) == {"cpu": 3000}


def test_parts_add_up_before_they_are_rounded():
    spec = PodSpec(containers=(container(cpu="300u"), container(cpu="300u"), container(cpu="300u")))
    assert core.pod_requests(spec) == {"cpu": 1}


def test_a_sum_beyond_64_bits_is_capped():
    spec = PodSpec(containers=(container(memory="9e18"), container(memory="9e18"), container(cpu="9e15")))
    assert core.pod_requests(spec) == {"memory": 2**63 - 1, "cpu": 9 * 10**18}


def test_a_pod_without_requests_asks_for_nothing():
    assert core.pod_requests(PodSpec(containers=(Container(),))) == {}
