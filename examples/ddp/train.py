"""Data-parallel training with PyTorch: every member of the job runs this, on any number of machines.

Who they are and where they meet is in the environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), set by the job or
by torchrun. With --checkpoint it goes on where it stopped: after a restart, and with torchrun also when members come
or go. Needs PyTorch and nothing else.
"""

import argparse
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, nn

SAMPLES = 4096
HIDDEN = 32


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=options.timeout))
    rank, world = distributed.get_rank(), distributed.get_world_size()
    print(f"rank {rank} of {world} started, process {os.getpid()}", flush=True)
    torch.manual_seed(0)  # all begin with the same weights, and would not have to: DDP sends those of rank 0
    network = nn.Sequential(nn.Linear(2, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
    model = nn.parallel.DistributedDataParallel(network)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    done, first = load(options.checkpoint, network, optimiser)
    last = first
    for epoch in range(done + 1, options.epochs + 1):
        last = train(model, optimiser, epoch, rank, world, options.batch)
        first = first or last
        if rank == 0:
            print(f"epoch {epoch}/{options.epochs} loss {last:.4f} world {world}", flush=True)
            save(options.checkpoint, network, optimiser, epoch, first)
        time.sleep(options.pause)
    check(network, first, last, rank, world)
    distributed.barrier()
    # Not by returning: PyTorch 1.13 may take its process group apart while the group's own thread waits for the
    # interpreter, and then neither ever ends.
    sys.stdout.flush()
    os._exit(0)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each epoch, to watch it")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds to wait for the others")
    parser.add_argument("--checkpoint", type=Path, help="a file that all members can read")
    return parser.parse_args()


def shard(epoch: int, rank: int, world: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This member's points of an epoch. A point is in the class if its two coordinates have the same sign, which no
    straight line can tell."""
    generator = torch.Generator().manual_seed(epoch)
    points = torch.rand(SAMPLES, 2, generator=generator) * 2 - 1
    labels = (points.prod(dim=1) > 0).float().unsqueeze(1)
    # Equal shares: one that has a batch more than the others would wait for them for ever.
    size = SAMPLES // world
    mine = slice(rank * size, (rank + 1) * size)
    return points[mine], labels[mine]


def train(model: nn.Module, optimiser: torch.optim.Optimizer, epoch: int, rank: int, world: int, batch: int) -> float:
    """The mean loss of one epoch over all members."""
    points, labels = shard(epoch, rank, world)
    criterion, total, steps = nn.BCEWithLogitsLoss(), torch.zeros(1), 0
    for some, wanted in zip(points.split(batch), labels.split(batch), strict=True):
        optimiser.zero_grad()
        loss = criterion(model(some), wanted)
        loss.backward()
        optimiser.step()
        total += loss.detach()
        steps += 1
    distributed.all_reduce(total)
    return float(total) / (steps * world)


def check(network: nn.Module, first: float, last: float, rank: int, world: int) -> None:
    """All have the same weights, to the last bit, and they are better than at first."""
    weights = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    found = [torch.empty_like(weights) for _ in range(world)]
    distributed.all_gather(found, weights)
    if not all(torch.equal(weights, other) for other in found):
        sys.exit(f"rank {rank}: the members do not have the same weights")
    if not last < first * 0.8:
        sys.exit(f"rank {rank}: the loss did not fall: {first:.4f} at first, {last:.4f} at last")
    if rank == 0:
        print(f"done: loss {first:.4f} -> {last:.4f}, {world} members agree on {weights.numel()} weights", flush=True)


def load(path: Path | None, network: nn.Module, optimiser: torch.optim.Optimizer) -> tuple[int, float]:
    """How many epochs are done, and the loss of the first."""
    if path is None or not path.exists():
        return 0, 0.0
    state = torch.load(path)
    network.load_state_dict(state["network"])
    optimiser.load_state_dict(state["optimiser"])
    return int(state["epoch"]), float(state["first"])


def save(path: Path | None, network: nn.Module, optimiser: torch.optim.Optimizer, epoch: int, first: float) -> None:
    if path is None:
        return
    state = {"network": network.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch, "first": first}
    unfinished = path.with_suffix(".new")
    torch.save(state, unfinished)
    unfinished.replace(path)  # whoever is killed meanwhile leaves the one before


if __name__ == "__main__":
    main()
