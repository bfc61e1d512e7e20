"""ImageLocality: nodes that have a pod's images already start it sooner.

An image counts by its size and by how many nodes have it: one that is on a single node would otherwise draw every pod
that uses it there.
"""

from collections import Counter
from typing import ClassVar

import numpy as np

from muster.api import core
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import MAX_SCORE, NodeScores, Reads, Score

_MIB = 1024 * 1024
LEAST_BYTES = 23 * _MIB
"""Less is pulled in no time."""
MOST_BYTES = 1000 * _MIB
"""For each image of the pod: more makes no difference."""


class ImageLocality:
    name: ClassVar[str] = "ImageLocality"
    reads: ClassVar[Reads] = Reads.NODES

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        scores = np.zeros(cluster.width, dtype=np.int64)
        wanted = self._images(pod)
        found = [(cluster.images[name], times) for name, times in wanted.items() if name in cluster.images]
        for image, times in found:
            # Truncated for each mention of the image, as kube-scheduler does.
            worth = int(image.size * (len(image.slots) / cluster.node_count)) * times
            scores[np.fromiter(image.slots, np.intp, len(image.slots))] += worth
        if not found:
            return scores
        most = MOST_BYTES * wanted.total()
        np.clip(scores, LEAST_BYTES, most, out=scores)
        scores -= LEAST_BYTES
        scores *= MAX_SCORE
        scores //= most - LEAST_BYTES
        return scores

    def _images(self, pod: PodInfo) -> "Counter[str]":
        scratch = pod.shape.scratch
        found = scratch.get(self.name)
        if not isinstance(found, Counter):
            found = scratch[self.name] = _images_of(pod.spec)
        return found


def _images_of(spec: core.PodSpec) -> "Counter[str]":
    """How often the pod uses each image. Containers, init containers and image volumes all count."""
    named = [container.image or "" for container in (*spec.init_containers, *spec.containers)]
    named += [str(volume.image.get("reference", "")) for volume in spec.volumes if volume.image is not None]
    return Counter(map(normalized_image_name, named))


def normalized_image_name(name: str) -> str:
    """As nodes spell it: with a tag. A colon before the last slash is that of a registry's port."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


_: Score = ImageLocality()
