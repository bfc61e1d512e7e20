"""Traces of real clusters: who asked for how many GPUs when, and for how long."""

from muster.sim.traces.jobs import Job, Trace
from muster.sim.traces.reading import read

__all__ = ["Job", "Trace", "read"]
