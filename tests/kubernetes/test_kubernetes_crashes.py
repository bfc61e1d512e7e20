"""The controller is killed while jobs run; `tests.kubernetes.crashing` does the same for longer."""

from tests.e2e.kubectl_runner import Kubectl
from tests.kubernetes import crashing
from tests.kubernetes.controllers import define
from tests.kubernetes.machines import Machines


async def test_every_job_finishes_once_however_often_the_controller_dies(
    kubectl: Kubectl, namespace: str, machines: Machines
) -> None:
    await define(kubectl)
    report = await crashing.crash(machines, namespace, jobs=30, kills=4, seed=1)
    assert report.problems == [], machines.said()
    assert report.kills > 0
