"""Volumes as directories."""

import base64
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.agent import volumes
from muster.agent.environment import ConfigMissing, Facts, Sources
from muster.agent.runtime import Mount
from muster.api import core

SOURCES = Sources({"settings": {"a.txt": b"A", "b.txt": b"B"}}, {"keys": {"id": b"\x00\xff"}})


def facts(*listed: dict[str, Any], mounts: list[dict[str, Any]] | None = None) -> Facts:
    document = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "x"}},
        "spec": {
            "volumes": list(listed),
            "containers": [{"name": "main", "volumeMounts": mounts or [], "resources": {"limits": {"cpu": "2"}}}],
        },
    }
    return Facts(msgspec.convert(document, core.Pod), "10.0.0.7", {})


def made(tmp_path: Path, *listed: dict[str, Any]) -> dict[str, Path]:
    return volumes.materialise(tmp_path / "volumes", facts(*listed), SOURCES)


def test_an_empty_dir_is_empty_and_keeps_what_is_put_there(tmp_path: Path) -> None:
    path = made(tmp_path, {"name": "scratch", "emptyDir": {}})["scratch"]
    assert list(path.iterdir()) == []
    (path / "x").write_text("kept")
    assert (made(tmp_path, {"name": "scratch", "emptyDir": {}})["scratch"] / "x").read_text() == "kept"


def test_a_config_map_is_one_file_a_key(tmp_path: Path) -> None:
    path = made(tmp_path, {"name": "v", "configMap": {"name": "settings", "defaultMode": 0o440}})["v"]
    assert {file.name: file.read_bytes() for file in path.iterdir()} == {"a.txt": b"A", "b.txt": b"B"}
    assert stat.S_IMODE((path / "a.txt").stat().st_mode) == 0o440


def test_a_volume_follows_its_source_and_nothing_else(tmp_path: Path) -> None:
    shown: dict[str, volumes.Shown] = {}

    def show(data: dict[str, bytes]) -> Path:
        found = facts({"name": "v", "configMap": {"name": "m"}})
        return volumes.materialise(tmp_path / "volumes", found, Sources({"m": data}), shown)["v"]

    path = show({"a": b"1", "b": b"1", "c": b"1"})
    before = {name: (path / name).stat().st_ino for name in "abc"}
    (path / "own").write_text("of the container")
    show({"a": b"1", "b": b"2"})
    assert {name.name: name.read_text() for name in path.iterdir()} == {"a": "1", "b": "2", "own": "of the container"}
    assert (path / "a").stat().st_ino == before["a"], "what has not changed is left alone"
    assert (path / "b").stat().st_ino != before["b"], "a file is replaced as a whole"


def test_items_choose_keys_and_paths(tmp_path: Path) -> None:
    items = [{"key": "id", "path": "deep/key", "mode": 0o400}]
    path = made(tmp_path, {"name": "v", "secret": {"secretName": "keys", "items": items}})["v"]
    assert (path / "deep" / "key").read_bytes() == b"\x00\xff"
    assert stat.S_IMODE((path / "deep" / "key").stat().st_mode) == 0o400


def test_the_downward_api_and_projections(tmp_path: Path) -> None:
    downward = [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "cpus", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
    ]
    paths = made(
        tmp_path,
        {"name": "d", "downwardAPI": {"items": downward}},
        {
            "name": "p",
            "projected": {
                "sources": [
                    {"configMap": {"name": "settings"}},
                    {"secret": {"name": "keys"}},
                    {"downwardAPI": {"items": downward[:1]}},
                ]
            },
        },
    )
    assert (paths["d"] / "name").read_text() == "p"
    assert (paths["d"] / "cpus").read_text() == "2"
    assert sorted(file.name for file in paths["p"].iterdir()) == ["a.txt", "b.txt", "id", "name"]


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"name": "v", "configMap": {"name": "gone"}}, 'configmap "gone" not found'),
        ({"name": "v", "secret": {"secretName": "gone"}}, 'secret "gone" not found'),
        (
            {"name": "v", "configMap": {"name": "settings", "items": [{"key": "no", "path": "x"}]}},
            "non-existent key: no",
        ),
        ({"name": "v", "configMap": {"name": "settings", "items": [{"key": "a.txt", "path": "../x"}]}}, "stay inside"),
        ({"name": "v", "configMap": {"name": "settings", "items": [{"key": "a.txt", "path": "/x"}]}}, "stay inside"),
        ({"name": "v", "nfs": {"server": "s", "path": "/"}}, "host-process nodes know only"),
        ({"name": "v", "hostPath": {"path": "/no/such/place", "type": "Directory"}}, "is not a Directory"),
    ],
)
def test_what_cannot_be_shown_is_said(tmp_path: Path, volume: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigMissing, match=message):
        made(tmp_path, volume)


def test_optional_sources_may_be_missing(tmp_path: Path) -> None:
    paths = made(tmp_path, {"name": "v", "configMap": {"name": "gone", "optional": True}})
    assert list(paths["v"].iterdir()) == []


def test_a_host_path_is_itself(tmp_path: Path) -> None:
    target = tmp_path / "data"
    paths = made(tmp_path, {"name": "v", "hostPath": {"path": str(target), "type": "DirectoryOrCreate"}})
    assert paths["v"] == target
    assert target.is_dir()


def test_relative_mounts_are_linked_into_the_working_directory(tmp_path: Path) -> None:
    mounts = [
        {"name": "v", "mountPath": "conf/here"},
        {"name": "v", "mountPath": "one.txt", "subPath": "a.txt"},
        {"name": "v", "mountPath": "/absolute/elsewhere"},
    ]
    pod = facts({"name": "v", "configMap": {"name": "settings"}}, mounts=mounts)
    paths = volumes.materialise(tmp_path / "volumes", pod, SOURCES)
    for _ in range(2):  # a restart links again
        volumes.link(pod.pod.spec.containers[0], paths, tmp_path / "work")
    assert (tmp_path / "work" / "conf" / "here" / "b.txt").read_text() == "B"
    assert (tmp_path / "work" / "one.txt").read_text() == "A"
    moved = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    assert (moved / "work" / "one.txt").read_text() == "A", "links must be relative: the directory can be copied"
    moved.rename(tmp_path)


@pytest.mark.parametrize("path", ["../out", "a/../../out"])
def test_mounts_stay_inside(tmp_path: Path, path: str) -> None:
    pod = facts({"name": "v", "emptyDir": {}}, mounts=[{"name": "v", "mountPath": path}])
    paths = volumes.materialise(tmp_path / "volumes", pod, SOURCES)
    with pytest.raises(ConfigMissing, match="stay inside"):
        volumes.link(pod.pod.spec.containers[0], paths, tmp_path / "work")


def test_variables_are_names_a_shell_can_use() -> None:
    assert volumes.variable("my-data.v2") == "MUSTER_VOLUME_MY_DATA_V2"


def test_data_of_objects_is_bytes() -> None:
    encoded = base64.b64encode(b"\xff\x00").decode()
    assert volumes.config_map_data(core.ConfigMap(data={"a": "ä"}, binary_data={"b": encoded})) == {
        "a": "ä".encode(),
        "b": b"\xff\x00",
    }
    assert volumes.secret_data(core.Secret(data={"k": encoded})) == {"k": b"\xff\x00"}


def a_container(*mounts: dict[str, Any]) -> core.Container:
    return msgspec.convert({"name": "main", "volumeMounts": list(mounts)}, core.Container)


def a_spec(*listed: dict[str, Any]) -> core.PodSpec:
    return msgspec.convert({"volumes": list(listed)}, core.PodSpec)


HOME = Path("/pods/home")


def test_absolute_mount_paths_are_mounts_and_what_is_below_comes_after(tmp_path: Path) -> None:
    container = a_container(
        {"name": "glue", "mountPath": "/run/determined/glue", "readOnly": True},
        {"name": "run", "mountPath": "/run/determined/", "subPath": "a/b"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "run", "mountPath": "relative"},
        {"name": "claim", "mountPath": "/data", "subPathExpr": "of-$(POD)"},
    )
    spec = a_spec(
        {"name": "glue", "configMap": {"name": "x"}},
        {"name": "run", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
    )
    paths = {volume.name: tmp_path / volume.name for volume in spec.volumes}
    assert volumes.mounts(container, spec, paths, {"POD": "p-0"}, HOME) == [
        Mount(tmp_path / "claim/of-p-0", "/data", is_read_only=True),
        Mount(tmp_path / "run/a/b", "/run/determined"),
        Mount(None, "/dev/shm", bytes=1 << 20),
        Mount(tmp_path / "glue", "/run/determined/glue", is_read_only=True),
    ]
    assert (tmp_path / "run/a/b").is_dir(), "a subPath that is not there is made"


def test_a_sub_path_does_not_lead_out_of_its_volume(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    volume.mkdir()
    (volume / "link").symlink_to("/etc")
    container = a_container({"name": "v", "mountPath": "/x", "subPath": "link/ssh"})
    with pytest.raises(ConfigMissing, match="leads out of its volume"):
        volumes.mounts(container, a_spec({"name": "v", "emptyDir": {}}), {"v": volume}, {}, HOME)


def test_no_mount_hides_the_pods_own_directory() -> None:
    container = a_container({"name": "v", "mountPath": "/pods"})
    found = volumes.mounts(container, a_spec({"name": "v", "emptyDir": {}}), {"v": HOME / "v"}, {}, HOME)
    assert found == [Mount(HOME / "v", "/pods"), Mount(HOME, str(HOME))]


@pytest.mark.parametrize("path", ["/", "/run/../etc"])
def test_nothing_is_mounted_over_everything_or_beside(path: str) -> None:
    container, spec = a_container({"name": "v", "mountPath": path}), a_spec({"name": "v", "emptyDir": {}})
    with pytest.raises(ConfigMissing, match="nothing can be mounted"):
        volumes.mounts(container, spec, {"v": Path("/pods/v")}, {}, HOME)
