"""svc: every pod has a name that the others know, `<pod>.<job>`, and is told those of all of them.

The ConfigMap `<job>-svc` holds, for each task, its hosts line by line (`<task>.host`), the same with commas
(`VC_<TASK>_HOSTS`) and their number (`VC_<TASK>_NUM`). It is shown to all containers at /etc/volcano and follows
changes of the job's size. On a cluster the names resolve through the headless Service; on our own nodes the agent
resolves them. A NetworkPolicy lets only the members in, where somebody enforces it: our own nodes do not.
"""

from collections.abc import Sequence
from typing import ClassVar

from muster.api import core, networking, volcano
from muster.api.raw import JSON, Document
from muster.jobs.volcano import names
from muster.jobs.volcano.owning import owner_reference
from muster.jobs.volcano.plugins import changing
from muster.jobs.volcano.plugins.contract import Arguments, KeyPair, Made, Options

MOUNT_PATH = "/etc/volcano"


class Svc:
    name = "svc"
    ARGUMENTS: ClassVar[Options] = {
        "publish-not-ready-addresses": bool,
        "disable-network-policy": bool,
        "inject-hosts-env": bool,
    }
    needs_key = False

    def __init__(self, arguments: Arguments) -> None:
        self._is_published_early = arguments.flag("publish-not-ready-addresses")
        self._is_closed = not arguments.flag("disable-network-policy")
        self._has_variables = arguments.flag("inject-hosts-env", default=True)

    def change_pod(self, pod: Document, job: volcano.Job) -> None:
        spec: Document = pod["spec"]
        spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
        spec["subdomain"] = spec.get("subdomain") or job.metadata.name
        name = map_name(job)
        spec.setdefault("volumes", []).append({"name": name, "configMap": {"name": name}})
        variables: dict[str, JSON] = {}
        if self._has_variables:
            keys = [key for task in job.spec.tasks for key in (hosts_variable(task), count_variable(task))]
            variables = {key: {"configMapKeyRef": {"name": name, "key": key}} for key in keys}
        for container in changing.containers(pod):
            container.setdefault("volumeMounts", []).append({"name": name, "mountPath": MOUNT_PATH})
            changing.set_variables(container, variables)

    def objects(self, job: volcano.Job, _key: KeyPair | None) -> Sequence[Made]:
        shown = {"metadata": metadata(job, map_name(job)), "data": hosts(job)}
        made = (Made(core.SERVICE, self._service(job)), Made(core.CONFIG_MAP, shown, is_updated=True))
        return (*made, Made(networking.NETWORK_POLICY, _policy(job))) if self._is_closed else made

    def _service(self, job: volcano.Job) -> Document:
        spec: Document = {
            "clusterIP": "None",
            "selector": _members(job),
            # Headless: nobody connects to the port, but a Service must have one.
            "ports": [{"name": "placeholder-volcano", "port": 1, "protocol": "TCP", "targetPort": 1}],
        }
        if self._is_published_early:
            spec["publishNotReadyAddresses"] = True
        return {"metadata": metadata(job, job.metadata.name), "spec": spec}


def _members(job: volcano.Job) -> dict[str, str]:
    """Labels that all pods of the job have, and no others."""
    return {names.JOB: job.metadata.name, names.JOB_NAMESPACE: job.metadata.namespace}


def _policy(job: volcano.Job) -> Document:
    members = {"podSelector": {"matchLabels": _members(job)}}
    spec = {**members, "ingress": [{"from": [members]}], "policyTypes": ["Ingress"]}
    return {"metadata": metadata(job, job.metadata.name), "spec": spec}


def metadata(job: volcano.Job, name: str) -> Document:
    return {"name": name, "namespace": job.metadata.namespace, "ownerReferences": [owner_reference(job)]}


def map_name(job: volcano.Job) -> str:
    return f"{job.metadata.name}-svc"


def hosts(job: volcano.Job) -> dict[str, str]:
    found: dict[str, str] = {}
    for task in job.spec.tasks:
        listed = changing.hosts_of(job, task)
        found[f"{names.task_name(task)}.host"] = "\n".join(listed)
        found[hosts_variable(task)] = ",".join(listed)
        found[count_variable(task)] = str(len(listed))
    return found


def hosts_variable(task: volcano.TaskSpec) -> str:
    return f"VC_{_upper(task)}_HOSTS"


def count_variable(task: volcano.TaskSpec) -> str:
    return f"VC_{_upper(task)}_NUM"


def _upper(task: volcano.TaskSpec) -> str:
    return names.task_name(task).replace("-", "_").upper()
