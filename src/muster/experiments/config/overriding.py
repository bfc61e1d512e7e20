"""What may be changed in the configuration of an experiment that goes on. Pure.

A fork is a new experiment: its configuration is its own. One that is *continued* stays the experiment that it is, with
its trials and their checkpoints, and so only a search of a single trial can go on otherwise than it began: others have
decided on what they were told. It keeps its searcher, the place of its checkpoints, and where it belongs.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from muster.accounts import workspaces
from muster.api import raw
from muster.api.raw import JSON, Document
from muster.experiments.config import layering, shapes, storage
from muster.tasks import config_fields

_FIELD: Final = "overrideConfig"
_SINGLE: Final = "single"


def overridden(config: Mapping[str, JSON], override: Mapping[str, JSON]) -> Document:
    """The configuration to continue with. `config`: with all defaults, as it was accepted. Secrets that were hidden
    from whoever overrides may come back hidden. Raises BadRequest."""
    strong = raw.as_object(workspaces.unhidden(shapes.plain(override), config))
    config_fields.refuse([*_refused(config, strong)], _FIELD)
    return layering.over(shapes.plain(config), strong)


def _refused(config: Mapping[str, JSON], override: Mapping[str, JSON]) -> Iterator[str]:
    method = raw.dig(config, "searcher", "name")
    if override and method != _SINGLE:
        yield f"only a single trial can be continued with another configuration, and this is {method}: fork it"
        return
    if raw.dig(override, "searcher", "name", default=_SINGLE) != _SINGLE:
        yield "searcher.name: must stay single; fork the experiment to search"
    for name, value in _object(override.get("checkpoint_storage")).items():
        if name not in storage.SAVED and value != raw.dig(config, "checkpoint_storage", name):
            yield f"checkpoint_storage.{name}: cannot change: the checkpoints that it goes on from are where they are"
    for name in ("workspace", "project"):
        if override.get(name, "") not in ("", config.get(name)):
            yield f"{name}: cannot change here; move the experiment"


def _object(value: JSON) -> Mapping[str, JSON]:
    return value if isinstance(value, Mapping) else {}
