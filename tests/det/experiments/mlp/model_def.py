"""A small network that tells clouds of points apart, as a trial of Determined's PyTorch Trainer."""

import time
from typing import Any

import torch
from determined import pytorch

CLASSES, FEATURES, POINTS = 10, 16, 512


def clouds(seed: int) -> torch.utils.data.TensorDataset:
    """The clouds are where they are; `seed` says which of their points are drawn."""
    centers = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1)) * 2
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (POINTS,), generator=draw)
    return torch.utils.data.TensorDataset(centers[labels] + torch.randn(POINTS, FEATURES, generator=draw), labels)


class Clouds(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.hparams = context.get_hparams()
        network = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, int(self.hparams.get("hidden", 16))),
            torch.nn.ReLU(),
            torch.nn.Linear(int(self.hparams.get("hidden", 16)), CLASSES),
        )
        self.model = context.wrap_model(network)
        rate = float(self.hparams.get("learning_rate", 0.1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9))
        # Later than any of our trials trains: only what it saves matters.
        halving = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1000, gamma=0.5)
        context.wrap_lr_scheduler(halving, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(clouds(2), batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(clouds(3), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        time.sleep(self.hparams.get("pause", 0))
        points, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(points), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        points, labels = batch
        scores = self.model(points)
        return {
            "validation_loss": torch.nn.functional.cross_entropy(scores, labels).item(),
            "accuracy": (scores.argmax(1) == labels).float().mean().item(),
        }
