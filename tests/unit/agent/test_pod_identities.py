"""Under whom containers run: pods and containers, agents that are root and others."""

from typing import Any

import pytest

from muster.agent import identities
from muster.agent.environment import ConfigMissing
from muster.agent.identities import Account, Agent
from muster.agent.runtime import Identity
from muster.api import core

ROOT, ANN = Agent(0, 0), Agent(1000, 1000)
BEN = Account("ben", 2000, [2000, 44], "/home/ben")


def accounts(uid: int) -> Account | None:
    return BEN if uid == 2001 else None


def found(agent: Agent, pod: dict[str, Any] | None = None, own: dict[str, Any] | None = None) -> Identity | None:
    spec = core.PodSpec(security_context=core.PodSecurityContext(**pod) if pod is not None else None)
    container = core.Container(name="c", security_context=core.SecurityContext(**own) if own is not None else None)
    return identities.of(spec, container, agent, accounts)


@pytest.mark.parametrize("agent", [ROOT, ANN])
def test_who_asks_for_nothing_or_for_the_agent_itself_gets_that(agent: Agent) -> None:
    assert found(agent) is None
    assert found(agent, {}, {}) is None
    assert found(agent, {"run_as_user": agent.uid, "run_as_group": agent.gid}) is None


def test_a_container_goes_before_its_pod() -> None:
    pod = {"run_as_user": 1, "run_as_group": 2}
    assert found(ROOT, pod, {"run_as_user": 5}) == Identity(5, 2, (2,))
    assert found(ROOT, pod, {"run_as_group": 0}) == Identity(1, 0, (0,))
    assert found(ROOT, {**pod, "run_as_non_root": True}, {"run_as_non_root": False, "run_as_user": 0}) == Identity(
        0, 2, (2,)
    )


def test_a_user_of_the_machine_has_its_groups_and_home() -> None:
    assert found(ROOT, {"run_as_user": 2001, "fs_group": 7, "supplemental_groups": (44, 8)}) == Identity(
        2001, 2000, (2000, 44, 8, 7), "ben", "/home/ben"
    )


def test_groups_are_for_agents_that_can_give_them() -> None:
    assert found(ROOT, {"fs_group": 7}) == Identity(0, 0, (0, 7))
    assert found(ANN, {"fs_group": 7, "supplemental_groups": (8,)}) is None
    assert found(ANN, {"run_as_user": 5}) == Identity(5, 5, (5,)), "its keeper says that it cannot"


@pytest.mark.parametrize(
    ("agent", "context", "says"),
    [
        (ROOT, {"run_as_non_root": True}, "runAsNonRoot"),
        (ANN, {"run_as_non_root": True, "run_as_user": 0}, "runAsNonRoot"),
        (ROOT, {"run_as_user": -1}, "-1 is no number"),
        (ROOT, {"run_as_user": 5, "fs_group": 2**31}, "2147483648 is no number"),
    ],
)
def test_what_cannot_be(agent: Agent, context: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigMissing, match=says):
        found(agent, context)
    assert found(ANN, {"run_as_non_root": True}) is None
