from muster.api import core, raw, volcano
from muster.api.objects import Object
from muster.controllers import gangs
from muster.controllers.gangs import GangKey, Waiting
from muster.placement import Gang
from muster.testing.builders import Builder, PodBuilder, a_pod, a_pod_group


def stored(builder: Builder) -> Object:
    kind = volcano.POD_GROUP if builder.document()["kind"] == "PodGroup" else core.POD
    return Object(kind, raw.encode(builder.set(f"uid-{builder.key.name}", "metadata", "uid").document()))


def form(*pods: PodBuilder, minimum: int | None, assumed: tuple[str, ...] = ()) -> Gang | Waiting | None:
    group = None if minimum is None else stored(a_pod_group("g").min_member(minimum))
    return gangs.form(GangKey("default", group="g"), map(stored, pods), group, lambda uid: uid in assumed)


def a_member(name: str) -> PodBuilder:
    return a_pod(name).in_group("g")


def test_a_pod_belongs_to_the_group_it_names_or_stands_alone() -> None:
    assert gangs.key_of(stored(a_pod("p"))) == GangKey("default", pod="p")
    assert gangs.key_of(stored(a_member("p"))) == GangKey("default", group="g")


def test_only_pods_that_are_free_to_go_want_a_node() -> None:
    assert gangs.wants_node(stored(a_pod("p")))
    assert not gangs.wants_node(stored(a_pod("p").on_node("n")))
    assert not gangs.wants_node(stored(a_pod("p").gated("quota")))
    assert not gangs.wants_node(stored(a_pod("p").phase("Succeeded")))
    assert not gangs.wants_node(stored(a_pod("p").set("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")))


def test_a_gang_waits_until_enough_of_it_is_there() -> None:
    waiting = form(a_member("a"), a_member("b").gated("quota"), minimum=2)
    assert isinstance(waiting, Waiting)
    assert waiting.message == 'pod group "g" needs 2 pods to start, 1 of them are there'
    assert [key.name for key in waiting.pods] == ["a"]
    complete = form(a_member("a"), a_member("b"), a_member("c"), minimum=2)
    assert isinstance(complete, Gang)
    assert (len(complete.pods), complete.missing) == (3, 2)


def test_a_gang_waits_for_its_group() -> None:
    waiting = form(a_member("a"), minimum=None)
    assert isinstance(waiting, Waiting)
    assert waiting.message == 'pod group "g" does not exist'


def test_members_that_run_or_ran_count_but_lost_ones_do_not() -> None:
    gang = form(
        a_member("wants"),
        a_member("runs").on_node("n").phase("Running"),
        a_member("done").on_node("n").phase("Succeeded"),
        a_member("failed").on_node("n").phase("Failed"),
        a_member("leaves").on_node("n").set("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"),
        minimum=3,
    )
    assert isinstance(gang, Gang)
    assert (gang.bound, gang.missing) == (2, 1)


def test_a_member_whose_node_was_just_chosen_counts_as_bound() -> None:
    gang = form(a_member("a"), a_member("b"), minimum=2, assumed=("uid-a",))
    assert isinstance(gang, Gang)
    assert ([pod.key.name for pod in gang.pods], gang.bound) == (["b"], 1)
    assert form(a_member("a"), minimum=1, assumed=("uid-a",)) is None


def test_urgent_comes_before_old_and_old_before_young() -> None:
    def pod(priority: int, created: str) -> Object:
        return stored(a_pod("p").set(priority, "spec", "priority").set(created, "metadata", "creationTimestamp"))

    urgent, old, young = pod(10, "2026-03-01T00:00:00Z"), pod(0, "2026-01-01T00:00:00Z"), pod(0, "2026-02-01T00:00:00Z")
    order = sorted([[young], [old], [urgent]], key=gangs.urgency)
    assert order == [[urgent], [old], [young]]
