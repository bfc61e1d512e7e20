"""The chart, as a real Helm renders and installs it: the same objects as `muster install` makes of the same values."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kubernetes.own_planes import own_plane

from muster.deploying import definitions, manifests, names, values
from muster.deploying.slots import Chosen
from muster.settings import reading

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "muster"
BUILT = ROOT / "build" / "bin" / "helm"
HELM = os.environ.get("HELM") or (str(BUILT) if BUILT.exists() else shutil.which("helm"))

ALL_CHOSEN = """
image: {repository: registry.example/muster, tag: "2.0", pull: Always, secrets: [{name: registry}]}
replicas: 3
unlabelled: theirs
metrics: {port: 8081, monitor: true}
nodes: {selector: {pool: system}, tolerations: [{key: system, operator: Exists}]}
resources: {limits: {memory: 4Gi}}
scheduler: {profiles: [{schedulerName: muster}, {schedulerName: other}]}
quota: {fairSharing: {enable: true}}
server: {enabled: true, url: "https://muster.example", storage: 5Gi}
"""


@pytest.fixture(autouse=True)
def there_is_a_helm() -> None:
    if HELM is None:
        message = "there is no helm; `make helm` builds one"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


def helm(*arguments: str) -> str:
    assert HELM is not None
    done = subprocess.run([HELM, *arguments], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def by_name(documents: Any) -> dict[tuple[str, str], Any]:
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def test_the_chart_has_no_flaws() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("text", ["{}", ALL_CHOSEN], ids=["as it comes", "all chosen"])
def test_helm_and_muster_make_the_same_objects(text: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    given = ("--namespace", names.NAMESPACE, "--values", str(file), "--kube-version", "1.34.0")
    printed = helm("template", "muster", str(CHART), *given)
    chosen = Chosen(values.read([reading.from_file(file)]), names.NAMESPACE)
    ours, theirs = by_name(manifests.documents(chosen)), by_name(yaml.safe_load_all(printed))
    assert theirs.keys() == ours.keys()
    for key, document in ours.items():
        assert theirs[key] == document


def test_kinds_come_with_the_chart() -> None:
    shown = by_name(yaml.safe_load_all(helm("show", "crds", str(CHART))))
    assert shown == by_name(definitions.definition(kind) for kind in definitions.kinds())


def test_a_release_is_installed_left_to_helm_and_removed() -> None:
    with own_plane() as plane:
        reached = ("--kubeconfig", str(plane.configuration), "--namespace", names.NAMESPACE)
        helm("install", "muster", str(CHART), "--create-namespace", "--set", "image.repository=somewhere", *reached)
        assert len(plane.get("crd")["items"]) == len(list(definitions.kinds()))
        done = plane.muster("install")
        assert done.code == 2
        assert "use `helm upgrade`" in done.err
        found = {each["about"]: each["verdict"] for each in json.loads(plane.muster("doctor", "-o", "json").out)}
        assert (found["kinds of Kueue"], found["rights of the controllers"]) == ("ok", "ok")
        helm("uninstall", "muster", *reached)
        assert plane.get("clusterroles", "-l", f"{names.PART_OF}=muster")["items"] == []
