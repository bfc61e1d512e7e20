"""What a search would try, before any experiment is made."""

from collections.abc import Mapping, Sequence

from muster.api import errors
from muster.api.raw import JSON
from muster.experiments.config import shapes
from muster.search import preview, registry
from muster.server.determined.routing import Call, Message, Route, known, route


class PreviewSearch(Message, frozen=True):
    """`config`: an experiment's, of which only the search matters. `seed`: nothing of what is told depends on it."""

    config: Mapping[str, JSON] = {}
    seed: int = 0


class SearchUnit(Message, frozen=True):
    """`max_length`: as long as they train; else until `value` of the metric `name`."""

    max_length: bool
    name: str | None = None
    value: int | None = None


class TrialSummary(Message, frozen=True):
    count: int
    unit: SearchUnit


class SearchSummary(Message, frozen=True):
    config: Mapping[str, JSON]
    trials: Sequence[TrialSummary]


class PreviewReply(Message, frozen=True):
    summary: SearchSummary


async def _preview(_call: Call, asked: PreviewSearch) -> PreviewReply:
    config = shapes.plain(asked.config)
    found = registry.checked(config.get("searcher"), config.get("hyperparameters") or {})
    if isinstance(found, list):
        raise errors.BadRequest("config: " + "; ".join(map(str, found)))
    told = preview.summary(found.config, found.space)
    trials = [
        TrialSummary(
            count=each["count"],
            unit=SearchUnit(
                max_length=each["unit"]["maxLength"], name=each["unit"].get("name"), value=each["unit"].get("value")
            ),
        )
        for each in told["trials"]
    ]
    return PreviewReply(summary=SearchSummary(config=told["config"], trials=trials))


def routes() -> Sequence[Route]:
    return (route("POST", "/api/v1/preview-hp-search", PreviewSearch, PreviewReply, known(), _preview),)
