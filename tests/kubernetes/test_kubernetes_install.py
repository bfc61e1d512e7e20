"""`muster install`, `uninstall` and `doctor` on a real API server: one installation from its beginning to its end.

The tests of this module go on from each other's, in their order: a cluster is not installed in a moment.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes.own_planes import Plane, own_plane

from muster.api import kueue
from muster.deploying import definitions

KINDS = sorted(kind.resource for kind in definitions.kinds())
FOREIGN = kueue.COHORT.resource
USED = kueue.RESOURCE_FLAVOR.resource


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    with own_plane() as started:
        yield started


@pytest.fixture(scope="module")
def installed(plane: Plane) -> Plane:
    """Beside a kind that somebody else has defined."""
    foreign = definitions.definition(kueue.COHORT)
    del foreign["metadata"]["labels"]
    foreign["spec"]["names"]["shortNames"] = ["theirs"]
    plane.apply(foreign)
    done = plane.muster("install")
    assert done.code == 0, done.err
    assert f"customresourcedefinition/{FOREIGN} kept" in done.out
    return plane


def defined(plane: Plane) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in plane.get("crd")["items"]}


def verdicts(plane: Plane, configuration: Path | None = None) -> dict[str, str]:
    found = json.loads(plane.muster("doctor", "-o", "json", configuration=configuration).out)
    return {each["about"]: each["verdict"] for each in found}


def test_a_doctor_is_of_use_on_a_cluster_with_nothing_of_ours(plane: Plane) -> None:
    found = verdicts(plane)
    assert found["API server"] == "ok"
    assert found["your rights"] == "ok"
    assert found["kinds of Kueue"] == "warn"
    assert found["controllers"] == "warn"
    assert "webhooks" not in found


def test_a_dry_run_changes_nothing(plane: Plane) -> None:
    done = plane.muster("install", "--dry-run")
    assert done.code == 0, done.err
    assert "deployment/muster-controller created (dry run)" in done.out
    assert defined(plane) == {}


def test_who_may_not_install_is_told_which_right_is_missing(plane: Plane, tmp_path: Path) -> None:
    plane.kubectl("create", "serviceaccount", "nobody", "-n", "default")
    nobody = plane.as_account("default", "nobody", tmp_path / "kubeconfig")
    done = plane.muster("install", configuration=nobody)
    assert done.code == 2
    assert 'cannot list resource "deployments" in API group "apps"' in done.err
    found = verdicts(plane, nobody)
    assert found["your rights"] == "warn"
    assert found["API server"] == "ok"


def test_every_kind_is_established_with_a_structural_schema(installed: Plane) -> None:
    found = defined(installed)
    assert sorted(found) == KINDS
    for name, definition in found.items():
        conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}, name
    assert found[FOREIGN]["spec"]["names"]["shortNames"] == ["theirs"]
    installed.kubectl("get", "cq,vcjob,pg,q,jf,wl,alloc,theirs")


def test_a_second_time_nothing_changes_and_a_value_changes_one_object(installed: Plane) -> None:
    again = installed.muster("install").out.splitlines()
    done = [line for line in again if not line.endswith("unchanged") and " kept" not in line]
    assert done[0] == f"definitions of kinds ready: {len(KINDS) - 1} established"
    changed = installed.muster("install", "--set", "replicas=3").out
    assert [line for line in changed.splitlines() if line.endswith("configured")] == [
        "deployment/muster-controller configured"
    ]
    assert installed.get("deployment", "-n", "muster-system", "muster-controller")["spec"]["replicas"] == 3
    checked = installed.muster("install", "--set", "replicas=3", "--set", "server.enabled=true", "--dry-run")
    assert "deployment/muster-server created (dry run)" in checked.out, checked.err


def test_the_pods_of_the_deployment_are_admitted_under_the_strictest_standard(installed: Plane) -> None:
    made = "--for=jsonpath={.status.unavailableReplicas}=3"
    installed.kubectl("wait", "-n", "muster-system", made, "--timeout=30s", "deployment/muster-controller")
    pods = installed.get("pods", "-n", "muster-system")["items"]
    assert {pod["spec"]["priorityClassName"] for pod in pods} == {"muster-critical"}


def test_a_doctor_sees_that_an_installation_does_not_run(installed: Plane) -> None:
    found = verdicts(installed)
    assert found["kinds of Kueue"] == "ok"
    assert found["controllers"] == "fail"
    assert found["rights of the controllers"] == "ok"
    assert found["leader"] == "fail"
    assert installed.muster("doctor").code == 1


def test_what_is_removed_is_ours_and_kinds_that_are_used_stay(installed: Plane) -> None:
    metadata = {"name": "a100", "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    kind = kueue.RESOURCE_FLAVOR
    installed.apply({"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": {}})
    done = installed.muster("uninstall")
    assert done.code == 0, done.err
    assert f"{USED} kept: 1 objects; --all removes them" in done.out
    assert sorted(defined(installed)) == sorted([FOREIGN, USED])
    for kinds in ("clusterroles", "clusterrolebindings", "priorityclasses", "namespaces"):
        assert installed.get(kinds, "-l", "app.kubernetes.io/part-of=muster")["items"] == []


def test_what_is_used_goes_too_after_a_question(installed: Plane) -> None:
    asked = installed.muster("uninstall", "--all", stdin="n\n")
    assert f"This deletes 1 {USED}" in asked.out
    assert sorted(defined(installed)) == sorted([FOREIGN, USED])
    assert installed.muster("uninstall", "--all", "--yes").code == 0
    assert list(defined(installed)) == [FOREIGN]
    assert "Nothing of Muster is installed" in installed.muster("uninstall").out
