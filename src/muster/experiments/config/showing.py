"""Configurations as people may see them. Pure."""

from collections.abc import Mapping

from muster.accounts import workspaces
from muster.accounts.workspaces import HIDDEN
from muster.api import raw
from muster.api.raw import JSON, Document


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
