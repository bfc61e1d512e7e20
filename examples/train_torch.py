"""The same training with PyTorch DistributedDataParallel over gloo. Run it as `train_numpy.py --torch`.

DDP reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which `muster run` has set.
"""

import argparse
import os
import time

import spirals
import torch
from torch import distributed, nn


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    distributed.init_process_group("gloo")
    try:
        _train(options, distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()


def _shard(samples: int, seed: int, rank: int, world: int) -> tuple[torch.Tensor, torch.Tensor]:
    points, labels = spirals.shard(*spirals.load(samples, seed), rank, world)
    return torch.from_numpy(points).float(), torch.from_numpy(labels)


def _train(options: argparse.Namespace, rank: int, world: int) -> None:
    points, labels = _shard(options.samples, options.seed, rank, world)
    unseen_points, unseen_labels = _shard(options.samples // 4, options.seed + 1000, rank, world)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(
            nn.Linear(2, options.hidden),
            nn.ReLU(),
            nn.Linear(options.hidden, options.hidden),
            nn.ReLU(),
            nn.Linear(options.hidden, spirals.CLASSES),
        )
    )
    adam = torch.optim.Adam(model.parameters(), lr=options.rate)
    criterion = nn.CrossEntropyLoss()
    started, seen = time.perf_counter(), 0
    for epoch in range(1, options.epochs + 1):
        losses = []
        for chosen in torch.randperm(len(points)).split(options.batch):
            adam.zero_grad()
            loss = criterion(model(points[chosen]), labels[chosen])
            loss.backward()
            adam.step()
            losses.append(loss.item())
        seen += len(points)
        with torch.no_grad():
            right = (model.module(unseen_points).argmax(dim=1) == unseen_labels).float().mean().item()
        means = torch.tensor([sum(losses) / len(losses), right]) / world
        distributed.all_reduce(means)
        if rank == 0:
            print(f"epoch {epoch}/{options.epochs} loss {means[0]:.4f} accuracy {100 * means[1]:.1f}%")
    seconds = time.perf_counter() - started
    print(f"rank {rank} done: {seconds:.2f} s, {seen / seconds:.0f} samples/s")
