"""What the controllers may do in a cluster: no more than what they do, each line with the reason for it.

A test lets them work against a real API server under exactly these rights and compares the two: what is used is
granted, and what is granted is used, or says here why nobody saw it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from muster.api import (
    batch,
    coordination,
    core,
    kubeflow,
    kueue,
    muster,
    networking,
    node,
    policy,
    scheduling,
    storage,
    volcano,
)
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.deploying import definitions, kinds, names

_SEEN = ("get", "list", "watch")
_OWN = (*_SEEN, "create", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Grant:
    """`part`: the subresource. `named`: only objects of these names, where not empty. `is_rare`: used only in
    circumstances that no test makes, which `why` tells."""

    kinds: Sequence[Kind]
    verbs: Sequence[str]
    why: str
    part: str = ""
    named: Sequence[str] = ()
    is_rare: bool = False

    def rule(self) -> Iterator[Document]:
        """One for each group: a rule grants every resource in every group that it names."""
        suffix = f"/{self.part}" if self.part else ""
        for group, granted in groupby(sorted(self.kinds, key=_group), key=_group):
            rule: Document = {
                "apiGroups": [group],
                "resources": sorted(f"{kind.plural}{suffix}" for kind in granted),
                "verbs": list(self.verbs),
            }
            yield {**rule, "resourceNames": list(self.named)} if self.named else rule


_JOBS = (volcano.JOB, kubeflow.PYTORCH_JOB, muster.ALLOCATION)

CLUSTER: Sequence[Grant] = (
    Grant(
        (core.NODE, core.NAMESPACE, core.LIMIT_RANGE, core.PERSISTENT_VOLUME_CLAIM, core.SERVICE),
        _SEEN,
        "where pods may run, and what bounds them",
    ),
    Grant((storage.STORAGE_CLASS,), _SEEN, "whether volumes tie pods to nodes"),
    Grant((scheduling.PRIORITY_CLASS,), _SEEN, "who goes first"),
    Grant((policy.POD_DISRUPTION_BUDGET,), _SEEN, "whom preemption must spare"),
    Grant((node.RUNTIME_CLASS,), _SEEN, "what a runtime costs besides the containers"),
    Grant((core.POD,), _OWN, "jobs are pods; gates of admitted ones are taken off"),
    Grant((core.POD,), ("create",), "placements are committed", "binding"),
    Grant((core.POD,), ("create",), "preemption respects disruption budgets", "eviction"),
    Grant((core.POD,), ("patch",), "why a pod waits, and which node it was promised", "status"),
    Grant((core.EVENT,), ("get", "create", "patch"), "what happened, for people to read"),
    Grant((core.SERVICE,), ("create", "delete"), "members of a gang find each other by name"),
    Grant((core.CONFIG_MAP,), ("get", "create", "patch", "delete"), "the hosts of a gang"),
    Grant((core.SECRET,), ("get", "create", "delete"), "keys by which members of a gang log in to each other"),
    Grant((core.PERSISTENT_VOLUME_CLAIM,), ("create",), "volumes that a Volcano job asks for"),
    Grant((networking.NETWORK_POLICY,), ("get", "create", "delete"), "gangs that shut others out"),
    Grant((batch.JOB,), (*_SEEN, "patch"), "quota suspends and resumes them"),
    Grant((batch.JOB,), ("delete",), "finished ones that the configuration keeps only so long", is_rare=True),
    Grant(_JOBS, (*_SEEN, "patch", "delete"), "jobs that we run"),
    Grant((volcano.JOB,), ("create",), "those of flows and of schedules"),
    Grant(
        (*_JOBS, volcano.CRON_JOB, volcano.JOB_FLOW, volcano.JOB_TEMPLATE, volcano.POD_GROUP, volcano.QUEUE),
        ("patch",),
        "how far they have come",
        "status",
    ),
    Grant((volcano.CRON_JOB, volcano.JOB_FLOW, volcano.JOB_TEMPLATE, volcano.HYPER_NODE), _SEEN, "what they ask for"),
    Grant((volcano.POD_GROUP,), _OWN, "gangs, each placed as a whole"),
    Grant((volcano.QUEUE,), (*_SEEN, "create", "patch"), "the default queue, and marks on the others"),
    Grant((volcano.COMMAND,), (*_SEEN, "delete"), "each is carried out once"),
    Grant(
        (kueue.RESOURCE_FLAVOR, kueue.COHORT, kueue.CLUSTER_QUEUE, kueue.LOCAL_QUEUE),
        _OWN,
        "quota, also that which is made from Volcano's queues",
    ),
    Grant((kueue.TOPOLOGY,), (*_SEEN, "patch"), "held while a flavor uses it"),
    Grant((kueue.ADMISSION_CHECK, kueue.WORKLOAD_PRIORITY_CLASS), _SEEN, "what admission depends on"),
    Grant((kueue.WORKLOAD,), _OWN, "what queues"),
    Grant(
        (kueue.WORKLOAD, kueue.CLUSTER_QUEUE, kueue.LOCAL_QUEUE, kueue.COHORT, kueue.ADMISSION_CHECK),
        ("patch",),
        "what is admitted, and what of a quota is used",
        "status",
    ),
    Grant(
        (kinds.CUSTOM_RESOURCE_DEFINITION,),
        ("get", "patch"),
        "and who converts older versions, where the definition is ours",
        named=tuple(definitions.name_of(kind) for kind in definitions.kinds() if kind.conversions),
    ),
    Grant(
        (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS),
        ("create", "patch"),
        "the leader tells the API server where webhooks are and whom to believe",
        named=(names.WEBHOOK,),
    ),
    Grant(
        (batch.JOB, *_JOBS, volcano.CRON_JOB, volcano.JOB_FLOW, volcano.POD_GROUP),
        ("update",),
        "owners of what we make: clusters that enforce owners' permissions (OpenShift) ask for it",
        "finalizers",
        is_rare=True,
    ),
)
"""In all namespaces."""

HOME: Sequence[Grant] = (
    Grant((coordination.LEASE,), ("create",), "the first to lead makes it: names cannot be granted before they are"),
    Grant((coordination.LEASE,), ("get", "patch"), "one replica leads", named=(names.CONTROLLER,)),
    Grant(
        (core.SECRET,), ("patch",), "the certificate of the webhooks is renewed", named=(names.WEBHOOK,), is_rare=True
    ),
)
"""In the namespace of the installation."""


def _group(kind: Kind) -> str:
    return kind.group


def rules(grants: Sequence[Grant]) -> list[Document]:
    return [rule for grant in grants for rule in grant.rule()]
