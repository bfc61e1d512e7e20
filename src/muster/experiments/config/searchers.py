"""The sections `searcher` and `hyperparameters`, which package `search` understands. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from muster.api.raw import JSON, Document
from muster.search import config as search_config
from muster.search import registry
from muster.search.config import SearcherConfig, Single
from muster.tasks.config_fields import Fields


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """`custom`: trials of an unmanaged experiment, that a program of somebody's makes."""

    metric: str
    smaller_is_better: bool = True


Searcher: TypeAlias = SearcherConfig | Elsewhere


def document(searcher: Searcher) -> Document:
    if isinstance(searcher, Elsewhere):
        return {"name": "custom", "metric": searcher.metric, "smaller_is_better": searcher.smaller_is_better}
    return search_config.document(searcher)


def read(fields: Fields, hyperparameters: Mapping[str, JSON], *, is_unmanaged: bool) -> Searcher:
    given = fields.document("searcher")
    if is_unmanaged and given.get("name") == "custom":
        return _elsewhere(fields.inside("searcher"))
    if fields.raw("searcher") is None:
        fields.problem("searcher", "must be given: for one trial, {name: single, metric: …}")
        return Single(metric="")
    found = registry.checked(given, hyperparameters)
    if isinstance(found, list):
        fields.problems.extend(map(str, found))
        return Single(metric="")
    if found.config.source_trial_id and found.config.source_checkpoint_uuid:
        fields.problem("searcher.source_trial_id", "at most one of source_trial_id and source_checkpoint_uuid is given")
    return found.config


def _elsewhere(fields: Fields) -> Elsewhere:
    fields.raw("name")
    found = Elsewhere(fields.text("metric"), fields.flag("smaller_is_better", True))
    if not found.metric:
        fields.problem("metric", "must be given")
    fields.finish()
    return found
