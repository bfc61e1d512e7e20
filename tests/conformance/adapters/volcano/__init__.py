"""Volcano's scheduler suites that are about placement: which pods are bound where, and who is evicted for them.

Suites about queues and quota, about preemption between queues, and about controllers are not here.
"""

from tests.conformance.adapters.volcano import scores, sessions
from tests.conformance.cases import Adapters

ADAPTERS: Adapters = {
    **sessions.ADAPTERS,
    **scores.ADAPTERS,
}
