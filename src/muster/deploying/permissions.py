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

_SEEN = ("list", "watch")


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
    # What placement and quota depend on.
    Grant((core.NODE, core.NAMESPACE, core.LIMIT_RANGE, core.PERSISTENT_VOLUME_CLAIM, core.SERVICE), _SEEN, "room"),
    Grant((storage.STORAGE_CLASS, storage.PERSISTENT_VOLUME), _SEEN, "which nodes reach the volumes of a pod"),
    Grant((core.PERSISTENT_VOLUME_CLAIM,), ("patch",), "the node is told for which a volume is to be made"),
    Grant((scheduling.PRIORITY_CLASS,), _SEEN, "who goes first"),
    Grant((policy.POD_DISRUPTION_BUDGET,), _SEEN, "whom preemption should spare"),
    Grant((node.RUNTIME_CLASS,), _SEEN, "what a runtime costs besides the containers"),
    Grant((volcano.HYPER_NODE,), _SEEN, "which nodes are close to each other"),
    # Pods.
    Grant((core.POD,), (*_SEEN, "create", "patch", "delete"), "jobs are pods; gates of admitted ones are taken off"),
    Grant((core.POD,), ("create",), "placements are committed", "binding"),
    Grant((core.POD,), ("create",), "preemption asks disruption budgets", "eviction"),
    Grant((core.POD,), ("patch",), "why a pod waits, and which node it was promised", "status"),
    Grant((core.POD,), ("get",), "after a bind whose answer was lost", is_rare=True),
    Grant((core.NODE,), ("get",), "static pods belong to nodes", is_rare=True),
    Grant((core.EVENT,), ("create",), "what happened, for people to read"),
    Grant((core.EVENT,), ("get", "patch"), "what happens again is counted, also by a new leader", is_rare=True),
    # What members of a gang need besides.
    Grant((core.SERVICE,), ("get", "create", "delete"), "they find each other by name"),
    Grant((core.CONFIG_MAP,), ("get", "create", "patch", "delete"), "a list of their hosts"),
    Grant((core.SECRET,), ("get", "create", "delete"), "keys by which they log in to each other"),
    Grant((core.PERSISTENT_VOLUME_CLAIM,), ("create",), "volumes that a Volcano job asks for"),
    Grant((storage.PERSISTENT_VOLUME,), _SEEN, "from which nodes a claim's volume can be reached"),
    Grant(
        (core.PERSISTENT_VOLUME_CLAIM,),
        ("get", "patch"),
        "on which node a volume is to be made, of claims that wait for their first pod",
        is_rare=True,
    ),
    Grant((networking.NETWORK_POLICY,), ("get", "create", "delete"), "others are kept out"),
    # Jobs.
    Grant((batch.JOB,), (*_SEEN, "patch"), "quota suspends and resumes them"),
    Grant((batch.JOB,), ("patch",), "one that is sent elsewhere forgets when it started", "status"),
    Grant((batch.JOB,), ("delete",), "finished ones, where the configuration keeps them only so long", is_rare=True),
    Grant((batch.JOB, *_JOBS), ("get",), "what owns a pod that our copy does not show yet", is_rare=True),
    Grant((volcano.CRON_JOB, volcano.JOB_FLOW), ("get",), "what owns a job: the topmost of them is what queues"),
    Grant(_JOBS, (*_SEEN, "patch"), "jobs that we run"),
    Grant((volcano.JOB, kubeflow.PYTORCH_JOB), ("delete",), "finished ones that asked for it"),
    Grant((volcano.JOB,), ("create",), "those of flows and of schedules"),
    Grant((volcano.CRON_JOB, volcano.JOB_FLOW, volcano.JOB_TEMPLATE), _SEEN, "what flows and schedules are made of"),
    Grant((*_JOBS, volcano.CRON_JOB, volcano.JOB_FLOW, volcano.JOB_TEMPLATE), ("patch",), "how far they are", "status"),
    Grant((volcano.POD_GROUP,), (*_SEEN, "create", "patch", "delete"), "gangs, each placed as a whole"),
    Grant((volcano.POD_GROUP, volcano.QUEUE), ("patch",), "how far gangs are, and what queues hold", "status"),
    Grant((volcano.QUEUE,), (*_SEEN, "create", "patch"), "the first queue, and marks on the others"),
    Grant((volcano.COMMAND,), (*_SEEN, "delete"), "each is carried out once"),
    # Quota.
    Grant(
        (kueue.COHORT, kueue.CLUSTER_QUEUE), (*_SEEN, "create", "patch", "delete"), "some are made of Volcano's queues"
    ),
    Grant((kueue.RESOURCE_FLAVOR,), (*_SEEN, "create", "patch"), "that of these queues stays"),
    Grant((kueue.LOCAL_QUEUE,), (*_SEEN, "create", "delete"), "the way to these queues from each namespace"),
    Grant((kueue.TOPOLOGY,), (*_SEEN, "patch"), "held while a flavor uses it"),
    Grant((kueue.ADMISSION_CHECK, kueue.WORKLOAD_PRIORITY_CLASS), _SEEN, "what admission depends on"),
    Grant((kueue.WORKLOAD,), (*_SEEN, "create", "patch", "delete"), "what queues"),
    Grant((kueue.WORKLOAD, kueue.CLUSTER_QUEUE, kueue.LOCAL_QUEUE), ("patch",), "admitted; used quota", "status"),
    Grant((kueue.COHORT,), ("patch",), "its share, where fair sharing is on", "status", is_rare=True),
    # Admission. The leader tells the API server where webhooks are, and whom to believe.
    Grant((kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS), ("patch",), "jobs and queues", named=(names.WEBHOOK,)),
    Grant(
        (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS),
        ("create",),
        "asked for by the first patch, which an audit log does not show",
        named=(names.WEBHOOK,),
        is_rare=True,
    ),
    Grant(
        (kinds.CUSTOM_RESOURCE_DEFINITION,),
        ("get", "patch"),
        "who converts older versions, where the definition is ours",
        named=tuple(kind.resource for kind in definitions.kinds() if kind.conversions),
    ),
    # What is asked about queues. The leader tells the API server to pass that on to it, as long as it answers.
    Grant((kinds.API_SERVICE,), ("get", "patch", "delete"), "what is passed on", named=names.API_SERVICES),
    Grant(
        (kinds.API_SERVICE,),
        ("create",),
        "asked for by the first patch, which an audit log does not show",
        named=names.API_SERVICES,
        is_rare=True,
    ),
    Grant((kinds.SUBJECT_REVIEW,), ("create",), "whether whoever asks may know"),
    Grant((kinds.CLUSTER_ROLE,), ("get",), "what we register goes when our rights do", named=(names.CONTROLLER,)),
    Grant(
        (batch.JOB, *_JOBS, volcano.CRON_JOB, volcano.JOB_FLOW, volcano.POD_GROUP),
        ("update",),
        "they own what we make: asked for where owners' permissions are enforced (OpenShift)",
        "finalizers",
        is_rare=True,
    ),
)
"""In all namespaces."""

HOME: Sequence[Grant] = (
    Grant((coordination.LEASE,), ("create",), "the first to lead makes it: names cannot be granted before they are"),
    Grant((coordination.LEASE,), ("get", "patch"), "one replica leads", named=(names.CONTROLLER,)),
    Grant((core.SECRET,), ("patch",), "the webhooks' certificate is renewed", named=(names.WEBHOOK,), is_rare=True),
    Grant((core.SERVICE,), ("patch",), "the way to who leads", named=(names.VISIBILITY,)),
)
"""In the namespace of the installation."""


SERVER: Sequence[Grant] = (
    Grant(
        (core.NODE, core.POD, kueue.CLUSTER_QUEUE, kueue.RESOURCE_FLAVOR, kueue.LOCAL_QUEUE, kueue.WORKLOAD),
        _SEEN,
        "what runs, what waits, and where there is room",
    ),
    Grant((muster.ALLOCATION,), ("get", *_SEEN, "create", "patch", "delete"), "each run of a task"),
    Grant((core.SECRET, core.SERVICE), ("list", "create", "patch", "delete"), "what it alone may know, and its ports"),
    Grant((core.CONFIG_MAP,), ("get", "create"), "what tasks start with"),
    Grant((core.NAMESPACE,), ("get", "create"), "of workspaces that have their own"),
    Grant((kueue.LOCAL_QUEUE, kueue.WORKLOAD_PRIORITY_CLASS), ("create",), "by which tasks queue"),
    Grant((kueue.WORKLOAD,), ("patch",), "somebody is let ahead in a queue"),
    Grant((core.POD,), ("delete",), "tasks are killed"),
    Grant((core.POD,), ("get",), "what they print", "log"),
    Grant((core.NODE,), ("get", "patch"), "administrators close and open nodes"),
    Grant((muster.ALLOCATION,), ("update",), "runs own these: see CLUSTER", "finalizers", is_rare=True),
)
"""Of `muster serve`, in all namespaces."""


def _group(kind: Kind) -> str:
    return kind.group


def rules(grants: Sequence[Grant]) -> list[Document]:
    return [rule for grant in grants for rule in grant.rule()]
