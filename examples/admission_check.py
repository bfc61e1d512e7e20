"""An admission check in one page: a workload whose quota is set aside starts once somebody has approved it.

    kubectl annotate workload NAME example.com/approval=yes      (or =no, or =later)

Run it beside the platform: `python examples/admission_check.py`. It finds the platform as `muster` does.
"""

import asyncio

from muster.api import conditions, kueue, timestamps
from muster.api.objects import Key
from muster.runtime.clock import SystemClock
from muster.runtime.informers import Informer, all_synced
from muster.runtime.reconciling import Reconciler
from muster.sdk.config import connection
from muster.store.http import HttpStore
from muster.store.protocol import Patch, Revision, Selection, write_one

CONTROLLER = "example.com/approval"  # `spec.controllerName` of the AdmissionChecks that are ours
ANSWER = "example.com/approval"
STATES = {"yes": "Ready", "no": "Rejected", "later": "Retry"}
LATER_SECONDS = 600


class Approval:
    def __init__(self, store, clock):
        self.store, self.clock = store, clock
        self.reconciler = Reconciler("approval", self.reconcile, clock=clock)
        self.informers = {kind: Informer(store, Selection(kind), clock=clock) for kind in (CHECK, WORKLOAD)}
        for informer in self.informers.values():
            informer.on_event(self.heard)

    def heard(self, event):
        self.reconciler.queue.add((event.object.kind, event.object.key))

    async def run(self):
        async with asyncio.TaskGroup() as tasks:
            for informer in self.informers.values():
                tasks.create_task(informer.run())
            await all_synced(list(self.informers.values()))
            tasks.create_task(self.reconciler.run())

    async def reconcile(self, thing):
        kind, key = thing
        found = self.informers[kind].get(key)
        status = found and (self.check(found) if kind is CHECK else self.workload(found))
        if found and status:  # on the revision that was read: who was faster wins, and we look again
            based_on = Revision(found.revision)
            await write_one(self.store, Patch(kind, key, {"status": status}, subresource="status", based_on=based_on))

    def check(self, found):
        """A queue admits nothing while a check of its is not active."""
        if not self.is_ours(found) or found.read(kueue.AdmissionCheck).status.conditions:
            return None
        active = {"type": "Active", "status": "True", "reason": "Ready", "message": "somebody listens", **self.now()}
        return {"conditions": [active]}

    def workload(self, found):
        """Answers only while quota is set aside: once it is given back, the check starts afresh."""
        if not conditions.is_true(found.read(kueue.Workload).status.conditions, "QuotaReserved"):
            return None
        state = STATES.get((found.meta.annotations or {}).get(ANSWER, ""), "Pending")
        listed = found.document().get("status", {}).get("admissionChecks", [])
        ours = [entry for entry in listed if self.is_ours(self.informers[CHECK].get(Key("", entry["name"])))]
        due = [entry for entry in ours if entry["state"] == "Pending" != state]
        for entry in due:
            entry.update(state=state, message=f"the answer was {found.meta.annotations[ANSWER]}", **self.now())
            if state == "Retry":
                entry["requeueAfterSeconds"] = LATER_SECONDS
        return {"admissionChecks": listed} if due else None

    def is_ours(self, check):
        return check is not None and check.read(kueue.AdmissionCheck).spec.controller_name == CONTROLLER

    def now(self):
        return {"lastTransitionTime": timestamps.to_text(self.clock.now())}


CHECK, WORKLOAD = kueue.ADMISSION_CHECK, kueue.WORKLOAD


async def main():
    found = connection()
    async with HttpStore(found.server.removesuffix("/k8s"), found.token) as store:
        await Approval(store, SystemClock()).run()


if __name__ == "__main__":
    asyncio.run(main())
