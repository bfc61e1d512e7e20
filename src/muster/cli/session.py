"""What the options before the command say. Imported for every command line, so it imports nothing slow."""

from typing import NamedTuple


class Session(NamedTuple):
    """Which platform the user means; empty parts are found as `muster.sdk.config` finds them."""

    server: str = ""
    token: str = ""
    data: str = ""
    kubeconfig: str = ""
    context: str = ""
