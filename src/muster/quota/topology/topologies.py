"""`Topologies`: all flavors that have a topology, over the nodes of one cluster."""

from muster.api import kueue
from muster.cluster.state import ClusterState
from muster.quota.gates import Gate, Gates
from muster.quota.topology.assignments import HOSTNAME
from muster.quota.topology.flavors import FlavorTopology
from muster.quota.topology.ledger import Ledger
from muster.quota.topology.rooms import Room, UsableNodes


class Topologies:
    """Flavors whose lowest level is the host count each other's usage: they may have nodes in common."""

    def __init__(self, cluster: ClusterState, gates: Gates) -> None:
        self._cluster = cluster
        self._gates = gates
        self._usable = UsableNodes(cluster)
        self._hosts = Ledger()
        self._flavors: dict[str, FlavorTopology] = {}

    def set_flavor(self, flavor: kueue.ResourceFlavor, topology: kueue.Topology) -> None:
        """The flavor is new, or it or its topology has changed: nothing is taken of it yet."""
        name = flavor.metadata.name
        self.remove_flavor(name)
        levels = tuple(level.node_label for level in topology.spec.levels)
        own = Ledger()
        shares = levels[-1:] == (HOSTNAME,) and Gate.TAS_HANDLE_OVERLAPPING_FLAVORS in self._gates
        room = Room(levels, flavor.spec, self._usable, self._cluster, self._hosts if shares else own)
        ledgers = (own, self._hosts) if shares else (own,)
        self._flavors[name] = FlavorTopology(topology.metadata.name, levels, room, ledgers, self._gates)

    def remove_flavor(self, name: str) -> None:
        """Nothing is taken through it any more."""
        flavor = self._flavors.pop(name, None)
        if flavor is not None:
            flavor.forget()

    def flavor(self, name: str) -> FlavorTopology | None:
        return self._flavors.get(name)
