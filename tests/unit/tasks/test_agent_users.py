"""Under whom tasks run: workspaces before users, and what their pods are told."""

import pytest

from muster.accounts.users import AgentUserGroup
from muster.tasks import agent_users, glue_files, task_pods
from muster.tasks.task_config import TaskConfig, TaskType
from muster.tasks.task_pods import Cluster, TaskFacts

ANN = AgentUserGroup(1001, 1002, "ann", "people")
LAB = AgentUserGroup(2001, 2002, "lab", "labs")
SHARED = AgentUserGroup(gid=3000, group="shared")


@pytest.mark.parametrize(
    ("workspace", "user", "expected"),
    [
        (None, None, None),
        (None, ANN, ANN),
        (LAB, None, LAB),
        (LAB, ANN, LAB),
        (SHARED, ANN, AgentUserGroup(1001, 3000, "ann", "shared")),
        (SHARED, None, SHARED),
        (None, AgentUserGroup(user="ann"), None),
        (None, AgentUserGroup(0, 0, "root", "root"), AgentUserGroup(0, 0, "root", "root")),
    ],
)
def test_a_workspace_goes_before_a_user(
    workspace: AgentUserGroup | None, user: AgentUserGroup | None, expected: AgentUserGroup | None
) -> None:
    found = agent_users.chosen(workspace, user)
    assert found == expected
    assert agent_users.read(agent_users.document(found)) == expected, "as it is kept"


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (None, None),
        (ANN, {"runAsUser": 1001, "runAsGroup": 1002, "fsGroup": 1002}),
        (AgentUserGroup(0, 0), {"runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}),
        (SHARED, {"runAsGroup": 3000, "fsGroup": 3000}),
    ],
)
def test_what_the_pod_is_told(agent: AgentUserGroup | None, expected: dict[str, int] | None) -> None:
    cluster = Cluster("c", "http://muster.example", glue_files.read())
    facts = TaskFacts(TaskType.COMMAND, "ann", "cpu", ["true"], agent=agent)
    assert task_pods.template(TaskConfig(), facts, cluster)["spec"].get("securityContext") == expected
