"""Real PyTorch trains with four members: as a Volcano Job and as a PyTorchJob, in a gang, through the loss of one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import torch_jobs
from tests.e2e.cli_platform import Platform

from muster.api import quantity

torch_jobs.require_torch()
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with torch_jobs.training_platform() as found:
        yield found


def cordon(up: Platform, node: str, *, is_closed: bool) -> None:
    up.client.patch("nodes", node, {"spec": {"unschedulable": is_closed}})


def check_losses(text: str) -> None:
    seen = torch_jobs.epochs(text)
    assert seen[-1][1] < seen[0][1], text
    assert {world for _, _, world in seen} == {4}
    assert "4 members agree on 129 weights" in text


def test_a_volcano_job_starts_as_a_gang_and_restarts_when_a_member_is_lost(up: Platform, tmp_path: Path) -> None:
    job = torch_jobs.example("volcano-job.yaml", tmp_path, epochs=20)
    offered = [quantity.parse(node["status"]["allocatable"]["cpu"]) for node in up.client.list("nodes")]
    more_than_half = min(offered).nano * 6 // 10 // 10**6  # thousandths, of a node: one member on each
    for task in job["spec"]["tasks"]:
        task["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{more_than_half}m"}}
    closed = up.client.list("nodes")[0]["metadata"]["name"]
    cordon(up, closed, is_closed=True)
    torch_jobs.submit(up, job, "ddp")

    def is_refused() -> bool:
        groups = up.client.list("podgroups.scheduling.volcano.sh")
        return any(
            found["type"] == "Unschedulable"
            for group in groups
            for found in (group.get("status") or {}).get("conditions", ())
        )

    torch_jobs.until(up, "ddp", is_refused, 20)
    assert list(torch_jobs.phases(up, "ddp").values()) == ["Pending"] * 4
    assert not any(pod["spec"].get("nodeName") for pod in torch_jobs.pods_of(up, "ddp").values())

    cordon(up, closed, is_closed=False)
    torch_jobs.until(up, "ddp", lambda: len(torch_jobs.epochs(torch_jobs.logs(up, "ddp-master-0"))) > 2)
    assert len({pod["spec"]["nodeName"] for pod in torch_jobs.pods_of(up, "ddp").values()}) == 4
    torch_jobs.kill_trainer(up, "ddp-worker-1")
    torch_jobs.until(up, "ddp", lambda: torch_jobs.state(up, "ddp") in ("Completed", "Failed"))
    status = up.client.get(torch_jobs.VOLCANO_JOBS, "ddp")["status"]
    assert (status["state"]["phase"], status.get("retryCount")) == ("Completed", 1), torch_jobs.everything(up, "ddp")
    text = torch_jobs.logs(up, "ddp-master-0")
    assert torch_jobs.epochs(text)[0][0] > 1, "it goes on from the checkpoint"
    check_losses(text)


def test_jobs_at_once_that_meet_at_the_same_port(up: Platform, tmp_path: Path) -> None:
    """A PyTorchJob under torchrun, which loses a worker, and two Volcano Jobs: none was told of a port."""
    torch_jobs.submit(up, torch_jobs.example("pytorch-job.yaml", tmp_path, epochs=20), "pet")
    for name in ("one", "two"):
        torch_jobs.submit(up, torch_jobs.example("volcano-job.yaml", tmp_path / name, epochs=10), name)
    torch_jobs.until(up, "pet", lambda: len(ports(up)) == 3)
    assert len(set(ports(up).values())) == 3, ports(up)
    torch_jobs.until(up, "pet", lambda: len(torch_jobs.epochs(torch_jobs.logs(up, "pet-master-0"))) > 2)
    torch_jobs.kill_trainer(up, "pet-worker-2")
    torch_jobs.until(up, "one", lambda: torch_jobs.state(up, "one") in ("Completed", "Failed"))
    torch_jobs.until(up, "two", lambda: torch_jobs.state(up, "two") in ("Completed", "Failed"))
    torch_jobs.until(up, "pet", lambda: torch_jobs.conditions(up, "pet").keys() & {"Succeeded", "Failed"})
    for name in ("one", "two"):
        assert torch_jobs.state(up, name) == "Completed", torch_jobs.everything(up, name)
    assert torch_jobs.conditions(up, "pet").get("Succeeded") == "True", torch_jobs.everything(up, "pet")
    for name in ("one", "two", "pet"):
        check_losses(torch_jobs.logs(up, f"{name}-master-0"))
    restarts = up.client.get("pods", "pet-master-0")["status"]["containerStatuses"][0]["restartCount"]
    assert restarts == 1, "it lost its worker, and was started again in its place"


def ports(up: Platform) -> dict[str, str]:
    """Where those listen whom the others look for."""
    return {
        name: condition["message"]
        for job in ("pet", "one", "two")
        for name, pod in torch_jobs.pods_of(up, job).items()
        for condition in (pod.get("status") or {}).get("conditions", ())
        if condition["type"] == "muster.dev/Ports"
    }
