"""Keys of storages, which are part of an experiment's configuration and not for everybody to read. Pure."""

from typing import Final

from muster.api.raw import Document

_SECRET: Final = frozenset({"access_key", "secret_key", "connection_string", "credential"})
_HIDDEN: Final = "********"


def hidden(config: Document) -> Document:
    """As it is shown to those who may look at an experiment, but not run one."""
    storage = config.get("checkpoint_storage")
    if not isinstance(storage, dict):
        return config
    shown = {name: _HIDDEN if name in _SECRET and value else value for name, value in storage.items()}
    return {**config, "checkpoint_storage": shown}
