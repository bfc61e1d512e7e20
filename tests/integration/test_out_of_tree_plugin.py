"""The example of a plugin, as somebody would install it: found by its entry point, configured, and called.

Each test runs in a process of its own, with folders on its path that look like installed distributions.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from muster.placement.configuration import ENTRY_POINTS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins"
GUIDE = ROOT / "docs" / "guide" / "scheduler-plugins.md"

SCRIPT = """
import json, sys
from muster.api import core, objects
from muster.cluster.state import ClusterState
from muster.controllers.plugins import load
from muster.placement import configuration
from muster.placement.judging import Judgement

found = configuration.parse_text(sys.stdin.read(), load)
if isinstance(found, list):
    print(json.dumps({"errors": [str(error) for error in found], "imported": sorted(sys.modules)}))
    sys.exit()

def node(name, **labels):
    labels = {f"example.com/{key}": value for key, value in labels.items()}
    status = {"allocatable": {"pods": "10", "cpu": "8", "memory": "8Gi"}}
    return objects.view_of(core.NODE, {"metadata": {"name": name, "labels": labels}, "status": status})

nodes = [
    node("old", generation="1"), node("new", generation="7"), node("plain"), node("odd", generation="x-large"),
    node("serviced", generation="9", maintenance="tonight"), node("later", maintenance="tomorrow"),
]
cluster = ClusterState.of(nodes)
said = {}
for name, labels in (("long", {}), ("short", {"example.com/short-lived": "yes"})):
    meta = {"name": name, "namespace": "ns", "uid": name, "labels": labels}
    info = cluster.shapes.info(objects.view_of(core.POD, {"metadata": meta, "spec": {"containers": []}}))
    judgement = Judgement(found.profiles["default-scheduler"], info, cluster)
    best = judgement.best(0)
    said[name] = {
        "best": cluster.names[best],
        "feasible": [host for host, slot in cluster.slots.items() if judgement.feasible[slot]],
        "counts": dict(judgement.diagnosis().counts),
        "by": sorted(judgement.rejected_by()),
    }
profile = found.profiles["default-scheduler"]
weights = {weighted.plugin.name: weighted.weight for weighted in profile.score}
print(json.dumps({"said": said, "weights": weights, "imported": sorted(sys.modules)}))
"""


GANG_SCRIPT = """
import json, sys
from muster.api import core, raw, volcano
from muster.api.objects import Object
from muster.controllers.plugins import load
from muster.placement.configured import configured_engine
from muster.testing.builders import a_node, a_pod, a_pod_group

found = configured_engine(json.load(sys.stdin), load)
if isinstance(found, list):
    print(json.dumps({"errors": [str(error) for error in found]}))
    sys.exit()
engine = found[0]
nodes = [a_node(f"{spine}{number}").cpu(1).label("spine", spine) for spine in "abc" for number in range(2)]
pods = [a_pod(f"p{number}").cpu(1).in_group("g") for number in range(2)]
kinds = [(core.NODE, nodes), (volcano.POD_GROUP, [a_pod_group("g").min_member(2)]), (core.POD, pods)]
for kind, builders in kinds:
    for builder in builders:
        document = builder.document()
        document["metadata"]["uid"] = document["metadata"]["name"]
        engine.take(None, Object(kind, raw.encode(document)), 0.0)
outcome = engine.step(0.0)
refusal = outcome.refusal.message if outcome.refusal else ""
print(json.dumps({"nodes": sorted(one.node for one in outcome.assigned), "refusal": refusal}))
"""

SPINES = """
from muster.placement.framework import Code, Generated, Placement, Status

class Spines:
    name = "Spines"

    def __init__(self, args):
        self.kept = args.get("kept", [])

    def generate_placements(self, group, cluster, parent):
        spines = cluster.labelled("spine")
        open_ = [value for value in "abc" if value not in self.kept]
        if not open_:
            return Generated(Status(Code.UNRESOLVABLE, ("every spine is kept for others",)))
        return Generated(placements=[Placement(v, spines == cluster.value_code(v)) for v in open_])

class LastSpine:
    name = "LastSpine"

    def __init__(self, args):
        pass

    def score_placement(self, group, cluster, placement, proposed):
        return "abc".index(placement.name)

    def normalize_placements(self, scores):
        return Status(), [score * 100 // (max(scores) or 1) for score in scores]
"""


def installed(folder: Path, name: str, entries: dict[str, str]) -> Path:
    """A folder that to Python looks as if a distribution had been installed there."""
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"[{ENTRY_POINTS}]", *(f"{entry} = {target}" for entry, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def example(tmp_path: Path) -> list[Path]:
    """The example, installed."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    return [installed(tmp_path / "site", project["name"], project["entry-points"][ENTRY_POINTS]), EXAMPLE]


def run(configuration: str, path: list[Path], script: str = SCRIPT) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        input=configuration,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_example_filters_and_scores(example: list[Path]) -> None:
    found = run((EXAMPLE / "scheduler.yaml").read_text(), example)
    long, short = found["said"]["long"], found["said"]["short"]
    assert sorted(long["feasible"]) == ["later", "new", "odd", "old", "plain"]
    assert long["counts"] == {"node(s) are about to be serviced": 1}
    assert long["by"] == ["Maintenance"]
    assert long["best"] == "new"
    assert short["best"] == "serviced"
    assert found["weights"]["Maintenance"] == 5


def test_arguments_reach_it(example: list[Path]) -> None:
    text = (EXAMPLE / "scheduler.yaml").read_text().replace("window: tonight", "window: tomorrow")
    assert "later" not in run(text, example)["said"]["long"]["feasible"]


def test_what_is_installed_and_not_named_is_not_imported(example: list[Path]) -> None:
    nothing = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    assert "muster_maintenance" not in run(nothing, example)["imported"]


def test_what_is_named_and_not_installed_is_told() -> None:
    (error,) = run((EXAMPLE / "scheduler.yaml").read_text(), [])["errors"]
    assert error.startswith('profiles[0].plugins.multiPoint.enabled[0].name: Not found: "Maintenance"')


def test_a_plugin_that_cannot_be_imported_or_called_is_named(example: list[Path], tmp_path: Path) -> None:
    (tmp_path / "broken_plugin.py").write_text("import a_module_that_nobody_has\n")
    (tmp_path / "odd_plugin.py").write_text("THING = 7\n")
    entries = {"Broken": "broken_plugin:Plugin", "Missing": "odd_plugin:Plugin", "Odd": "odd_plugin:THING"}
    path = [installed(tmp_path / "more", "broken-plugins", entries), tmp_path, *example]
    text = (EXAMPLE / "scheduler.yaml").read_text()
    names = "".join(f"          - name: {name}\n" for name in entries)
    errors = run(text.replace("        enabled:\n", f"        enabled:\n{names}"), path)["errors"]
    assert [error.partition(":")[0] for error in errors] == [
        f"profiles[0].plugins.multiPoint.enabled[{index}].name" for index in range(3)
    ]
    assert "a_module_that_nobody_has" in errors[0]
    assert 'plugin "Missing" could not be loaded: AttributeError' in errors[1]
    assert "is no class or function, but int" in errors[2]


def test_two_distributions_that_offer_the_same_name_are_told_apart_by_nobody(
    example: list[Path], tmp_path: Path
) -> None:
    other = installed(tmp_path / "other", "muster-other", {"Maintenance": "other:Maintenance"})
    (error,) = run((EXAMPLE / "scheduler.yaml").read_text(), [other, *example])["errors"]
    assert "muster-maintenance, muster-other each offer it" in error


def test_plugins_for_groups_are_found_and_asked(tmp_path: Path) -> None:
    (tmp_path / "spines.py").write_text(SPINES)
    entries = {"Spines": "spines:Spines", "LastSpine": "spines:LastSpine"}
    path = [installed(tmp_path / "site", "muster-spines", entries), tmp_path]

    def decided(names: list[str], **args: Any) -> Any:
        plugins = {"multiPoint": {"enabled": [{"name": name} for name in names]}}
        profile = {"plugins": plugins, "pluginConfig": [{"name": "Spines", "args": args}] if args else []}
        head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        return run(json.dumps({**head, "profiles": [profile]}), path, GANG_SCRIPT)

    assert decided(["Spines"])["nodes"] == ["a0", "a1"]
    assert decided(["Spines"], kept=["a"])["nodes"] == ["b0", "b1"]
    assert decided(["Spines", "LastSpine"])["nodes"] == ["c0", "c1"]
    refused = decided(["Spines"], kept=["a", "b", "c"])["refusal"]
    assert refused == "2 pods that must start together cannot be placed: Spines: every spine is kept for others"


def test_the_guide_shows_what_is_tested_here() -> None:
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)[:3])
    assert blocks["python"] == (EXAMPLE / "muster_maintenance.py").read_text()
    assert blocks["yaml"] == (EXAMPLE / "scheduler.yaml").read_text()
    assert blocks["toml"] in (EXAMPLE / "pyproject.toml").read_text()
