"""The scheduler's shell: watches, lets the engine decide, binds, evicts, and tells people why a pod waits."""

from muster.controllers.scheduling.controller import MakeEngine, SchedulingController

__all__ = ["MakeEngine", "SchedulingController"]
