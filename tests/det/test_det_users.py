"""Tasks that run as the user of the node that somebody is linked with."""

import os
from pathlib import Path

import pytest
from tests.det.det_client import Det
from tests.det.det_platform import DetPlatform

NOBODY, SHARED = 65534, 54_323
PYTHON = Path("/usr/bin/python3")
OPTIONS = ("--set", f"tasks.python={PYTHON}")
pytestmark = [
    pytest.mark.usefixtures("emptied"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only an agent that is root can run tasks as somebody else"),
    pytest.mark.skipif(not PYTHON.exists(), reason="they need a Python that everybody may run"),
]


def link(det: Det, user: str) -> None:
    who = f"--agent-uid {NOBODY} --agent-gid {NOBODY} --agent-user nobody --agent-group nogroup"
    det("user", "link-with-agent-user", user, *who.split())


def said(det: Det, *words: str) -> list[str]:
    """What the command itself wrote."""
    lines = det("cmd", "run", *words).out.splitlines()
    return [line.rpartition(" || ")[2] for line in lines if " || " in line and ": " not in line.rpartition(" || ")[2]]


def test_a_command_runs_as_whom_its_user_is_linked_with(det: Det, platform: DetPlatform):
    ann = platform.new_user("ann")
    link(det, "ann")
    script = f"id -u; id -g; touch made; stat -c %u made; cat {platform.data}/node-token 2> /dev/null || echo closed"
    assert said(ann, script) == [str(NOBODY)] * 3 + ["closed"]
    assert said(det, "id -u") == ["0"]


def test_a_workspace_may_share_a_group(det: Det, platform: DetPlatform):
    ben = platform.new_user("ben")
    link(det, "ben")
    det("workspace", "create", "lab", "--agent-gid", str(SHARED), "--agent-group", "lab")
    det("rbac", "assign-role", "Editor", "-u", "ben", "-w", "lab")
    script = "id -u; id -g; touch made; stat -c %g made"
    assert said(ben, "-w", "lab", script) == [str(NOBODY), str(SHARED), str(SHARED)]
