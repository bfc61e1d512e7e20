"""One shape for what can be written in several: of one layer, before layers are laid on each other. Pure.

Short and old ways of saying a thing become the way of today: constants without `type`, images and variables for all
devices at once, labels as an object, paths of a shared file system under their old names, actions as objects. What is
null is not said. What is wrong stays as it is, for whoever reads it to refuse.
"""

from collections.abc import Mapping
from typing import Final

from muster.api.raw import JSON, Document
from muster.tasks import config_sections

_SECTIONS: Final = (
    "checkpoint_storage", "integrations", "optimizations", "profiling", "reproducibility", "retention_policy",
    "searcher", "slurm", "pbs",
)  # fmt: skip


def plain(document: Mapping[str, JSON]) -> Document:
    found = config_sections.plain(document)
    for name in _SECTIONS:
        if isinstance(found.get(name), Mapping):
            found[name] = {key: value for key, value in found[name].items() if value is not None}
    if isinstance(found.get("labels"), Mapping):
        found["labels"] = [name for name, is_set in found["labels"].items() if is_set]
    if isinstance(found.get("hyperparameters"), Mapping):
        found["hyperparameters"] = {name: explicit(value) for name, value in found["hyperparameters"].items()}
    if isinstance(found.get("checkpoint_storage"), dict):
        _fold_paths(found["checkpoint_storage"])
    if isinstance(found.get("log_policies"), list):
        found["log_policies"] = [_log_policy(each) for each in found["log_policies"]]
    return found


def explicit(value: JSON) -> JSON:
    """A hyperparameter, or a level of them."""
    if not isinstance(value, Mapping):
        return {"type": "const", "val": value}
    if "type" in value or not value:
        return dict(value)
    return {name: explicit(each) for name, each in value.items()}


def _fold_paths(storage: Document) -> None:
    """Once checkpoints and event files had paths of their own; the harness, too, takes either for both."""
    old = [storage.pop(name, None) for name in ("checkpoint_path", "tensorboard_path")]
    path = storage.get("storage_path") or old[0] or old[1]
    if path is not None:
        storage["storage_path"] = path


def _log_policy(policy: JSON) -> JSON:
    if not isinstance(policy, Mapping):
        return policy
    found = {key: value for key, value in policy.items() if value is not None}
    action = found.get("action")
    if isinstance(action, Mapping) and set(action) == {"type"}:
        found["action"] = action["type"]
    return found
