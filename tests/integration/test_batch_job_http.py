"""The Job controller as it runs alone: against a server, over HTTP."""

import asyncio
from pathlib import Path

from muster.api import batch, core
from muster.api.objects import Key
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.batch import BatchJobController
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.http import HttpStore
from muster.store.protocol import Bind, Create, Patch, Selection, write_one
from muster.testing.servers import serving
from muster.testing.staging import running

CLOCK = SystemClock()
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}}


async def test_a_job_of_many_pods_runs_over_http_and_goes_in_time(tmp_path: Path) -> None:
    async with (
        EmbeddedStore.on_disk(tmp_path / "store.db", clock=CLOCK) as store,
        serving(store) as address,
        HttpStore(address.url, address.token) as remote,
        running(BatchJobController(remote, CLOCK).run, GarbageCollector(remote, CLOCK).run),
    ):
        spec = {"completions": 60, "parallelism": 20, "ttlSecondsAfterFinished": 0, "template": TEMPLATE}
        await write_one(store, Create(batch.JOB, {"metadata": {"name": "j", "namespace": "default"}, "spec": spec}))
        finished: set[str] = set()
        async with asyncio.timeout(30):
            while (await store.list(Selection(batch.JOB))).items:
                pods = [pod.read(core.Pod) for pod in (await store.list(Selection(core.POD))).items]
                working = [pod for pod in pods if pod.status.phase == "Pending"]
                assert len(working) <= 20
                for pod in working:
                    key = Key("default", pod.metadata.name)
                    done = Patch(core.POD, key, {"status": {"phase": "Succeeded"}}, subresource="status")
                    await store.write([Bind(core.POD, key, "n"), done])
                    finished.add(pod.metadata.uid)
                await asyncio.sleep(0.01)
            while (await store.list(Selection(core.POD))).items:
                await asyncio.sleep(0.01)
        assert len(finished) == 60
