"""Users, logins, tokens and the master, through the unmodified client."""

import re
from pathlib import Path

from tests.det.det_client import Det
from tests.det.det_platform import PASSWORD, DetPlatform


def user_row(det: Det, name: str) -> dict[str, str]:
    return next(row for row in det("user", "list", "--all").rows if row["Username"] == name)


def test_the_executable_itself_runs(det: Det):
    """All other tests save the time of importing it."""
    done = det.process("user", "whoami")
    assert (done.returncode, done.stdout) == (0, "You are logged in as user 'admin'\n"), done.stderr
    assert "version: 0.38.1" in det.process("version").stdout


def test_who_has_logged_in_stays_so_until_logging_out(platform: DetPlatform):
    user = platform.new_user("lina")
    bare = {name: value for name, value in user.environment.items() if name not in {"DET_USER", "DET_PASS"}}

    def call(*arguments: str, text: str = "") -> str:
        return platform.forks.start(["-m", platform.master, *arguments], bare, text).wait().text

    call("user", "login", "lina", text="Passw0rdX\n")
    assert "You are logged in as user 'lina'" in call("user", "whoami")
    token = call("dev", "auth-token").strip()
    assert platform.http("GET", "/api/v1/me", token=token).json["user"]["username"] == "lina"
    call("user", "logout")
    assert platform.http("GET", "/api/v1/me", token=token).status == 401
    assert "Invalid username/password" in call("user", "login", "lina", text="wrong\n")


def test_users_are_made_changed_and_switched_off(det: Det, platform: DetPlatform):
    ann = platform.new_user("ann")
    assert "logged in as user 'ann'" in ann("user", "whoami").out
    det("user", "edit", "--display-name", "Ann E.", "ann")
    det("user", "link-with-agent-user", "--agent-uid", "1000", "--agent-user", "a", "--agent-gid", "1001",
        "--agent-group", "g", "ann")  # fmt: skip
    row = user_row(det, "ann")
    assert (row["Display Name"], row["Agent Uid"], row["Agent Gid"]) == ("Ann E.", "1000", "1001")
    det("user", "rename", "ann", "anna")
    assert user_row(det, "anna")["User Id"] == row["User Id"]
    anna = platform.user("anna", "Passw0rdX")
    anna("user", "whoami")
    token = platform.token(anna)
    det("user", "deactivate", "anna")
    assert user_row(det, "anna")["Active"] == "False"
    assert not [each for each in det("user", "list").rows if each["Username"] == "anna"]
    assert platform.http("GET", "/api/v1/me", token=token).status == 401
    assert anna.start("user", "whoami").wait().code == 1
    det("user", "activate", "anna")
    anna("user", "whoami")


def test_a_remote_user_has_no_password_to_log_in_with(det: Det, platform: DetPlatform):
    det("user", "create", "--remote", "rem")
    assert user_row(det, "rem")["Remote"] == "True"
    for password in ("", "Passw0rdX"):
        answer = platform.http("POST", "/api/v1/auth/login", body={"username": "rem", "password": password})
        assert answer.status in {401, 403}


def test_a_new_password_ends_what_the_old_one_opened(platform: DetPlatform):
    bea = platform.new_user("bea")
    bea("user", "whoami")
    old = platform.token(bea)
    changed = bea("user", "change-password", text="N3w-password\nN3w-password\n")
    assert "Traceback" not in changed.text
    assert platform.http("GET", "/api/v1/me", token=old).status == 401
    refused = platform.http("POST", "/api/v1/auth/login", body={"username": "bea", "password": "Passw0rdX"})
    assert refused.status == 401
    renewed = platform.http("POST", "/api/v1/auth/login", body={"username": "bea", "password": "N3w-password"})
    assert renewed.status == 200
    assert renewed.headers["Set-Cookie"].startswith("auth=")
    weak = bea.start("user", "change-password", text="short\nshort\n").wait()
    assert weak.code == 1


def test_an_access_token_logs_in_until_it_is_revoked(det: Det, platform: DetPlatform):
    platform.new_user("carl")
    made = det("token", "create", "carl", "--expiration-days", "3", "--description", "for CI")
    token = re.search(r"Access-Token: (\S+)", made.out)[1]  # type: ignore[index]
    identity = re.search(r"TokenID: (\d+)", made.out)[1]  # type: ignore[index]
    listed = {str(entry["id"]): entry for entry in det("token", "list", "--json").json}
    assert listed[identity]["description"] == "for CI"
    det("token", "edit", identity, "--description", "for tests")
    assert "for tests" in det("token", "describe", identity).out
    visitor = Det(platform.forks, platform.master, _home(platform, "visitor"), "", "")
    assert "Authenticated as carl." in visitor("token", "login", token).out
    bare = {name: value for name, value in visitor.environment.items() if name not in {"DET_USER", "DET_PASS"}}
    whoami = platform.forks.start(["-m", platform.master, "user", "whoami"], bare, "").wait()
    assert "logged in as user 'carl'" in whoami.out
    det("token", "revoke", identity)
    assert platform.http("GET", "/api/v1/me", token=token).status == 401
    assert identity not in {str(entry["id"]) for entry in det("token", "list", "--json").json}
    kept = {str(entry["id"]): entry for entry in det("token", "list", "--show-inactive", "--json").json}
    assert kept[identity]["revoked"] is True


def _home(platform: DetPlatform, name: str) -> Path:
    home = platform.directory / f"home-{name}"
    home.mkdir()
    return home


def test_who_is_no_administrator_may_not_manage_users(det: Det, platform: DetPlatform):
    eve = platform.new_user("eve")
    for words in (
        ("user", "create", "--password", "Passw0rdX", "mallory"),
        ("user", "edit", "--admin", "true", "eve"),
        ("user", "edit", "--display-name", "gone", "admin"),
        ("user", "deactivate", "admin"),
        ("token", "create", "admin"),
        ("master", "config", "set", "--log.level", "DEBUG"),
        ("master", "cluster-message", "set", "-m", "eve was here"),
    ):
        refused = eve(*words, code=1)
        assert "Forbidden" in refused.text or "may not" in refused.text, refused.text
        assert "Traceback" not in refused.text
    assert user_row(det, "admin")["Display Name"] == ""
    assert user_row(det, "admin")["Active"] == "True"
    assert "mallory" not in det("user", "list", "--all").out
    assert det("master", "cluster-message", "get").out.count("eve was here") == 0


def test_the_master_tells_about_itself(det: Det):
    info = det("master", "info", "--json").json
    assert info["version"] == "0.38.1"
    assert info["rbacEnabled"] is True
    assert info["clusterId"]
    config = det("master", "config", "show").out
    assert "port" in config
    assert PASSWORD not in config
    assert "No SSO providers" in det("auth", "list-providers").text


def test_the_masters_log_is_read_and_its_level_changed(det: Det):
    det("master", "config", "set", "--log.level", "DEBUG")
    assert "debug" in det("master", "config", "show").out.lower()
    tail = det("master", "logs", "--tail", "2").lines
    assert 1 <= len(tail) <= 2
    following = det.start("master", "logs", "-f")
    following.until("[")
    following.stop()
    det("master", "config", "set", "--log.level", "INFO")


def test_a_message_to_all_is_set_told_and_cleared(det: Det, platform: DetPlatform):
    det("master", "cluster-message", "set", "-m", "maintenance at noon")
    assert "maintenance at noon" in det("master", "cluster-message", "get").out
    assert det("master", "info", "--json").json["clusterMessage"]["message"] == "maintenance at noon"
    det("master", "cluster-message", "set", "-m", "short", "-d", "1h")
    assert "short" in platform.new_user("mia")("master", "info").out
    det("master", "cluster-message", "clear")
    assert "short" not in det("master", "cluster-message", "get").out


def test_logins_are_slowed_down_and_on_record(platform: DetPlatform, det: Det):
    body = {"username": "nobody-at-all", "password": "wrong"}
    codes = [platform.http("POST", "/api/v1/auth/login", body=body).status for _ in range(12)]
    assert codes[0] == 401
    assert codes[-1] == 429
    records = platform.http("GET", "/api/v1/audit?action=login", token=platform.token(det))
    assert records.status == 200
    assert "nobody-at-all" in records.text
