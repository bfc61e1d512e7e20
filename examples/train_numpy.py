"""Data-parallel training in NumPy: an MLP learns three spiral arms.

    muster run --replicas 4 -- python examples/train_numpy.py

Each rank computes gradients on its shard of the data, the ranks average them (`allreduce.py`), and all take the same
step: with the same seed the numbers are the same every time. Accuracy is that on points the model has not trained on.
`--torch` runs `train_torch.py` instead.
"""

import argparse
import itertools
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # many ranks share this machine: one thread each, set before NumPy loads

import numpy as np
import spirals
from allreduce import Group

Weights = list[np.ndarray]


def start(hidden: int, seed: int) -> Weights:
    chance = np.random.default_rng(seed)
    sizes = [2, hidden, hidden, spirals.CLASSES]
    weights = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        weights += [chance.normal(scale=(2 / fan_in) ** 0.5, size=(fan_in, fan_out)), np.zeros(fan_out)]
    return weights


def forward(weights: Weights, points: np.ndarray) -> list[np.ndarray]:
    """Activations of each layer; the last holds class probabilities."""
    first, first_bias, second, second_bias, last, last_bias = weights
    one = np.maximum(points @ first + first_bias, 0)
    two = np.maximum(one @ second + second_bias, 0)
    scores = two @ last + last_bias
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return [one, two, scores / scores.sum(axis=1, keepdims=True)]


def gradients(weights: Weights, points: np.ndarray, labels: np.ndarray) -> tuple[Weights, float]:
    one, two, chances = forward(weights, points)
    rows = np.arange(len(labels))
    loss = float(-np.log(chances[rows, labels] + 1e-12).mean())
    error = chances.copy()
    error[rows, labels] -= 1
    error /= len(labels)
    back_two = (error @ weights[4].T) * (two > 0)
    back_one = (back_two @ weights[2].T) * (one > 0)
    return [
        points.T @ back_one,
        back_one.sum(axis=0),
        one.T @ back_two,
        back_two.sum(axis=0),
        two.T @ error,
        error.sum(axis=0),
    ], loss


class Adam:
    def __init__(self, weights: Weights, rate: float) -> None:
        self.rate = rate
        self.step = 0
        self.mean = [np.zeros_like(part) for part in weights]
        self.square = [np.zeros_like(part) for part in weights]

    def update(self, weights: Weights, grads: Weights) -> None:
        self.step += 1
        for weight, grad, mean, square in zip(weights, grads, self.mean, self.square, strict=True):
            mean[...] += 0.1 * (grad - mean)
            square[...] += 0.001 * (grad * grad - square)
            fair_mean = mean / (1 - 0.9**self.step)
            fair_square = square / (1 - 0.999**self.step)
            weight[...] -= self.rate * fair_mean / (np.sqrt(fair_square) + 1e-8)


def average(group: Group, grads: Weights, loss: float) -> tuple[Weights, float]:
    """One message for everything: many small ones would spend the time on waiting."""
    flat = group.mean(np.concatenate([*(part.ravel() for part in grads), [loss]]))
    parts, place = [], 0
    for grad in grads:
        parts.append(flat[place : place + grad.size].reshape(grad.shape))
        place += grad.size
    return parts, float(flat[-1])


def train(options: argparse.Namespace) -> None:
    with Group() as group:
        points, labels = spirals.load(options.samples, options.seed)
        own_points, own_labels = spirals.shard(points, labels, group.rank, group.world)
        unseen = spirals.shard(*spirals.load(options.samples // 4, options.seed + 1000), group.rank, group.world)
        weights = start(options.hidden, options.seed)
        adam = Adam(weights, options.rate)
        order = np.random.default_rng(options.seed + 1)
        started, seen = time.perf_counter(), 0
        for epoch in range(1, options.epochs + 1):
            shuffled, losses = order.permutation(len(own_points)), []
            for first in range(0, len(shuffled), options.batch):
                chosen = shuffled[first : first + options.batch]
                grads, loss = gradients(weights, own_points[chosen], own_labels[chosen])
                grads, loss = average(group, grads, loss)
                adam.update(weights, grads)
                losses.append(loss)
            seen += len(own_points)
            right = forward(weights, unseen[0])[-1].argmax(axis=1) == unseen[1]
            (accuracy,) = group.mean(np.array([right.mean()]))
            if group.rank == 0:
                print(f"epoch {epoch}/{options.epochs} loss {np.mean(losses):.4f} accuracy {100 * accuracy:.1f}%")
        seconds = time.perf_counter() - started
        print(f"rank {group.rank} done: {seconds:.2f} s, {seen / seconds:.0f} samples/s")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=48_000)
    parser.add_argument("--batch", type=int, default=200, help="samples of each rank in one step")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch", action="store_true", help="use PyTorch DistributedDataParallel")
    return parser.parse_args()


if __name__ == "__main__":
    asked = parse()
    if asked.torch:
        import train_torch

        train_torch.train(asked)
    else:
        train(asked)
