"""kube-scheduler's suites, by what they are about."""

from tests.conformance.adapters.kube import affinity, gangs, nodes, preemption, queue, resources, spread
from tests.conformance.cases import Adapters

ADAPTERS: Adapters = {
    **nodes.ADAPTERS,
    **resources.ADAPTERS,
    **affinity.ADAPTERS,
    **spread.ADAPTERS,
    **preemption.ADAPTERS,
    **gangs.ADAPTERS,
    **queue.ADAPTERS,
}
