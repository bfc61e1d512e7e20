from pathlib import Path

import pytest

from muster.api import errors
from muster.sdk import config, determined

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: muster
contexts: [{name: other, context: {cluster: far, user: me}}, {name: muster, context: {cluster: near, user: admin}}]
clusters: [{name: far, cluster: {server: "https://far"}}, {name: near, cluster: {server: "http://127.0.0.1:7077/k8s"}}]
users: [{name: admin, user: {token: secret}}]
"""
CLUSTER = """
apiVersion: v1
kind: Config
current-context: lab
contexts:
- {name: lab, context: {cluster: lab, user: ann, namespace: team}}
- {name: far, context: {cluster: far, user: ann}}
clusters:
- {name: lab, cluster: {server: "https://lab.example:6443"}}
- {name: far, cluster: {server: "https://far.example:6443"}}
users: [{name: ann, user: {token: secret}}]
"""


@pytest.fixture
def env(tmp_path):
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "share"),
    }


def write_settings(env, text):
    path = config.settings_path(env)
    path.parent.mkdir(parents=True)
    path.write_text(text)


def start_platform(env):
    directory = config.data_directory(env=env)
    directory.mkdir(parents=True)
    (directory / "kubeconfig").write_text(KUBECONFIG)


def test_data_directory_is_found_in_the_documented_order(env, tmp_path):
    assert config.data_directory(env=env) == tmp_path / "share" / "muster"
    assert config.data_directory(env={"HOME": "/h"}) == Path("/h/.local/share/muster")
    write_settings(env, "data: /from/file")
    assert str(config.data_directory(env=env)) == "/from/file"
    assert str(config.data_directory(env={**env, "MUSTER_DATA": "/from/env"})) == "/from/env"
    assert str(config.data_directory("/from/flag", {**env, "MUSTER_DATA": "/from/env"})) == "/from/flag"


def test_no_platform_says_how_to_start_one(env, tmp_path):
    with pytest.raises(errors.Unavailable, match="muster up") as caught:
        config.connection(env=env)
    assert str(tmp_path / "share" / "muster") in caught.value.message


def test_kubeconfig_of_the_data_directory_gives_server_and_token(env):
    start_platform(env)
    assert config.connection(env=env) == config.Connection("http://127.0.0.1:7077/k8s", "secret", "default")


def test_environment_beats_file_and_kubeconfig(env):
    start_platform(env)
    write_settings(env, "server: http://filed:1\nnamespace: team")
    assert config.connection(env=env).server == "http://filed:1/k8s"
    found = config.connection(env={**env, "MUSTER_SERVER": "there:7077", "MUSTER_TOKEN": "t"})
    assert found == config.Connection("http://there:7077/k8s", "t", "team")


def test_a_data_directory_given_by_hand_beats_the_environment(env, tmp_path):
    start_platform(env)
    directory = config.data_directory(env=env)
    found = config.connection(data=directory, env={**env, "MUSTER_SERVER": "there:7077"})
    assert found.server == "http://127.0.0.1:7077/k8s"


def test_whose_token_is_given_is_who_asks(env):
    start_platform(env)
    directory = config.data_directory(env=env)
    env = {**env, "MUSTER_TOKEN": "of the environment"}
    assert config.connection(env=env).token == "of the environment"
    assert config.connection(token="by hand", data=directory, env=env).token == "by hand"
    own = config.connection(data=directory, env=env).token
    assert own not in ("", "of the environment"), "the environment may mean another platform"


@pytest.fixture
def cluster(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)


def test_a_kubeconfig_is_a_cluster_whichever_way_it_is_named(env, cluster):
    start_platform(env)
    by_hand = config.connection(env={**env, "MUSTER_SERVER": "there:7077"}, kubeconfig=cluster)
    by_variable = config.connection(env={**env, "MUSTER_KUBECONFIG": cluster})
    write_settings(env, f"kubeconfig: {cluster}")
    for found in (by_hand, by_variable, config.connection(env=env)):
        assert (found.server, found.namespace) == ("https://lab.example:6443", "team")
        assert found.cluster is not None
        assert found.cluster.credentials.current().headers == (("Authorization", "Bearer secret"),)
    assert config.connection(env={**env, "MUSTER_NAMESPACE": "mine"}, kubeconfig=cluster).namespace == "mine"


def test_a_context_is_one_of_the_kubeconfig_that_was_chosen(env, cluster):
    found = config.connection(env={**env, "MUSTER_KUBECONFIG": cluster}, context="far")
    assert (found.server, found.namespace) == ("https://far.example:6443", "default")
    with pytest.raises(errors.BadRequest, match='no context "nowhere", only "lab", "far"'):
        config.connection(env=env, kubeconfig=cluster, context="nowhere")


def test_kubectls_own_variable_does_not_lead_away_from_the_platform(env, cluster):
    start_platform(env)
    assert config.connection(env={**env, "KUBECONFIG": cluster}).cluster is None


def test_a_platform_named_by_hand_beats_a_cluster_of_the_environment(env, cluster):
    start_platform(env)
    env = {**env, "MUSTER_KUBECONFIG": cluster}
    assert config.connection("there:7077", env=env).server == "http://there:7077/k8s"
    assert config.connection(data=config.data_directory(env=env), env=env).server == "http://127.0.0.1:7077/k8s"


@pytest.mark.parametrize("other", [{"server": "http://x"}, {"token": "t"}, {"data": "/data"}])
def test_a_cluster_and_a_platform_at_once_are_refused(env, cluster, other):
    with pytest.raises(errors.BadRequest, match=f"^--{next(iter(other))}: "):
        config.connection(env=env, kubeconfig=cluster, **other)


def test_two_that_are_named_in_one_place_are_refused(env, cluster):
    with pytest.raises(errors.BadRequest, match="MUSTER_SERVER and MUSTER_KUBECONFIG are both set"):
        config.connection(env={**env, "MUSTER_SERVER": "there:7077", "MUSTER_KUBECONFIG": cluster})
    write_settings(env, f"server: http://filed:1\nkubeconfig: {cluster}")
    with pytest.raises(errors.BadRequest, match=r"config\.yaml: server and kubeconfig: "):
        config.connection(env=env)


def test_experiments_are_not_the_clusters(env, cluster):
    with pytest.raises(errors.BadRequest, match="muster serve --kubeconfig"):
        determined.connect(config.connection(env=env, kubeconfig=cluster))


def test_unknown_key_is_an_error_that_names_it_and_the_known_ones(env):
    write_settings(env, "sever: http://typo")
    with pytest.raises(errors.BadRequest, match=r"unknown key 'sever'; known keys are data, server, token, kubeconfig"):
        config.connection(env=env)


@pytest.mark.parametrize("text", ["- a list", "server: 12", "{unclosed"])
def test_a_broken_settings_file_is_named(env, text):
    write_settings(env, text)
    with pytest.raises(errors.BadRequest, match=r"config\.yaml"):
        config.read_settings(env)


def test_a_kubeconfig_without_a_server_says_what_to_do(env):
    with pytest.raises(errors.BadRequest, match="muster up"):
        config.from_kubeconfig(b"kind: Config", "kubeconfig")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("host:7077", "http://host:7077/k8s"),
        ("http://host:7077/", "http://host:7077/k8s"),
        ("https://host/k8s", "https://host/k8s"),
        ("http://admin:secret@host:7077/k8s", "http://host:7077/k8s"),
        ("https://host/some/prefix/", "https://host/some/prefix"),
    ],
)
def test_server_url_forms(given, expected):
    assert config.server_url(given) == expected


@pytest.mark.parametrize("given", ["ftp://host", "http://"])
def test_a_wrong_server_url_is_refused(given):
    with pytest.raises(errors.BadRequest, match="not a server address"):
        config.server_url(given)


def test_a_secret_in_the_url_is_the_token_and_is_never_shown(env):
    found = config.connection("http://admin:secret@host:7077", env=env)
    assert found == config.Connection("http://host:7077/k8s", "secret", "default")
