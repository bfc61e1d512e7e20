"""The proxy: services of tasks (notebooks, TensorBoards, shells, declared ports), reached through this server."""

from muster.server.proxy.proxying import Proxy

__all__ = ["Proxy"]
