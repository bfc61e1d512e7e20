"""Ranks that a launcher has started meet over Core API, say who is there, and stop together when they are asked to."""

import sys
import time

import determined as det
from determined import core

if __name__ == "__main__":
    info = det.get_cluster_info()
    assert info is not None, "this is not a task"
    distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed, preempt_mode=core.PreemptMode.WorkersAskChief) as context:
        names = context.distributed.allgather(f"{context.distributed.rank}@{info.agent_id}")
        chief = context.distributed.broadcast(context.distributed.rank)
        local = context.distributed.gather_local(context.distributed.local_rank)
        print(f"met {sorted(names)}, chief {chief}, here {local}", flush=True)
        with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
            (path / f"rank-{context.distributed.rank}").write_text(info.agent_id)
        if context.distributed.rank == 0:
            context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 1.0})
        for _ in range(info.trial.hparams["rounds"]):
            if context.preempt.should_preempt():
                print(f"rank {context.distributed.rank} stops", flush=True)
                sys.exit(0)
            time.sleep(0.1)
    print(f"rank {distributed.rank} is done", flush=True)
