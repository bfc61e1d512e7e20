"""Where the proxy looks for a task."""

import socket

import pytest

from muster.api import errors
from muster.server.proxy import locating
from muster.server.proxy.refusing import NotServing
from muster.tasks.contract import ProxyPort
from muster.tasks.proxies import Target

NAMES = {"task-a.team.svc": "10.96.4.7", "task-b.team.svc": "169.254.169.254", "elsewhere.example": "10.96.4.8"}


def at(address: str) -> Target:
    return Target("a", "a.1", address, ProxyPort(8888))


async def known(name: str) -> str:
    try:
        return NAMES[name]
    except KeyError:
        raise socket.gaierror(socket.EAI_NONAME, "unknown") from None


@pytest.mark.parametrize("address", ["10.217.0.3", "127.0.0.1", "::1", "fd00::7"])
async def test_a_pod_is_asked_at_its_address(address: str) -> None:
    assert (await locating.located(at(address), known)).address == address


async def test_a_service_is_asked_at_the_address_that_its_name_has() -> None:
    assert (await locating.located(at("task-a.team.svc"), known)).address == "10.96.4.7"


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "::ffff:169.254.169.254", "0.0.0.0", "224.0.0.1", "240.0.0.1", "elsewhere.example", ""],
)
async def test_what_is_nobodys_pod_is_not_asked(address: str) -> None:
    with pytest.raises(errors.NotFound):
        await locating.located(at(address), known)


async def test_a_service_that_leads_to_a_machines_secrets_is_not_asked() -> None:
    with pytest.raises(errors.NotFound):
        await locating.located(at("task-b.team.svc"), known)


async def test_a_service_that_nobody_knows_may_be_tried_again() -> None:
    with pytest.raises(NotServing, match="Service of task a is not known"):
        await locating.located(at("task-c.team.svc"), known)
