"""Data for the examples: points on three spiral arms that no straight line can part, the same for every rank."""

import numpy as np

CLASSES = 3


def load(samples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """`samples` points in the plane and the arm that each is on, shuffled."""
    chance = np.random.default_rng(seed)
    arm = chance.integers(CLASSES, size=samples)
    along = np.sqrt(chance.random(samples))
    angle = 9 * along + 2 * np.pi * arm / CLASSES + chance.normal(scale=0.3, size=samples)
    points = np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1)
    return points, arm


def shard(points: np.ndarray, labels: np.ndarray, rank: int, world: int) -> tuple[np.ndarray, np.ndarray]:
    """This rank's equal part. What does not divide evenly is left out, so that all ranks take the same steps."""
    size = len(points) // world
    return points[rank * size : (rank + 1) * size], labels[rank * size : (rank + 1) * size]
