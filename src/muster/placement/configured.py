"""An engine as a KubeSchedulerConfiguration says."""

from muster.api.errors import FieldError
from muster.api.raw import JSON
from muster.cluster.state import ClusterState
from muster.placement import configuration
from muster.placement.configuration import Load
from muster.placement.engine import Engine
from muster.placement.extending import Extending
from muster.placement.in_tree import Shared, default_profile
from muster.placement.profiles import DEFAULT_SCHEDULER
from muster.placement.queueing import Timing


def configured_engine(document: JSON, load: Load, *, seed: int = 0) -> tuple[Engine, list[str]] | list[FieldError]:
    """An empty engine and what is to be warned of, or all that is wrong with the document. `load`: finds plugins of
    other distributions."""
    shared = Shared()
    found = configuration.parse(document, load, shared)
    if isinstance(found, list):
        return found
    profiles = dict(found.profiles)
    if DEFAULT_SCHEDULER not in profiles:  # pods that name none of the profiles must go somewhere
        profiles[DEFAULT_SCHEDULER] = default_profile(shared)
    engine = Engine(
        profiles,
        ClusterState(),
        shared.groups,
        timing=Timing(initial_backoff=found.initial_backoff, max_backoff=found.max_backoff),
        seed=seed,
        sort_key=found.queue_sort.sort_key,
    )
    engine.extending = Extending(found.extenders, found.consultants)
    return engine, list(found.warnings)
