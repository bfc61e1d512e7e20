"""Volcano's kinds as the platform stores and serves them."""

from muster.api.kinds import Kind
from muster.api.volcano import views

JOB = Kind(
    group="batch.volcano.sh",
    version="v1alpha1",
    name="Job",
    plural="jobs",
    view=views.Job,
    short_names=("vcjob", "vj"),
)

CRON_JOB = Kind(
    group="batch.volcano.sh",
    version="v1alpha1",
    name="CronJob",
    plural="cronjobs",
    view=views.CronJob,
    short_names=("cronvcjob", "cronvj"),
)

POD_GROUP = Kind(
    group="scheduling.volcano.sh",
    version="v1beta1",
    name="PodGroup",
    plural="podgroups",
    view=views.PodGroup,
    short_names=("pg", "podgroup-v1beta1"),
)

QUEUE = Kind(
    group="scheduling.volcano.sh",
    version="v1beta1",
    name="Queue",
    plural="queues",
    view=views.Queue,
    namespaced=False,
    short_names=("q", "queue-v1beta1"),
)

COMMAND = Kind(
    group="bus.volcano.sh",
    version="v1alpha1",
    name="Command",
    plural="commands",
    view=views.Command,
    subresources=frozenset(),
)

JOB_FLOW = Kind(
    group="flow.volcano.sh",
    version="v1alpha1",
    name="JobFlow",
    plural="jobflows",
    view=views.JobFlow,
    short_names=("jf",),
)

JOB_TEMPLATE = Kind(
    group="flow.volcano.sh",
    version="v1alpha1",
    name="JobTemplate",
    plural="jobtemplates",
    view=views.JobTemplate,
    short_names=("jt",),
)

HYPER_NODE = Kind(
    group="topology.volcano.sh",
    version="v1alpha1",
    name="HyperNode",
    plural="hypernodes",
    view=views.HyperNode,
    namespaced=False,
    short_names=("hn",),
)

KINDS: tuple[Kind, ...] = (JOB, CRON_JOB, POD_GROUP, QUEUE, COMMAND, JOB_FLOW, JOB_TEMPLATE, HYPER_NODE)
