"""A profile: which plugins judge the pods of one `schedulerName`, in which order, and how much each score weighs."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Self, TypeVar

from muster.placement.framework import (
    BindPlugin,
    Filter,
    Permit,
    PlacementFeasible,
    PlacementGenerate,
    PlacementScore,
    Plugin,
    PostBind,
    PreBind,
    PreEnqueue,
    PreFilter,
    PreScore,
    Reserve,
    Score,
    Wake,
    Wakes,
)

P = TypeVar("P")
DEFAULT_SCHEDULER = "default-scheduler"
DEFAULT_BINDER = "DefaultBinder"
NO_WEIGHTS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Weighted:
    """A plugin that scores, and what its scores are multiplied by."""

    plugin: Score
    weight: int


@dataclass(frozen=True, slots=True)
class WeightedPlacements:
    """A plugin that scores placements of groups, and what its scores are multiplied by."""

    plugin: PlacementScore
    weight: int


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What each extension point calls, in order. Which plugin can do what is found out once, here."""

    scheduler_name: str
    plugins: Sequence[Plugin]
    pre_enqueue: Sequence[PreEnqueue]
    pre_filter: Sequence[PreFilter]
    filter: Sequence[Filter]
    pre_score: Sequence[PreScore]
    score: Sequence[Weighted]
    reserve: Sequence[Reserve]
    permit: Sequence[Permit]
    pre_bind: Sequence[PreBind]
    post_bind: Sequence[PostBind]
    post_filter: Sequence[Plugin] = ()
    """What is tried for a pod that no node takes: DefaultPreemption, or nothing."""
    group_post_filter: Sequence[Plugin] = ()
    """The same for a whole group."""
    bind: Sequence[Plugin] = ()
    """Each a `BindPlugin`, or DefaultBinder: where the platform's own way to bind stands among them."""
    placement_generate: Sequence[PlacementGenerate] = ()
    placement_score: Sequence[WeightedPlacements] = ()
    placement_feasible: Sequence[PlacementFeasible] = ()
    scores_groups: AbstractSet[str] = frozenset()
    """Plugins of ours that score placements because the configuration says so: by default nobody asks them."""

    @classmethod
    def of(
        cls,
        plugins: Sequence[Plugin],
        weights: Mapping[str, int] = NO_WEIGHTS,
        scheduler_name: str = DEFAULT_SCHEDULER,
        points: Mapping[str, Sequence[Plugin]] | None = None,
        placement_weights: Mapping[str, int] = NO_WEIGHTS,
        scores_groups: AbstractSet[str] = frozenset(),
    ) -> Self:
        """`points`: what is called at each extension point, in order; without it, whatever plugin can be. Weights by
        name of plugin, 1 where there is none."""

        def at(point: str) -> Sequence[Plugin]:
            return plugins if points is None else points.get(point, ())

        def doing(protocol: type[P], point: str) -> list[P]:
            return [plugin for plugin in at(point) if isinstance(plugin, protocol)]

        return cls(
            scheduler_name=scheduler_name,
            plugins=plugins,
            pre_enqueue=doing(PreEnqueue, "preEnqueue"),
            pre_filter=doing(PreFilter, "preFilter"),
            filter=doing(Filter, "filter"),
            pre_score=doing(PreScore, "preScore"),
            score=[Weighted(plugin, weights.get(name_of(plugin), 1)) for plugin in doing(Score, "score")],
            reserve=doing(Reserve, "reserve"),
            permit=doing(Permit, "permit"),
            pre_bind=doing(PreBind, "preBind"),
            post_bind=doing(PostBind, "postBind"),
            post_filter=[plugin for plugin in at("postFilter") if hasattr(plugin, "post_filter")],
            group_post_filter=[plugin for plugin in at("podGroupPostFilter") if hasattr(plugin, "post_filter")],
            bind=[plugin for plugin in at("bind") if isinstance(plugin, BindPlugin) or plugin.name == DEFAULT_BINDER],
            placement_generate=doing(PlacementGenerate, "placementGenerate"),
            placement_score=[
                WeightedPlacements(plugin, placement_weights.get(name_of(plugin), 1))
                for plugin in doing(PlacementScore, "placementScore")
            ],
            placement_feasible=doing(PlacementFeasible, "placementFeasible"),
            scores_groups=scores_groups,
        )

    def wakes(self) -> Mapping[str, Sequence[Wake]]:
        """By plugin: the changes that may help a pod which it rejected."""
        return {plugin.name: plugin.wakes() for plugin in self.plugins if isinstance(plugin, Wakes)}


def name_of(plugin: object) -> str:
    """Protocols of single extension points do not repeat that every plugin has a name."""
    return str(getattr(plugin, "name", type(plugin).__name__))
