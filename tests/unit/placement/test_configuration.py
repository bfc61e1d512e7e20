from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.errors import FieldError
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement import configuration
from muster.placement.configuration import Configuration, Factory
from muster.placement.extending import ManagedResource, Verb
from muster.placement.framework import NodeScores, Reads, Rejection, Status
from muster.placement.in_tree import DEFAULTS, IN_TREE, INERT, POINTS
from muster.placement.plugins.default_preemption import DefaultPreemption
from muster.placement.profiles import Profile, name_of

V1 = "kubescheduler.config.k8s.io/v1"


class Both:
    """A plugin from elsewhere that filters, scores and gates."""

    name: ClassVar[str] = "Both"
    reads: ClassVar[Reads] = Reads.NODES

    def __init__(self, args: Any) -> None:
        if args.get("bad"):
            raise ValueError("bad is bad")
        self.args = args

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        return ()

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        return np.zeros(cluster.width, dtype=np.int64)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return Status()


class Backwards:
    name: ClassVar[str] = "Backwards"

    def __init__(self, args: Any) -> None:
        pass

    def sort_key(self, pod: PodInfo, queued: float) -> tuple[int, float]:
        return pod.priority, -queued


class Unread:
    """Forgot to say what it reads."""

    name: ClassVar[str] = "Unread"

    def __init__(self, args: Any) -> None:
        pass

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        return ()

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return Status()


class Misnamed(Both):
    name: ClassVar[str] = "SomethingElse"


class Idle:
    name: ClassVar[str] = "Idle"

    def __init__(self, args: Any) -> None:
        pass


def picky(args: Any) -> Any:
    return [FieldError(key, "FieldValueForbidden", "unknown") for key in args] or Both(args)


OFFERED: dict[str, Any] = {kind.__name__: kind for kind in (Both, Backwards, Unread, Misnamed, Idle)}
OFFERED["Picky"] = picky


def load(name: str) -> Factory | None:
    if name == "Broken":
        raise ModuleNotFoundError("No module named 'torch'")
    return OFFERED.get(name)


def document(**profile: Any) -> dict[str, Any]:
    return {"apiVersion": V1, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}


def read(found: object, **more: Any) -> Configuration:
    assert isinstance(found, dict)
    result = configuration.parse({**found, **more}, load)
    assert isinstance(result, Configuration), [str(error) for error in result]
    return result


def profile(**parts: Any) -> Profile:
    (found,) = read(document(**parts)).profiles.values()
    return found


def errors(found: object) -> dict[str, str]:
    result = configuration.parse(found, load)
    assert isinstance(result, list)
    return {error.path: error.message for error in result}


def enabled(*names: str, **weighted: int) -> list[dict[str, Any]]:
    return [{"name": name} for name in names] + [{"name": name, "weight": weight} for name, weight in weighted.items()]


def called(profile: Profile, point: str) -> list[str]:
    return [name_of(getattr(entry, "plugin", entry)) for entry in getattr(profile, point)]


EVERYWHERE = [default.name for default in DEFAULTS]


# What users have


def test_nothing_configured_is_the_default() -> None:
    found = configuration.default()
    assert list(found.profiles) == ["default-scheduler"]
    assert [plugin.name for plugin in found.profiles["default-scheduler"].plugins] == EVERYWHERE
    assert (found.initial_backoff, found.max_backoff, list(found.warnings)) == (1, 10, [])
    assert name_of(found.queue_sort) == "PrioritySort"


@pytest.mark.parametrize("version", [V1, "kubescheduler.config.k8s.io/v1beta3"])
def test_a_configuration_with_everything_that_kube_scheduler_takes(version: str) -> None:
    found = configuration.parse_text(
        f"""
apiVersion: {version}
kind: KubeSchedulerConfiguration
parallelism: 16
leaderElection: {{leaderElect: true, leaseDuration: 15s, resourceLock: leases, resourceName: s, resourceNamespace: n}}
clientConnection: {{kubeconfig: /etc/kubernetes/scheduler.conf, qps: 50.5, burst: 100}}
enableProfiling: true
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 60
profiles:
  - schedulerName: default-scheduler
    percentageOfNodesToScore: 50
    pluginConfig:
      - name: NodeResourcesFit
        args:
          apiVersion: {version}
          kind: NodeResourcesFitArgs
          scoringStrategy: {{type: MostAllocated, resources: [{{name: nvidia.com/gpu, weight: 5}}]}}
      - name: VolumeBinding
        args: {{bindTimeoutSeconds: 600}}
      - name: NodeVolumeLimits
        args: {{}}
  - schedulerName: no-scoring
    plugins:
      preScore: {{disabled: [{{name: "*"}}]}}
      score: {{disabled: [{{name: "*"}}]}}
extenders:
  - urlPrefix: https://extender.example.com/scheduler/
    filterVerb: filter
    prioritizeVerb: prioritize
    weight: 5
    bindVerb: bind
    preemptVerb: preempt
    enableHTTPS: true
    tlsConfig: {{insecure: true}}
    httpTimeout: 1m0.5s
    nodeCacheCapable: true
    ignorable: true
    managedResources: [{{name: example.com/foo, ignoredByScheduler: true}}]
  - urlPrefix: http://other:8080
    filterVerb: filter
"""
    )
    assert isinstance(found, Configuration), found
    assert set(found.profiles) == {"default-scheduler", "no-scoring"}
    assert called(found.profiles["no-scoring"], "score") == called(found.profiles["no-scoring"], "pre_score") == []
    assert called(found.profiles["no-scoring"], "filter") == called(found.profiles["default-scheduler"], "filter")
    assert (found.initial_backoff, found.max_backoff) == (2, 60)
    other, first = found.extenders
    assert other.name == "http://other:8080"
    assert other.timeout_seconds == 5
    assert first.timeout_seconds == 60.5
    assert first.url(Verb.FILTER) == "https://extender.example.com/scheduler/filter"
    assert first.managed_resources == (ManagedResource("example.com/foo", True),)
    assert first.tls is not None
    assert first.tls.insecure
    assert [consultant.extender for consultant in found.consultants] == [first]
    warned = "\n".join(found.warnings)
    assert "percentageOfNodesToScore" in warned
    assert "plugin NodeVolumeLimits does nothing here" in warned


# Which plugin is called where: kube-scheduler's rules


def test_plugins_that_are_enabled_everywhere_come_after_the_defaults() -> None:
    found = profile(plugins={"multiPoint": {"enabled": enabled(Both=7)}})
    assert called(found, "filter")[-1] == "Both"
    assert called(found, "pre_enqueue") == ["SchedulingGates", "DefaultPreemption", "GangScheduling", "Both"]
    assert {name_of(entry.plugin): entry.weight for entry in found.score}["Both"] == 7


def test_a_default_that_is_named_again_keeps_its_place_and_gets_the_new_weight() -> None:
    found = profile(plugins={"multiPoint": {"enabled": enabled("Both", NodeAffinity=9)}})
    assert [plugin.name for plugin in found.plugins] == [*EVERYWHERE, "Both"]
    assert {name_of(entry.plugin): entry.weight for entry in found.score}["NodeAffinity"] == 9


def test_a_default_that_is_disabled_and_enabled_again_goes_to_the_end() -> None:
    found = profile(plugins={"multiPoint": {"enabled": enabled("NodeName"), "disabled": enabled("NodeName")}})
    assert called(found, "filter")[-1] == "NodeName"


def test_a_weight_of_the_extension_point_goes_before_one_that_holds_everywhere() -> None:
    sets = {"multiPoint": {"enabled": enabled(NodeAffinity=9)}, "score": {"enabled": enabled(NodeAffinity=4)}}
    weights = {name_of(entry.plugin): entry.weight for entry in profile(plugins=sets).score}
    assert weights["NodeAffinity"] == 4
    assert weights["TaintToleration"] == 3


def test_a_weight_of_zero_is_one() -> None:
    weights = {
        name_of(entry.plugin): entry.weight
        for entry in profile(plugins={"score": {"enabled": enabled(TaintToleration=0)}}).score
    }
    assert weights["TaintToleration"] == 1


def test_order_at_a_point_is_named_again_then_everywhere_then_only_here() -> None:
    sets = {"filter": {"enabled": enabled("Both", "NodePorts", "NodeName")}}
    order = called(profile(plugins=sets), "filter")
    assert order[:2] == ["NodePorts", "NodeName"]
    assert order[2:-1] == [name for name in called(profile(), "filter") if name not in ("NodePorts", "NodeName")]
    assert order[-1] == "Both"


def test_a_plugin_that_is_disabled_and_enabled_at_a_point_comes_last_there() -> None:
    sets = {"filter": {"enabled": enabled("NodeName"), "disabled": enabled("NodeName")}}
    found = profile(plugins=sets)
    assert called(found, "filter")[-1] == "NodeName"
    assert called(found, "pre_filter")[0] == "NodeName"


def test_disabling_at_one_point_leaves_the_others() -> None:
    found = profile(plugins={"score": {"disabled": enabled("NodeAffinity")}})
    assert "NodeAffinity" not in called(found, "score")
    assert "NodeAffinity" in called(found, "filter")


def test_all_off_and_a_few_on_keeps_the_order_as_written() -> None:
    sets = {"filter": {"disabled": enabled("*"), "enabled": enabled("NodePorts", "NodeName")}}
    assert called(profile(plugins=sets), "filter") == ["NodePorts", "NodeName", "GpuShares"]


def test_with_everything_off_only_what_keeps_gpus_apart_is_left() -> None:
    sets = {"multiPoint": {"disabled": enabled("*"), "enabled": enabled("PrioritySort", "DefaultBinder")}}
    found = profile(plugins=sets)
    assert [plugin.name for plugin in found.plugins] == ["PrioritySort", "DefaultBinder", "GpuShares"]
    assert called(found, "filter") == called(found, "pre_filter") == ["GpuShares"]
    assert called(found, "score") == called(found, "post_filter") == []


def test_preemption_can_be_switched_off_for_pods_alone() -> None:
    found = profile(plugins={"postFilter": {"disabled": enabled("DefaultPreemption")}})
    assert called(found, "post_filter") == []
    assert called(found, "group_post_filter") == ["DefaultPreemption"]


def test_another_plugin_can_sort_the_queue() -> None:
    found = read(document(plugins={"queueSort": {"disabled": enabled("*"), "enabled": enabled("Backwards")}}))
    assert name_of(found.queue_sort) == "Backwards"


@given(
    st.dictionaries(
        st.sampled_from(["multiPoint", "filter", "preFilter", "score", "preScore"]),
        st.fixed_dictionaries(
            {
                "enabled": st.lists(
                    st.sampled_from(["NodeAffinity", "TaintToleration", "Both"]), unique=True, max_size=3
                ),
                "disabled": st.lists(
                    st.sampled_from(["*", "NodeAffinity", "NodeName", "Both"]), unique=True, max_size=2
                ),
            }
        ),
    )
)
def test_whatever_is_on_and_off_plugins_are_called_where_a_plain_reading_of_the_rules_says(sets: Any) -> None:
    """A plain reading: walk a point's own list, then everyone's, and ask of each plugin whether it is off."""
    keep = ["PrioritySort", "DefaultBinder"]
    everywhere = sets.setdefault("multiPoint", {"enabled": [], "disabled": []})
    everywhere["enabled"] = [*everywhere["enabled"], *keep]
    written = {point: {which: enabled(*names) for which, names in found.items()} for point, found in sets.items()}
    result = configuration.parse(document(plugins=written), load)
    if isinstance(result, list):  # Both neither prepares filters nor scores
        wrong = {error.path.split(".")[2] for error in result}
        assert wrong <= {"preFilter", "preScore"}
        assert any("Both" in sets.get(point, {}).get("enabled", ()) for point in wrong)
        return
    (found,) = result.profiles.values()
    spread = set(everywhere["enabled"])
    if "*" not in everywhere["disabled"]:
        spread |= {name for name in EVERYWHERE if name not in everywhere["disabled"]}
    for point, attribute in (("filter", "filter"), ("score", "score")):
        here = sets.get(point, {"enabled": [], "disabled": []})
        off = set(EVERYWHERE) | {"Both"} if "*" in here["disabled"] else set(here["disabled"])
        able = set(called(profile(plugins={"multiPoint": {"enabled": enabled("Both")}}), attribute))
        wanted = (spread - off) & able | set(here["enabled"])
        if point == "filter":
            wanted |= {"GpuShares"}
        order = called(found, attribute)
        assert len(order) == len(set(order))
        assert set(order) == wanted


# Arguments


def test_arguments_reach_the_plugin_of_their_own_profile() -> None:
    two = document(
        schedulerName="a",
        pluginConfig=[{"name": "Both", "args": {"x": 1}}],
        plugins={"filter": {"enabled": enabled("Both")}},
    )
    two["profiles"].append({"schedulerName": "b", "plugins": {"filter": {"enabled": enabled("Both")}}})
    found = read(two).profiles
    made = {
        name: next(plugin for plugin in profile.plugins if isinstance(plugin, Both)) for name, profile in found.items()
    }
    assert made["a"].args == {"x": 1}
    assert made["b"].args == {}


def test_resources_that_an_extender_accounts_for_are_not_counted_twice() -> None:
    managed = [{"name": "example.com/foo", "ignoredByScheduler": True}, {"name": "example.com/bar"}]
    extender = {"urlPrefix": "http://x", "filterVerb": "f", "managedResources": managed}
    args = {"ignoredResources": ["example.com/mine"]}
    found = read(document(pluginConfig=[{"name": "NodeResourcesFit", "args": args}]), extenders=[extender])
    fit = next(plugin for plugin in found.profiles["default-scheduler"].plugins if plugin.name == "NodeResourcesFit")
    assert fit._args.ignored_resources == ("example.com/foo",)  # type: ignore[attr-defined]
    assert "replaced by" in found.warnings[0]


def test_extenders_that_have_a_say_in_preemption_are_known_to_it() -> None:
    extenders = [{"urlPrefix": "http://x", "preemptVerb": "p"}, {"urlPrefix": "http://y", "filterVerb": "f"}]
    found = read(document(), extenders=extenders)
    (plugin,) = found.profiles["default-scheduler"].post_filter
    assert isinstance(plugin, DefaultPreemption)
    assert list(plugin.options().extenders) == list(found.consultants)
    assert [consultant.name for consultant in found.consultants] == ["http://x"]


def test_switching_on_deferred_resizes_tells_every_plugin_that_minds_them() -> None:
    found = profile(plugins={"multiPoint": {"enabled": enabled("DeferredPodScheduling")}})
    flags = {plugin.name: plugin.resize_preemption for plugin in found.plugins if hasattr(plugin, "resize_preemption")}
    assert flags["DeferredPodScheduling"]
    assert all(flags.values())
    assert len(flags) > 3
    default = {plugin.resize_preemption for plugin in profile().plugins if hasattr(plugin, "resize_preemption")}
    assert default == {False}


# What does nothing here


@pytest.mark.parametrize("name", INERT)
def test_plugins_without_a_meaning_here_are_known_and_said_to_do_nothing(name: str) -> None:
    config = [{"name": name, "args": {"bindTimeoutSeconds": 600}}]
    found = read(document(plugins={"filter": {"enabled": enabled(name)}}, pluginConfig=config))
    assert name not in called(found.profiles["default-scheduler"], "filter")
    assert any(name in warning and INERT[name] in warning for warning in found.warnings)


def test_disabling_what_does_nothing_anyway_is_fine_and_disabling_what_nobody_knows_is_told() -> None:
    sets = {"filter": {"disabled": enabled("VolumeZone", "NodeVolumeLimit")}}
    (warning,) = read(document(plugins=sets)).warnings
    assert warning.startswith("profiles[0].plugins.filter.disabled[1].name: ")
    assert "NodeVolumeLimit" in warning


# Mistakes, each with its path


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown plugin": (
        {"plugins": {"filter": {"enabled": enabled("NodeResourceFit")}}},
        "profiles[0].plugins.filter.enabled[0].name",
        "did you mean NodeResourcesFit?",
    ),
    "an unknown plugin in pluginConfig": (
        {"pluginConfig": [{"name": "Unknown"}]},
        "profiles[0].pluginConfig[0].name",
        "no plugin of Muster has this name",
    ),
    "a plugin whose import fails": (
        {"plugins": {"filter": {"enabled": enabled("Broken")}}},
        "profiles[0].plugins.filter.enabled[0].name",
        "could not be loaded: ModuleNotFoundError: No module named 'torch'",
    ),
    "a plugin that goes by another name": (
        {"plugins": {"filter": {"enabled": enabled("Misnamed")}}},
        "profiles[0].plugins.filter.enabled[0].name",
        "calls itself 'SomethingElse'",
    ),
    "a plugin that does nothing": (
        {"plugins": {"multiPoint": {"enabled": enabled("Idle")}}},
        "profiles[0].plugins.multiPoint.enabled[0].name",
        "extends nothing",
    ),
    "a plugin at a point that it does not extend": (
        {"plugins": {"score": {"enabled": enabled("NodeName")}}},
        "profiles[0].plugins.score.enabled[0].name",
        "does not extend score",
    ),
    "a filter that does not say what it reads": (
        {"plugins": {"filter": {"enabled": enabled("Unread")}}},
        "profiles[0].plugins.filter.enabled[0].name",
        "does not say what it `reads`",
    ),
    "a plugin twice at a point": (
        {"plugins": {"filter": {"enabled": enabled("Both", "Both")}}},
        "profiles[0].plugins.filter.enabled[1].name",
        'Duplicate value: "Both"',
    ),
    "a star among the enabled": (
        {"plugins": {"filter": {"enabled": enabled("*")}}},
        "profiles[0].plugins.filter.enabled[0].name",
        "by their names",
    ),
    "a plugin without a name": (
        {"plugins": {"filter": {"enabled": [{"weight": 1}]}}},
        "profiles[0].plugins.filter.enabled[0].name",
        "Required value",
    ),
    "a negative weight": (
        {"plugins": {"score": {"enabled": [{"name": "NodeAffinity", "weight": -1}]}}},
        "profiles[0].plugins.score.enabled[0].weight",
        "must be 0 or more",
    ),
    "a weight that is no number": (
        {"plugins": {"score": {"enabled": [{"name": "NodeAffinity", "weight": True}]}}},
        "profiles[0].plugins.score.enabled[0].weight",
        "must be a whole number, found boolean",
    ),
    "an unknown extension point": ({"plugins": {"filters": {}}}, "profiles[0].plugins.filters", "unknown field"),
    "an unknown field of a profile": ({"plugin": {}}, "profiles[0].plugin", "unknown field"),
    "plugins that are a list": ({"plugins": []}, "profiles[0].plugins", "must be an object, found array"),
    "two plugins that sort the queue": (
        {"plugins": {"queueSort": {"enabled": enabled("Backwards")}}},
        "profiles[0].plugins.queueSort",
        "one plugin sorts the queue",
    ),
    "no plugin that sorts the queue": (
        {"plugins": {"queueSort": {"disabled": enabled("*")}}},
        "profiles[0].plugins.queueSort",
        "one plugin must sort the queue",
    ),
    "no plugin that binds": (
        {"plugins": {"bind": {"disabled": enabled("DefaultBinder")}}},
        "profiles[0].plugins.bind",
        "at least one plugin must bind",
    ),
    "switching off what keeps GPUs apart": (
        {"plugins": {"multiPoint": {"disabled": enabled("GpuShares")}}},
        "profiles[0].plugins.multiPoint.disabled[0].name",
        "cannot be disabled",
    ),
    "arguments twice": (
        {"pluginConfig": [{"name": "NodeName"}, {"name": "NodeName"}]},
        "profiles[0].pluginConfig[1].name",
        "Duplicate value",
    ),
    "a wrong argument": (
        {"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}]},
        "profiles[0].pluginConfig[0].args.hardPodAffinityWeight",
        "not in valid range",
    ),
    "an unknown argument": (
        {"pluginConfig": [{"name": "NodeName", "args": {"x": 1}}]},
        "profiles[0].pluginConfig[0].args.x",
        "unknown field",
    ),
    "arguments of another plugin": (
        {"pluginConfig": [{"name": "NodeAffinity", "args": {"kind": "NodeResourcesFitArgs"}}]},
        "profiles[0].pluginConfig[0].args.kind",
        "must be NodeAffinityArgs",
    ),
    "arguments that are no object": (
        {"pluginConfig": [{"name": "NodeAffinity", "args": [1]}]},
        "profiles[0].pluginConfig[0].args",
        "must be an object",
    ),
    "a foreign plugin that refuses its arguments by raising": (
        {"pluginConfig": [{"name": "Both", "args": {"bad": True}}]},
        "profiles[0].pluginConfig[0].args",
        "ValueError: bad is bad",
    ),
    "a foreign plugin that refuses its arguments by saying so": (
        {"pluginConfig": [{"name": "Picky", "args": {"odd": True}}]},
        "profiles[0].pluginConfig[0].args.odd",
        "unknown",
    ),
    "a share of nodes beyond all": (
        {"percentageOfNodesToScore": 101},
        "profiles[0].percentageOfNodesToScore",
        "[0, 100]",
    ),
    "an empty scheduler name": ({"schedulerName": ""}, "profiles[0].schedulerName", "Required value"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_in_a_profile_is_told_with_its_path(what: str) -> None:
    parts, path, message = WRONG[what]
    found = errors(document(**parts))
    assert list(found) == [path], found
    assert message in found[path]


WRONG_AT_THE_TOP: dict[str, tuple[dict[str, Any], str, str]] = {
    "another version": ({"apiVersion": "kubescheduler.config.k8s.io/v1beta2"}, "apiVersion", "Unsupported value"),
    "another kind": ({"kind": "KubeProxyConfiguration"}, "kind", "Unsupported value"),
    "no kind": ({"kind": None}, "kind", "Required value"),
    "an unknown field": ({"profile": []}, "profile", "unknown field"),
    "no parallelism": ({"parallelism": 0}, "parallelism", "must be 1 or more"),
    "no backoff": ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds", "must be 1 or more"),
    "backoff that shrinks": ({"podInitialBackoffSeconds": 20}, "podMaxBackoffSeconds", "which is 20"),
    "another lock": ({"leaderElection": {"resourceLock": "endpoints"}}, "leaderElection.resourceLock", '"leases"'),
    "a wrong duration": ({"leaderElection": {"leaseDuration": "15"}}, "leaderElection.leaseDuration", "length of time"),
    "an unknown field deep inside": ({"clientConnection": {"token": "x"}}, "clientConnection.token", "unknown field"),
    "an extender without a URL": ({"extenders": [{}]}, "extenders[0].urlPrefix", "Required value"),
    "an extender at no web address": ({"extenders": [{"urlPrefix": "x:1"}]}, "extenders[0].urlPrefix", "http://"),
    "an extender whose priorities count nothing": (
        {"extenders": [{"urlPrefix": "http://x", "prioritizeVerb": "p"}]},
        "extenders[0].weight",
        "must be positive",
    ),
    "two extenders that bind": (
        {"extenders": [{"urlPrefix": "http://x", "bindVerb": "b"}, {"urlPrefix": "http://y", "bindVerb": "b"}]},
        "extenders",
        "only one can",
    ),
    "a managed resource that is not extended": (
        {"extenders": [{"urlPrefix": "http://x", "managedResources": [{"name": "cpu"}]}]},
        "extenders[0].managedResources[0].name",
        "extended resource",
    ),
    "a resource that two extenders manage": (
        {
            "extenders": [
                {"urlPrefix": "http://x", "managedResources": [{"name": "example.com/a"}]},
                {"urlPrefix": "http://y", "managedResources": [{"name": "example.com/a"}]},
            ]
        },
        "extenders[1].managedResources[0].name",
        "Duplicate value",
    ),
    "a certificate without its key": (
        {"extenders": [{"urlPrefix": "https://x", "tlsConfig": {"certFile": "a.pem"}}]},
        "extenders[0].tlsConfig",
        "go together",
    ),
    "certificates that are checked and not": (
        {"extenders": [{"urlPrefix": "https://x", "tlsConfig": {"insecure": True, "caFile": "a.pem"}}]},
        "extenders[0].tlsConfig.insecure",
        "either checked or not",
    ),
    "data that is not base64": (
        {"extenders": [{"urlPrefix": "https://x", "tlsConfig": {"caData": "-----BEGIN"}}]},
        "extenders[0].tlsConfig.caData",
        "base64",
    ),
    "an unknown field of an extender": (
        {"extenders": [{"urlPrefix": "http://x", "timeout": "5s"}]},
        "extenders[0].timeout",
        "unknown field",
    ),
}


@pytest.mark.parametrize("what", WRONG_AT_THE_TOP)
def test_a_mistake_outside_of_profiles_is_told_with_its_path(what: str) -> None:
    parts, path, message = WRONG_AT_THE_TOP[what]
    found = errors({**document(), **parts})
    assert list(found) == [path], found
    assert message in found[path]


def test_all_mistakes_are_told_at_once() -> None:
    together: dict[str, Any] = {**document(), "parallelism": -1}
    expected = {"parallelism"}
    together["profiles"] = []
    for index, (parts, path, _) in enumerate(WRONG.values()):
        together["profiles"].append({"schedulerName": f"s{index}", **parts})
        expected.add(path.replace("profiles[0]", f"profiles[{index}]", 1))
    assert set(errors(together)) == expected


def test_profiles_are_told_apart_by_their_names() -> None:
    two = document(schedulerName="a")
    two["profiles"] += [{"schedulerName": "a"}, {}]
    assert errors(two) == {
        "profiles[1].schedulerName": 'Duplicate value: "a"',
        "profiles[2].schedulerName": "Required value",
    }


def test_profiles_share_one_queue_and_so_its_order() -> None:
    two = document(schedulerName="a")
    sorted_backwards = {"queueSort": {"disabled": enabled("*"), "enabled": enabled("Backwards")}}
    two["profiles"].append({"schedulerName": "b", "plugins": sorted_backwards})
    found = errors(two)
    assert list(found) == ["profiles[1].plugins.queueSort"]
    assert "must be the same for all profiles; a has PrioritySort" in found["profiles[1].plugins.queueSort"]


@pytest.mark.parametrize("text", ["{", "- a\n- b", "a: 1\n---\nb: 2", "", "\t"])
def test_what_is_not_one_yaml_object_is_refused(text: str) -> None:
    assert isinstance(configuration.parse_text(text), list)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "profiles",
                        "extenders",
                        "plugins",
                        "pluginConfig",
                        "enabled",
                        "disabled",
                        "name",
                        "weight",
                        "args",
                    ),
                    *("schedulerName", "urlPrefix", "tlsConfig", "managedResources", "leaderElection", "httpTimeout"),
                    *POINTS,
                    "multiPoint",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JUNK, st.sampled_from(list(IN_TREE)), JUNK)
def test_whatever_stands_in_the_document_is_answered_and_never_raised(junk: Any, name: str, args: Any) -> None:
    found = configuration.parse(junk, load)
    assert isinstance(found, list)
    assert all(error.message for error in found)
    found = configuration.parse({**document(), "profiles": junk}, load)
    assert isinstance(found, list | Configuration)
    found = configuration.parse({**document(), "extenders": junk}, load)
    assert isinstance(found, list | Configuration)
    found = configuration.parse(document(pluginConfig=[{"name": name, "args": args}]), load)
    assert isinstance(found, list | Configuration)
