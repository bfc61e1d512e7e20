"""Settings of a platform that is started here: flags, variables and the configuration file together."""

from pathlib import Path

import pytest
import yaml

from muster.api import errors
from muster.cli import configuring


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}


def configure(env: dict[str, str], text: str) -> Path:
    path = Path(env["XDG_CONFIG_HOME"]) / "muster" / "config.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_flags_before_variables_before_the_file(env: dict[str, str]) -> None:
    configure(env, "quota: q.yaml\nplatform:\n  port: 1\n  host: a\n  cluster_name: ours\n")
    found = configuring.settings({"port": 3, "assignments": ("log.level=debug",)}, {**env, "MUSTER_HOST": "b"})
    assert (found.port, found.host, found.cluster_name, found.log.level) == (3, "b", "ours", "debug")
    assert found.quota == "q.yaml"


def test_a_file_that_is_named_stands_for_the_section(env: dict[str, str], tmp_path: Path) -> None:
    configure(env, "platform: {port: 1, host: a}\n")
    (tmp_path / "server.yaml").write_text("port: 2\n")
    for flags, variables in (
        ({"config": str(tmp_path / "server.yaml")}, {}),
        ({}, {"MUSTER_CONFIG": str(tmp_path / "server.yaml")}),
    ):
        found = configuring.settings(flags, {**env, **variables})
        assert (found.port, found.host) == (2, "127.0.0.1")


def test_a_wrong_key_is_told_with_its_path_and_file(env: dict[str, str]) -> None:
    path = configure(env, "platform:\n  security: {tls: {crt: x}}\n")
    with pytest.raises(errors.BadRequest) as raised:
        configuring.settings({}, env)
    assert raised.value.message.startswith(f"{path}: platform.security.tls.crt: unknown key")
    configure(env, "platform: 3\n")
    with pytest.raises(errors.BadRequest, match="platform: expected a mapping"):
        configuring.settings({}, env)


def test_what_is_printed_can_be_read_again_and_tells_no_secret(
    env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = configuring.settings({}, {**env, "MUSTER_SECURITY_INITIAL_USER_PASSWORD": "Hush12345", "MUSTER_PORT": "5"})
    configuring.show(wanted)
    printed = capsys.readouterr().out
    assert "Hush12345" not in printed
    assert yaml.safe_load(printed)["port"] == 5
