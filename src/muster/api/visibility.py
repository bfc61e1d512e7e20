"""The groups in which those who decide are asked, instead of the store: Kueue's, and our own.

Ours is apart from `muster.dev`, whose objects are stored: an API server answers for a version of a group itself, or
passes all of it on.
"""

from typing import Final

KUEUE_GROUP: Final = "visibility.kueue.x-k8s.io"
KUEUE_VERSIONS: Final = ("v1beta2", "v1beta1")
"""The first is preferred."""
GROUP: Final = "visibility.muster.dev"
VERSION: Final = "v1"
VERSIONS: Final = (*((KUEUE_GROUP, version) for version in KUEUE_VERSIONS), (GROUP, VERSION))
"""All of them: group and version."""
SCHEDULER: Final = "muster"
"""The one whose decisions can be asked for."""
