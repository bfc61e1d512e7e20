"""Queues on a real platform: two jobs where quota allows one at a time, and one that names no queue."""

from collections.abc import Iterator

import pytest
from tests.e2e.cli_platform import ROOT, Platform, platform

EXAMPLE = ROOT / "examples" / "quota" / "one-at-a-time.yaml"


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform() as found:
        yield found


def has(found: dict | None, condition: str) -> bool:
    listed = (found or {}).get("status", {}).get("conditions", ())
    return any(entry["type"] == condition and entry["status"] == "True" for entry in listed)


def the_workload(up: Platform, job: str) -> dict:
    (found,) = [item for item in up.client.list("workloads") if item["metadata"]["ownerReferences"][0]["name"] == job]
    return found


def test_the_second_job_starts_when_the_first_is_done(up):
    applied = up.muster("apply", "-f", str(EXAMPLE))
    assert applied.returncode == 0, applied.stderr
    done = [up.client.wait("jobs", name, lambda job: has(job, "Complete"), timeout=20) for name in ("first", "second")]
    # Where the queue came up after both, which were made in the same second, either may be the first.
    first, second = sorted(done, key=lambda job: job["status"]["startTime"])
    assert second["status"]["startTime"] >= first["status"]["completionTime"]
    for name in ("first", "second"):
        workload = the_workload(up, name)["metadata"]["name"]
        finished = up.client.wait("workloads", workload, lambda found: has(found, "Finished"), timeout=5)
        assert finished["status"]["admission"]["clusterQueue"] == "research"


def test_a_job_that_names_no_queue_starts_at_once(up):
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host", "command": ["true"]}]}
    }
    up.client.apply(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "free"}, "spec": {"template": template}}
    )
    done = up.client.wait("jobs", "free", lambda job: has(job, "Complete"), timeout=20)
    assert done["spec"]["suspend"] is False
    assert "muster.dev/queued" not in done["metadata"].get("annotations", {})
    assert the_workload(up, "free")["status"]["admission"]["clusterQueue"] == "default"
