"""How long jobs are thought to take, by someone who has seen their like: right on average, and wrong each time."""

import random
from collections.abc import Sequence

from muster.sim.traces import Job


def estimates(jobs: Sequence[Job], noise: float, seed: int) -> list[float]:
    """Seconds, in the order of the jobs: what they take, times a factor whose logarithm is normally distributed with
    the standard deviation `noise`."""
    chance = random.Random(seed)  # noqa: S311  not for secrets
    return [max(1.0, job.seconds * chance.lognormvariate(0.0, noise)) for job in jobs]
