"""Settings from file, environment and flags; what is wrong is named; what is secret is hidden."""

from pathlib import Path

import pytest

from muster.api import errors
from muster.settings import reading
from muster.settings.reading import Given
from muster.settings.sections import LogLevel, PlatformSettings


def settings(*given: Given) -> PlatformSettings:
    return reading.merge(PlatformSettings, given)


def refusal(*given: Given) -> str:
    with pytest.raises(errors.BadRequest) as raised:
        settings(*given)
    return raised.value.message


def test_the_strongest_comes_last_and_sections_grow_together(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("port: 1\nsecurity:\n  tls: {cert: a.pem, key: a.key}\n  session_lifespan_days: 2\nlog:\n")
    found = settings(
        reading.from_file(file),
        reading.from_environment(PlatformSettings, {"MUSTER_PORT": "2", "MUSTER_SECURITY_TLS_CERT": "b.pem"}),
        reading.from_assignments(["port=3", "log.level=debug"]),
    )
    assert (found.port, found.security.session_lifespan_days, found.log.level) == (3, 2, LogLevel.DEBUG)
    assert (found.security.tls.cert, found.security.tls.key) == ("b.pem", "a.key")


def test_a_text_stays_a_text_also_where_it_looks_like_a_number() -> None:
    environment = {"MUSTER_SECURITY_INITIAL_USER_PASSWORD": "0123", "MUSTER_CLUSTER_NAME": "true"}
    found = settings(reading.from_environment(PlatformSettings, environment))
    assert (found.security.initial_user_password, found.cluster_name) == ("0123", "true")


def test_a_whole_document_may_stand_in_one_variable() -> None:
    text = '[{"name": "Ours", "issuer": "https://id", "client_id": "m", "client_secret": "hush"}]'
    found = settings(reading.from_environment(PlatformSettings, {"MUSTER_SECURITY_OIDC": text}))
    assert [each.issuer for each in found.security.oidc] == ["https://id"]
    assert "hush" not in str(reading.shown(found))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"prot": 1}, "f: prot: unknown key; known keys are host, port, url"),
        (
            {"security": {"tls": {"crt": "x"}}},
            "f: security.tls.crt: unknown key; known keys of security.tls are cert, key, client_ca, ca",
        ),
        ({"port": "many"}, "f: port: expected `int`, got `str`"),
        ({"port": 65536}, "f: port: expected `int` <= 65535"),
        ({"log": {"level": "loud"}}, "f: log.level: invalid enum value 'loud'; choose one of trace, debug, "),
        ({"security": {"token": {"default_lifespan_days": 0}}}, "f: security.token.default_lifespan_days: expected"),
        ({"security": {"oidc": [{"name": "x"}]}}, "f: security.oidc[0]: object missing required field `issuer`"),
        ({"security": 3}, "f: security: expected `object`, got `int`"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(values: dict[str, object], told: str) -> None:
    assert refusal(Given("f", values)).startswith(told)


def test_a_section_of_another_file_is_part_of_the_path() -> None:
    assert refusal(Given("f", {"log": {"x": 1}}, "platform")).startswith("f: platform.log.x: unknown key")


def test_a_variable_below_a_section_must_be_known_others_are_somebody_elses() -> None:
    assert settings(reading.from_environment(PlatformSettings, {"MUSTER_DATA": "/d", "MUSTER_DEBUG": "1"})).port == 7077
    with pytest.raises(errors.BadRequest, match="MUSTER_SECURITY_TSL_CERT is no setting; there are MUSTER_LOG_COLOR"):
        reading.from_environment(PlatformSettings, {"MUSTER_SECURITY_TSL_CERT": "x"})


@pytest.mark.parametrize("assignment", ["port", "=3", ""])
def test_an_assignment_has_two_sides(assignment: str) -> None:
    with pytest.raises(errors.BadRequest, match="write it as key=value"):
        reading.from_assignments([assignment])


def test_secrets_are_not_shown() -> None:
    values = {
        "database": "postgresql://muster:p%40ss@db:5432/muster",
        "security": {"initial_user_password": "Secret123"},
        "task_container_defaults": {"registry_auth": {"password": "x1"},
                                    "environment_variables": ["K=v1"], "image": "i",
                                    "pod_spec": {"env": [{"name": "K", "value": "v2"}]}},
    }  # fmt: skip
    shown = reading.shown(settings(Given("f", values)))
    assert shown["database"] == "postgresql://muster:********@db:5432/muster"
    assert shown["security"]["initial_user_password"] == "********"
    assert shown["task_container_defaults"]["image"] == "i"
    for secret in ("Secret123", "p%40ss", "x1", "v1", "v2"):
        assert secret not in str(shown)


def test_a_password_among_the_parameters_of_a_url_is_not_shown() -> None:
    shown = reading.without_password("postgresql://muster@db/m?sslmode=require&password=hush&x=1")
    assert shown == "postgresql://muster@db/m?sslmode=require&password=********&x=1"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (reading.from_assignments(["security.initial_user_password="]), ""),
        (reading.from_environment(PlatformSettings, {"MUSTER_SECURITY_INITIAL_USER_PASSWORD": ""}), None),
        (Given("f", reading.without_blanks({"security": {"initial_user_password": None}})), None),
        (Given("f", {"security": {"initial_user_password": ""}}), ""),
    ],
)
def test_a_blank_password_is_another_thing_than_none(given: Given, wanted: str | None) -> None:
    assert settings(given).security.initial_user_password == wanted


def test_what_is_not_set_is_shown_as_such() -> None:
    shown = reading.shown(PlatformSettings())
    assert (shown["database"], shown["security"]["initial_user_password"], shown["port"]) == ("", None, 7077)


@pytest.mark.parametrize("text", ["[1", "- a\n- b", "\x00"])
def test_a_file_that_is_no_mapping_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(text)
    with pytest.raises(errors.BadRequest, match=r"server\.yaml"):
        reading.from_file(file)
    with pytest.raises(errors.BadRequest, match="cannot read"):
        reading.from_file(tmp_path / "none.yaml")
