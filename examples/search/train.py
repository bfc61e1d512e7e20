"""A network with one hidden layer that learns to part three spirals, in plain numpy.

As a trial of experiment.yaml beside it, or alone: `python train.py` prints what it would report.
"""

from pathlib import Path

import numpy as np

from muster.sdk import training

CLASSES, BATCH = 3, 16


def spirals(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the arm that each is on."""
    chance = np.random.default_rng(seed)
    arm = chance.integers(CLASSES, size=samples)
    along = np.sqrt(chance.random(samples))
    angle = 6 * along + 2 * np.pi * arm / CLASSES + chance.normal(scale=0.2, size=samples)
    return np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1), arm


class Network:
    def __init__(self, hidden: int, seed: int) -> None:
        chance = np.random.default_rng(seed)
        self.weights = [
            chance.normal(scale=2.0, size=(2, hidden)),
            chance.normal(scale=2.0, size=hidden),
            chance.normal(scale=hidden**-0.5, size=(hidden, CLASSES)),
            np.zeros(CLASSES),
        ]
        self.speeds = [np.zeros_like(weight) for weight in self.weights]

    def guess(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The hidden layer, and how likely each arm is."""
        into, shift, out, bias = self.weights
        hidden = np.tanh(points @ into + shift)
        scores = hidden @ out + bias
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, likely / likely.sum(axis=1, keepdims=True)

    def learn(self, points: np.ndarray, arms: np.ndarray, rate: float, momentum: float) -> float:
        """One step; the loss before it."""
        hidden, likely = self.guess(points)
        wrong = likely.copy()
        wrong[np.arange(len(arms)), arms] -= 1
        back = (wrong @ self.weights[2].T) * (1 - hidden**2)
        slopes = [points.T @ back, back.sum(axis=0), hidden.T @ wrong, wrong.sum(axis=0)]
        self.speeds = [
            momentum * speed - rate * slope / len(arms) for speed, slope in zip(self.speeds, slopes, strict=True)
        ]
        self.weights = [weight + speed for weight, speed in zip(self.weights, self.speeds, strict=True)]
        return float(-np.log(likely[np.arange(len(arms)), arms] + 1e-9).mean())

    def save(self, path: Path) -> None:
        np.savez(path, *self.weights, *self.speeds)

    def load(self, path: Path) -> None:
        with np.load(path) as kept:
            found = [kept[name] for name in kept.files]
        self.weights, self.speeds = found[:4], found[4:]


def main() -> None:
    with training.run({"learning_rate": 0.3, "hidden": 32, "momentum": 0.9, "epochs": 27}) as run:
        points, arms = spirals(2000, seed=1)
        others, their_arms = spirals(1000, seed=2)
        network = Network(run.hparams["hidden"], run.seed)
        if (saved := run.latest_checkpoint()) is not None:
            network.load(saved / "network.npz")
        chance = np.random.default_rng(run.seed)
        for epoch in range(run.steps_completed + 1, run.hparams["epochs"] + 1):
            order = chance.permutation(len(points)).reshape(-1, BATCH)
            rate, momentum = run.hparams["learning_rate"], run.hparams["momentum"]
            losses = [network.learn(points[batch], arms[batch], rate, momentum) for batch in order]
            run.report(epoch, {"loss": float(np.mean(losses))})
            error = float((network.guess(others)[1].argmax(axis=1) != their_arms).mean())
            run.report(epoch, {"error": error}, group="validation")
            run.progress(epoch / run.hparams["epochs"])
            stops = run.should_stop()
            if stops or epoch % 9 == 0:
                with run.checkpoint(epoch) as directory:
                    network.save(directory / "network.npz")
            if stops:
                break


if __name__ == "__main__":
    main()
