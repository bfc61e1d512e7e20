"""What deploy/ consists of, and that it is what the code says."""

from pathlib import Path

import pytest
import yaml

from muster.api import errors, kueue, raw
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.deploying import chart, definitions, generating, manifests, names, permissions, values
from muster.deploying.slots import Chosen
from muster.deploying.values import Values
from muster.settings import reading

DEPLOY = Path(__file__).parents[3] / "deploy"


def rendered(*assignments: str) -> list[Document]:
    chosen = Chosen(values.read([reading.from_assignments(assignments)]), names.NAMESPACE)
    return list(manifests.documents(chosen))


def one(documents: list[Document], kind: str) -> Document:
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def container(documents: list[Document]) -> Document:
    (found,) = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    return raw.as_object(found)


def test_a_server_is_there_only_if_asked_for() -> None:
    assert "muster-server" not in {document["metadata"]["name"] for document in rendered()}
    documents = rendered("server.enabled=true", "server.url=https://muster.example", "server.storage=5Gi")
    found = {document["kind"]: document for document in documents if document["metadata"]["name"] == "muster-server"}
    assert found["PersistentVolumeClaim"]["spec"]["resources"] == {"requests": {"storage": "5Gi"}}
    (server,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "--set=url=https://muster.example" in server["args"]
    assert server["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "muster-database"
    assert found["Deployment"]["spec"]["selector"] != one(rendered(), "Deployment")["spec"]["selector"]


def test_the_servers_data_is_below_its_volume_whose_root_is_not_its_own() -> None:
    (server,) = [
        document["spec"]["template"]["spec"]["containers"][0]
        for document in rendered("server.enabled=true")
        if document["kind"] == "Deployment" and document["metadata"]["name"] == names.SERVER
    ]
    (volume,) = [mount["mountPath"] for mount in server["volumeMounts"] if mount["name"] == "data"]
    (data,) = [word.removeprefix("--data=") for word in server["args"] if word.startswith("--data=")]
    assert Path(volume) in Path(data).parents


def test_deploy_is_fresh() -> None:
    """`make docs` writes it."""
    there = {str(path.relative_to(DEPLOY)) for name in ("helm", "manifests") for path in (DEPLOY / name).rglob("*.*")}
    expected = generating.files()
    assert there == set(expected)
    assert [path for path, text in expected.items() if (DEPLOY / path).read_text() != text] == []


def test_every_object_is_marked_as_part_of_the_installation() -> None:
    for document in rendered("metrics.monitor=true", "server.enabled=true"):
        assert document["metadata"]["labels"][names.PART_OF] == "muster"


def test_values_reach_the_deployment() -> None:
    documents = rendered(
        "image.repository=registry.example/muster", "image.tag=1.2", "replicas=3", "unlabelled=theirs",
        "scheduler={profiles: [{schedulerName: muster}]}", "nodes.selector={pool: system}",
    )  # fmt: skip
    assert one(documents, "Deployment")["spec"]["replicas"] == 3
    found = container(documents)
    assert found["image"] == "registry.example/muster:1.2"
    assert "--unlabelled=theirs" in found["args"]
    assert "--scheduler-config=/etc/muster/scheduler.yaml" in found["args"]
    data = one(documents, "ConfigMap")["data"]
    assert yaml.safe_load(data["scheduler.yaml"]) == {"profiles": [{"schedulerName": "muster"}]}
    assert one(documents, "Deployment")["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "system"}


def test_configuration_that_nobody_gave_is_not_read() -> None:
    assert not any("-config" in argument for argument in container(rendered())["args"])


def test_another_configuration_makes_other_pods() -> None:
    def annotations(*assignments: str) -> Document:
        found: Document = one(rendered(*assignments), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations() == annotations()
    assert annotations() != annotations("quota={fairSharing: {enable: true}}")


def test_the_monitor_is_there_only_if_asked_for() -> None:
    assert "ServiceMonitor" not in {document["kind"] for document in rendered()}
    assert "ServiceMonitor" in {document["kind"] for document in rendered("metrics.monitor=true")}


def test_pods_of_ours_pass_the_strictest_standard() -> None:
    spec = one(rendered(), "Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    rights = container(rendered())["securityContext"]
    assert rights == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("assignment", "named"),
    [("replica=3", "replica"), ("replicas=0", "replicas"), ("unlabelled=mine", "unlabelled"), ("image.pull=x", "pull")],
)
def test_a_value_that_will_not_do_is_named(assignment: str, named: str) -> None:
    with pytest.raises(errors.BadRequest, match=named):
        rendered(assignment)


def test_a_chart_has_an_expression_for_every_value() -> None:
    text = "".join(body for path, body in chart.files().items() if path.startswith("templates/"))
    paths = [".".join(path) for path in reading.paths(Values)]
    assert [path for path in paths if f".Values.{path}" not in text] == []
    assert "<<" not in text


def test_rules_grant_no_wildcard() -> None:
    for rule in permissions.rules((*permissions.CLUSTER, *permissions.HOME, *permissions.SERVER)):
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])


@pytest.mark.parametrize("kind", list(definitions.kinds()), ids=lambda kind: kind.resource)
def test_a_definition_fits_in_the_store_of_an_api_server(kind: Kind) -> None:
    assert len(raw.encode(definitions.definition(kind))) < raw.MAX_OBJECT_BYTES / 4


def test_a_definition_names_its_kind_as_users_know_it() -> None:
    found = definitions.definition(kueue.CLUSTER_QUEUE)
    assert found["metadata"]["name"] == "clusterqueues.kueue.x-k8s.io"
    assert found["spec"]["scope"] == "Cluster"
    assert found["spec"]["names"]["shortNames"] == ["cq"]
    columns = [column["name"] for column in found["spec"]["versions"][0]["additionalPrinterColumns"]]
    assert columns == ["Cohort", "Pending Workloads", "Age", "Strategy", "Admitted Workloads"]
