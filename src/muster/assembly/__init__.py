"""The composition root: the one package that names concrete classes and puts a platform together.

`up` is everything in one process; `serve` is the same without a node; `agent` is a node alone, against a
server's address. Each runs until it is cancelled, and leaves the pods that it started running.
"""

from muster.assembly.configured import AgentSettings, NodeSettings, ServeSettings
from muster.assembly.platform import Platform, Started, without_nodes
from muster.assembly.starting import Announce, agent, serve, up

__all__ = [
    "AgentSettings",
    "Announce",
    "NodeSettings",
    "Platform",
    "ServeSettings",
    "Started",
    "agent",
    "serve",
    "up",
    "without_nodes",
]
