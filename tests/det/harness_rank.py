"""One rank of a gang, run by the client's own interpreter: meets the others, says what it found, stops when asked."""

import os
import sys
import time

import determined as det
import urllib3
from determined.common.api import authentication, bindings
from determined.core._preempt import _PreemptionWatcher
from determined.exec import prep_container

info = det.ClusterInfo._from_env()
retry = urllib3.util.retry.Retry(total=6, backoff_factor=0.5)
session = authentication.login_from_task(info.master_url, cert=None).with_retry(retry)
resources = os.environ["DET_RESOURCES_ID"]
met = prep_container.do_rendezvous_rm_provided(session, info.allocation_id, resources)
print("met", met.container_rank, len(met.container_addrs), met.container_slot_counts, flush=True)
data = bindings.v1AcceleratorData(
    containerId=resources,
    acceleratorType="cpu",
    acceleratorUuids=[],
    allocationId=info.allocation_id,
    nodeName=os.environ["DET_AGENT_ID"],
    taskId=info.task_id,
)
body = bindings.v1PostAllocationAcceleratorDataRequest(allocationId=info.allocation_id, acceleratorData=data)
bindings.post_PostAllocationAcceleratorData(session, allocationId=info.allocation_id, body=body)
with _PreemptionWatcher(session, info.allocation_id) as watcher:
    for _ in range(600):
        if watcher.should_preempt():
            if met.container_rank == 0:
                heard = bindings.v1AckAllocationPreemptionSignalRequest(allocationId=info.allocation_id)
                bindings.post_AckAllocationPreemptionSignal(session, allocationId=info.allocation_id, body=heard)
            time.sleep(0.3)  # saves its work
            sys.exit(0)
        time.sleep(0.05)
sys.exit(9)
