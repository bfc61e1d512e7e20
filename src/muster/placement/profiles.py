"""A profile: which plugins judge the pods of one `schedulerName`, in which order, and how much each score weighs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from muster.placement.framework import (
    Filter,
    Permit,
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
Enabled = Callable[[Plugin, str], bool]
"""(plugin, extension point) → whether the profile calls it there."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A plugin that scores, and what its scores are multiplied by."""

    plugin: Score
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

    @classmethod
    def of(
        cls,
        plugins: Sequence[Plugin],
        weights: Mapping[str, int] | None = None,
        scheduler_name: str = DEFAULT_SCHEDULER,
        enabled: Enabled = lambda _plugin, _point: True,
    ) -> Self:
        def doing(protocol: type[P], point: str) -> list[P]:
            return [plugin for plugin in plugins if isinstance(plugin, protocol) and enabled(plugin, point)]

        weighed = weights or {}
        return cls(
            scheduler_name=scheduler_name,
            plugins=plugins,
            pre_enqueue=doing(PreEnqueue, "preEnqueue"),
            pre_filter=doing(PreFilter, "preFilter"),
            filter=doing(Filter, "filter"),
            pre_score=doing(PreScore, "preScore"),
            score=[Weighted(plugin, weighed.get(name_of(plugin), 1)) for plugin in doing(Score, "score")],
            reserve=doing(Reserve, "reserve"),
            permit=doing(Permit, "permit"),
            pre_bind=doing(PreBind, "preBind"),
            post_bind=doing(PostBind, "postBind"),
        )

    def wakes(self) -> Mapping[str, Sequence[Wake]]:
        """By plugin: the changes that may help a pod which it rejected."""
        return {plugin.name: plugin.wakes() for plugin in self.plugins if isinstance(plugin, Wakes)}


def name_of(plugin: object) -> str:
    """Protocols of single extension points do not repeat that every plugin has a name."""
    return str(getattr(plugin, "name", type(plugin).__name__))
