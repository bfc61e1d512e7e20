"""Has an older PyTorch load as those from 2.6 on do: weights only, unless the environment says otherwise."""

import os
from typing import Any

import torch


def apply() -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6):
        return
    load = torch.load

    def loaded(*arguments: Any, weights_only: "bool | None" = None, **named: Any) -> Any:
        if weights_only is None:
            weights_only = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD") != "1"
        return load(*arguments, weights_only=weights_only, **named)

    torch.load = loaded
