"""Kubeconfig files as kubectl reads them: which cluster, and what a request carries to be let in."""

import base64
import ssl
import sys
from pathlib import Path

import pytest
import trustme

from muster.access import kubeconfig
from muster.access.kubeconfig import Cluster
from muster.api import errors, raw

AUTHORITY = trustme.CA()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def config(cluster: dict | None = None, user: dict | None = None, **more) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://cluster.example:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        **more,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config"


def read(path: Path, content: dict, context: str = "") -> Cluster:
    path.write_text(raw.to_yaml(content))
    return kubeconfig.read(path, context)


def headers(cluster: Cluster) -> list[tuple[str, str]]:
    return list(cluster.credentials.current().headers)


def tls(cluster: Cluster) -> ssl.SSLContext:
    found = cluster.credentials.current().tls
    assert found is not None
    return found


def test_a_token_is_sent_as_bearer(path):
    cluster = read(path, config(user={"token": "secret"}))
    assert cluster.url == "https://cluster.example:6443"
    assert cluster.namespace == "default"
    assert headers(cluster) == [("Authorization", "Bearer secret")]
    assert tls(cluster).verify_mode is ssl.CERT_REQUIRED
    assert tls(cluster).verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert not tls(cluster).verify_flags & ssl.VERIFY_X509_STRICT


def test_a_context_has_its_namespace_and_can_be_chosen(path):
    other = {"name": "there", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
    contexts = [{"name": "here", "context": {"cluster": "c"}}, other]
    assert read(path, config(contexts=contexts), "there").namespace == "team"
    with pytest.raises(errors.BadRequest, match='no context "nowhere", only "here", "there"'):
        read(path, config(contexts=contexts), "nowhere")


def test_a_context_without_a_user_is_nobody(path):
    assert headers(read(path, config(contexts=[{"name": "here", "context": {"cluster": "c"}}]))) == []


def test_a_password_stands_in_its_field_or_in_the_address(path):
    basic = [("Authorization", f"Basic {encoded(b'ann:p@ss')}")]
    assert headers(read(path, config(user={"username": "ann", "password": "p@ss"}))) == basic
    cluster = read(path, config({"server": "http://ann:p%40ss@127.0.0.1:80/k8s/"}))
    assert (cluster.url, headers(cluster)) == ("http://127.0.0.1:80/k8s", basic)
    assert cluster.credentials.current().tls is None


def test_a_user_can_act_as_another(path):
    user = {"token": "t", "as": "bob", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"scope": ["x"]}}
    assert headers(read(path, config(user=user)))[1:] == [
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scope", "x"),
    ]


def test_certificates_come_as_data_or_as_files_beside_the_config(path):
    leaf = AUTHORITY.issue_cert("client.example")
    chain, key, authority = leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes(), AUTHORITY.cert_pem.bytes()
    (path.parent / "ca.pem").write_bytes(authority)
    (path.parent / "client.pem").write_bytes(chain)
    (path.parent / "client.key").write_bytes(key)
    as_files = config(
        {"certificate-authority": "ca.pem"}, {"client-certificate": "client.pem", "client-key": "client.key"}
    )
    as_data = config(
        {"certificate-authority-data": encoded(authority)},
        {"client-certificate-data": encoded(chain), "client-key-data": encoded(key)},
    )
    for content in (as_files, as_data):
        context = tls(read(path, content))
        (trusted,) = context.get_ca_certs()
        assert trusted["subject"]


def test_what_is_wrong_is_named_with_file_and_field(path):
    leaf = AUTHORITY.issue_cert("client.example")
    wrong = {
        r"clusters\[c\].cluster.server: expected https": config({"server": "cluster.example"}),
        r"clusters\[c\].cluster.proxy-url: proxies are not supported": config({"proxy-url": "http://proxy.example"}),
        r"clusters\[c\].cluster.certificate-authority: gone.pem cannot": config({"certificate-authority": "gone.pem"}),
        r"clusters\[c\].cluster.certificate-authority-data: not base64": config({"certificate-authority-data": "%"}),
        r"clusters\[c\].cluster.certificate-authority.* not valid": config({"certificate-authority-data": "eA=="}),
        r"clusters\[c\].cluster.insecure-skip-tls-verify: makes no sense": config(
            {"insecure-skip-tls-verify": True, "certificate-authority-data": encoded(AUTHORITY.cert_pem.bytes())}
        ),
        r"users\[u\].user.client-key: is missing": config(
            user={"client-certificate-data": encoded(leaf.cert_chain_pems[0].bytes())}
        ),
        r"users\[u\].user.tokenFile: gone cannot be read": config(user={"tokenFile": "gone"}),
        r"users\[u\].user.auth-provider: was replaced": config(user={"auth-provider": {"name": "gcp"}}),
        r"users\[u\].user.exec.apiVersion: .*v1alpha1": config(
            user={"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}
        ),
        r"users\[u\].user.exec.interactiveMode": config(
            user={
                "exec": {
                    "command": "x",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Always",
                }
            }
        ),
        r"contexts\[here\].context.cluster: there is no cluster \"d\", only \"c\"": config(
            contexts=[{"name": "here", "context": {"cluster": "d"}}]
        ),
        r"users\[0\].user.token: Expected `str`": config(user={"token": 5}),
        r"current-context: is not set": config() | {"current-context": ""},
    }
    for message, content in wrong.items():
        with pytest.raises(errors.BadRequest, match=message) as refused:
            read(path, content)
        assert str(path) in refused.value.message


def test_a_file_that_is_no_yaml_is_named(path):
    path.write_text("a: [")
    with pytest.raises(errors.BadRequest, match=rf"{path}: the file is not valid YAML"):
        kubeconfig.read(path)


def test_files_are_merged_and_the_first_that_names_something_wins(tmp_path):
    first, second = tmp_path / "first", tmp_path / "dir" / "second"
    second.parent.mkdir()
    only_contexts = {"contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "one"}}]}
    first.write_text(raw.to_yaml(only_contexts | {"clusters": None, "users": None}))
    (second.parent / "token").write_text("of the second")
    second.write_text(raw.to_yaml(config(user={"tokenFile": "token"})))
    paths = f"{first}:{tmp_path / 'missing'}:{second}"
    cluster = kubeconfig.read(environment={"KUBECONFIG": paths})
    assert (cluster.url, cluster.namespace) == ("https://cluster.example:6443", "one")


def test_the_usual_place_is_in_the_home_directory(tmp_path):
    with pytest.raises(errors.BadRequest, match=r"no kubeconfig at .*/\.kube/config: name one with --kubeconfig"):
        kubeconfig.read(environment={"HOME": str(tmp_path)})
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(raw.to_yaml(config()))
    assert kubeconfig.read(environment={"HOME": str(tmp_path)}).url == "https://cluster.example:6443"


def test_a_server_may_be_known_by_another_name_or_not_be_checked(path):
    cluster = read(path, config({"tls-server-name": "inside.example", "insecure-skip-tls-verify": True}))
    assert cluster.server_name == "inside.example"
    assert tls(cluster).verify_mode is ssl.CERT_NONE


# Inside of a pod


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.cert_pem.bytes())
    (tmp_path / "namespace").write_text("muster-system")
    return tmp_path


def test_a_pod_is_its_service_account(account):
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    cluster = kubeconfig.in_cluster(account, inside)
    assert (cluster.url, cluster.namespace) == ("https://[fd00::1]:443", "muster-system")
    assert headers(cluster) == [("Authorization", "Bearer first")]


def test_outside_of_a_pod_that_is_said(account):
    with pytest.raises(errors.BadRequest, match="not a pod of a cluster"):
        kubeconfig.in_cluster(account, {})
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    (account / "token").unlink()
    with pytest.raises(errors.BadRequest, match="service account cannot be read"):
        kubeconfig.in_cluster(account, inside)


# Plugins

PLUGIN = """
import json, os, pathlib, sys
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
counter = pathlib.Path(sys.argv[1])
count = int(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text(str(count))
status = {"token": f"{os.environ['PREFIX']}-{count}-{asked['spec'].get('cluster', {}).get('server')}"}
print(json.dumps({"apiVersion": asked["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def with_plugin(tmp_path: Path, *args: str, **more) -> dict:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": list(args),
        "env": [{"name": "PREFIX", "value": "given"}],
        **more,
    }
    return config(user={"exec": plugin})


def test_a_plugin_is_asked_once_and_again_when_its_token_is_refused(path, tmp_path):
    content = with_plugin(tmp_path, "-c", PLUGIN, str(tmp_path / "count"), provideClusterInfo=True)
    cluster = read(path, content)
    expected = "Bearer given-{}-https://cluster.example:6443"
    first = cluster.credentials.current()
    assert list(first.headers) == [("Authorization", expected.format(1))]
    assert cluster.credentials.current() is first
    cluster.credentials.forget(first)
    second = cluster.credentials.current()
    assert list(second.headers) == [("Authorization", expected.format(2))]
    cluster.credentials.forget(first)
    assert cluster.credentials.current() is second


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("import sys; sys.exit('log in first')", errors.Unavailable, "ended with 1: log in first"),
        ("print('{}')", errors.Unauthorized, "answered in ''"),
        ("print('hello')", errors.Unauthorized, "printed no ExecCredential"),
        (
            'print(\'{"apiVersion": "client.authentication.k8s.io/v1", "status": {}}\')',
            errors.Unauthorized,
            "neither a token nor a certificate",
        ),
    ],
)
def test_a_plugin_that_fails_says_why(path, tmp_path, script, error, message):
    with pytest.raises(error, match=message):
        read(path, with_plugin(tmp_path, "-c", script)).credentials.current()


def test_a_plugin_that_is_missing_tells_where_to_get_it(path, tmp_path):
    content = with_plugin(tmp_path, command="./missing", installHint="get it from example.com")
    with pytest.raises(errors.Unauthorized, match=rf"(?s){path.parent}/missing cannot be run.*get it from example.com"):
        read(path, content).credentials.current()
