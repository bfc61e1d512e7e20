"""Sockets that systemd passes. The first of them is told here, where descriptors are taken already."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.api import errors
from muster.server import activation


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        monkeypatch.setattr(activation, "_FIRST", os.dup(found.fileno()))
        yield found


def told(count: str = "1", pid: str = "7") -> dict[str, str]:
    return {"LISTEN_PID": pid, "LISTEN_FDS": count, "LISTEN_FDNAMES": "api", "PATH": "/bin"}


def test_they_are_taken_over_and_no_child_takes_them_again(listener: socket.socket) -> None:
    environment = told()
    (found,) = activation.passed_sockets(environment, 7)
    with found:
        assert found.getsockname() == listener.getsockname()
        assert not os.get_inheritable(found.fileno())
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize("environment", [{}, told(pid="8"), told(count="")])
def test_those_of_another_process_are_left_alone(environment: dict[str, str]) -> None:
    before = dict(environment)
    assert activation.passed_sockets(environment, 7) == []
    assert environment == before


def test_what_is_no_listening_socket_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "_FIRST", os.open(tmp_path, os.O_RDONLY))
    with pytest.raises(errors.BadRequest, match="is no socket"):
        activation.passed_sockets(told(), 7)
    os.close(activation._FIRST)
    with pytest.raises(errors.BadRequest, match="is no socket: Bad file descriptor"):
        activation.passed_sockets(told(), 7)
    with pytest.raises(errors.BadRequest, match="LISTEN_FDS"):
        activation.passed_sockets(told("many"), 7)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        monkeypatch.setattr(activation, "_FIRST", os.dup(datagrams.fileno()))
        with pytest.raises(errors.BadRequest, match="ListenStream="):
            activation.passed_sockets(told(), 7)


def test_systemd_hears_that_we_are_ready(tmp_path: Path) -> None:
    activation.notify_ready({})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        activation.notify_ready({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert systemd.recv(64) == b"READY=1"
