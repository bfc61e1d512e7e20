"""Configurations as people may see them. Pure."""

from collections.abc import Mapping

import yaml

from muster.accounts import workspaces
from muster.accounts.workspaces import HIDDEN
from muster.api import errors, raw
from muster.api.raw import JSON, Document
from muster.experiments.config import yaml_text


def shown(config: Mapping[str, JSON]) -> Document:
    """Without keys of storages, without what is under `data.secrets`, and without the token of Pachyderm."""
    found = dict(config)
    if "checkpoint_storage" in found:
        found["checkpoint_storage"] = workspaces.without_secrets(found["checkpoint_storage"])
    secrets = raw.dig(found, "data", "secrets")
    if isinstance(secrets, Mapping):
        found["data"] = {**found["data"], "secrets": dict.fromkeys(secrets, HIDDEN)}
    dataset = raw.dig(found, "integrations", "pachyderm", "dataset")
    if isinstance(dataset, Mapping) and dataset.get("token"):
        pachyderm = {**found["integrations"]["pachyderm"], "dataset": {**dataset, "token": HIDDEN}}
        found["integrations"] = {**found["integrations"], "pachyderm": pachyderm}
    return found


def shown_text(config: str) -> str:
    """What somebody sent, without the same; the comments go, too: they may hold anything."""
    try:
        found = yaml_text.read(config, "config")
    except errors.ApiError:
        return ""
    return yaml.safe_dump(shown(found), sort_keys=False) if found else ""
