"""Trains it as far as the hyperparameters say, from the latest checkpoint where there is one."""

import determined as det
import model_def
import newer_torch
import torch
from determined import pytorch

if __name__ == "__main__":
    torch.set_num_threads(1)
    newer_torch.apply()
    info = det.get_cluster_info()
    assert info is not None, "this is not a task"
    hparams = info.trial.hparams
    with pytorch.init(hparams=hparams) as context:
        rank, size = context.distributed.get_rank(), context.distributed.get_size()
        print(f"rank {rank} of {size} on {info.agent_id}, from {info.latest_checkpoint}", flush=True)
        trainer = pytorch.Trainer(model_def.Clouds(context), context)
        trainer.fit(
            max_length=pytorch.Batch(hparams["batches"]),
            validation_period=pytorch.Batch(hparams["every"]),
            checkpoint_period=pytorch.Batch(hparams["every"]),
            reporting_period=pytorch.Batch(hparams["every"]),
            checkpoint_policy="none",
            latest_checkpoint=info.latest_checkpoint,
        )
    print(f"rank {rank} has trained", flush=True)
