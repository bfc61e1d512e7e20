"""Ports of a machine that all its pods share."""

import contextlib
import random
import socket
import sys

import pytest

from muster.agent import ports
from muster.agent.ports import Ports
from muster.api.meta import Condition


def free_port() -> int:
    """Another each time: tests run beside each other."""
    with socket.create_server(("", 0)) as found:
        return int(found.getsockname()[1])


def test_a_pod_has_the_port_it_was_told_where_nobody_else_has_it():
    wanted = free_port()
    with contextlib.closing(Ports(random.Random(1))) as ours:
        assert ours.give("a", [wanted], {}) == {wanted: wanted}
        assert ours.give("a", [wanted], {}) == {wanted: wanted}, "once given it stays"
        second = ours.give("b", [wanted], {})[wanted]
        assert second != wanted
        ours.release("a")
        assert ours.give("c", [wanted], {}) == {wanted: wanted}
        assert ours.give("d", [wanted], {wanted: free_port()})[wanted] not in (wanted, second)


def test_a_port_that_a_process_listens_on_is_not_given():
    wanted = free_port()
    with socket.create_server(("127.0.0.1", wanted)), contextlib.closing(Ports(random.Random(1))) as ours:
        assert ours.give("a", [wanted], {})[wanted] != wanted
    with contextlib.closing(Ports(random.Random(1))) as ours:
        assert ours.give("a", [wanted], {})[wanted] == wanted


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_agents_of_one_machine_do_not_give_the_same():
    wanted = free_port()
    with contextlib.closing(Ports(random.Random(1))) as ours, contextlib.closing(Ports(random.Random(1))) as theirs:
        ours.restore("running", {7: wanted})
        assert ours.give("running", [7], {}) == {7: wanted}
        assert theirs.give("a", [wanted], {})[wanted] != wanted


def test_when_all_are_in_use_it_says_so():
    with socket.create_server(("", 0)) as taken:
        wanted = taken.getsockname()[1]
        with (
            contextlib.closing(Ports(random.Random(1), spare=range(wanted, wanted + 1))) as ours,
            pytest.raises(ports.NoPort, match=f"{wanted} and others"),
        ):
            ours.give("a", [wanted], {})


def told(text: str) -> list[Condition]:
    return [Condition(type="Ready", status="True"), Condition(type=ports.CONDITION, status="True", message=text)]


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"1": "2"}', '{"1": 70000}', "{"])
def test_a_condition_that_nobody_can_read_says_nothing(text):
    assert ports.read(told(text)) is None


def test_a_condition_says_which_port_stands_for_which():
    made = ports.announcement({23456: 15001, 80: 80})
    assert ports.read(told(made["message"])) == {23456: 15001, 80: 80}
    assert ports.read(()) is None
