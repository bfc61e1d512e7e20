"""Volcano's queues: opened and closed, with those below them, and what is in them."""

from muster.jobs.queues.ledger import Ledger
from muster.jobs.queues.planning import CLOSED_BY_PARENT, Plan, plan
from muster.jobs.queues.states import State, state_of, step

__all__ = ["CLOSED_BY_PARENT", "Ledger", "Plan", "State", "plan", "state_of", "step"]
