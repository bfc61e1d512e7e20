from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import node, pod

from muster.cluster.state import ClusterState
from muster.placement.plugins.image_locality import ImageLocality, normalized_image_name

MIB = 1024 * 1024
SIZES = {"small": 10 * MIB, "medium": 333 * MIB, "huge": 4000 * MIB + 7}


def having(*images: str) -> dict[str, Any]:
    return {"images": [{"names": [f"{image}:latest", f"{image}:v1"], "sizeBytes": SIZES[image]} for image in images]}


def using(containers: list[str], init: list[str], volumes: list[str]) -> dict[str, Any]:
    return {
        "containers": [{"name": f"c{i}", "image": image} for i, image in enumerate(containers)],
        "initContainers": [{"name": f"i{i}", "image": image} for i, image in enumerate(init)],
        "volumes": [{"name": f"v{i}", "image": {"reference": image}} for i, image in enumerate(volumes)],
    }


def reference(wanted: list[str], nodes: list[set[str]], here: set[str]) -> int:
    least, most = 23 * MIB, 1000 * MIB * len(wanted)
    total = 0
    for image in wanted:
        if image in here:
            total += int(float(SIZES[image]) * (sum(image in found for found in nodes) / len(nodes)))
    return 100 * (min(max(total, least), most) - least) // (most - least) if wanted else 0


IMAGES = st.lists(st.sampled_from((*SIZES, "unknown")), max_size=3)


@given(st.lists(st.sets(st.sampled_from(tuple(SIZES))), min_size=1, max_size=5), IMAGES, IMAGES, IMAGES)
def test_columns_and_plain_rules_agree(
    nodes: list[set[str]], containers: list[str], init: list[str], volumes: list[str]
) -> None:
    cluster = ClusterState.of([node(f"n{i}", status=having(*images)) for i, images in enumerate(nodes)])
    subject = pod(cluster, **using(containers, init, volumes))
    wanted = [*containers, *init, *volumes]
    scores = ImageLocality().score(subject, cluster, None).tolist()
    assert scores == [reference(wanted, nodes, here) for here in nodes]


def test_pods_that_differ_in_an_image_volume_are_of_different_shapes() -> None:
    cluster = ClusterState.of([node("a", status=having("huge")), node("b")])
    assert ImageLocality().score(pod(cluster, **using([], [], ["small"])), cluster, None).tolist() == [0, 0]
    assert ImageLocality().score(pod(cluster, **using([], [], ["huge"])), cluster, None).tolist() == [100, 0]


def test_images_leave_with_their_last_node() -> None:
    cluster = ClusterState.of([node("a", status=having("huge")), node("b", status=having("huge", "small"))])
    cluster.node_changed(node("a"))
    assert cluster.images["huge:latest"].slots == {1}
    cluster.node_removed("b")
    assert cluster.images == {}


@pytest.mark.parametrize(
    ("given_name", "wanted"),
    [
        ("root", "root:latest"),
        ("root:tag", "root:tag"),
        ("host:5000/root", "host:5000/root:latest"),
        ("root@sha256:abc", "root@sha256:abc"),
    ],
)
def test_names_get_a_tag(given_name: str, wanted: str) -> None:
    assert normalized_image_name(given_name) == wanted
