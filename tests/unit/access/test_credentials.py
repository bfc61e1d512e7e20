"""Credentials that change under the process that uses them."""

import os
import sys

import pytest

from muster.access.credentials import Credential, FileCredentials, Plugin, PluginCredentials
from muster.api import errors, timestamps
from muster.api.meta import Instant

VERSION = "client.authentication.k8s.io/v1"


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text("first")
    return path


def from_file(path, time) -> FileCredentials:
    return FileCredentials(lambda: Credential((("Authorization", path.read_text()),)), [path], now=time)


def put(path, text: str) -> None:
    """As kubelets do it: another file in its place."""
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


def test_a_file_is_read_again_after_a_while(token, time):
    credentials = from_file(token, time)
    put(token, "second")
    assert credentials.current().headers == (("Authorization", "first"),)
    time.now += 61
    assert credentials.current().headers == (("Authorization", "second"),)


def test_a_file_is_read_again_at_once_when_the_server_refuses_what_it_held(token, time):
    credentials = from_file(token, time)
    first = credentials.current()
    credentials.forget(first)
    assert credentials.current() is first
    put(token, "second")
    credentials.forget(first)
    assert credentials.current().headers == (("Authorization", "second"),)


def test_a_file_that_is_missing_for_a_moment_does_no_harm(token, time, caplog):
    credentials = from_file(token, time)
    token.unlink()
    time.now += 61
    assert credentials.current().headers == (("Authorization", "first"),)
    assert "could not be read again" in caplog.text
    token.write_text("second")
    time.now += 61
    assert credentials.current().headers == (("Authorization", "second"),)


def plugin(expiry: str) -> Plugin:
    answer = f'{{"apiVersion": "{VERSION}", "status": {{"token": "t", "expirationTimestamp": "{expiry}"}}}}'
    return Plugin(VERSION, sys.executable, ["-c", f"print({answer!r})"])


def test_a_plugin_is_asked_again_before_its_answer_ends(time):
    made = []

    def dress(token: str, certificate: str, key: str) -> Credential:
        made.append((token, certificate, key))
        return Credential()

    credentials = PluginCredentials(plugin(timestamps.to_text(Instant(2000.0))), dress, now=time)
    credentials.current()
    time.now = 1969.0
    credentials.current()
    assert made == [("t", "", "")]
    time.now = 1970.0
    credentials.current()
    assert len(made) == 2


def test_an_end_that_is_no_time_is_named(time):
    credentials = PluginCredentials(plugin("tomorrow"), lambda *_: Credential(), now=time)
    with pytest.raises(errors.Unauthorized, match=r"status\.expirationTimestamp"):
        credentials.current()
